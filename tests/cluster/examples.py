"""The examples run as they say, against a real cluster."""
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

from cluster import ROOT, Cluster, wait_for

EXAMPLE = os.path.join(ROOT, "examples", "ten_lines.py")
NAME = "payout/INV-55102"


class Examples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(nodes=3)
        cls.dir = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__()
        cls.dir.cleanup()

    def generate(self):
        """Runs the command that the example tells, with another folder to write to."""
        with open(EXAMPLE) as file:
            told = re.search(r"^    (protoc .*?\.proto)$", file.read(), re.MULTILINE | re.DOTALL).group(1)
        command = shlex.split(told.replace("\\\\\n", " "))
        command = [word.replace("_out=.", "_out=" + self.dir.name) for word in command]
        subprocess.run(command, cwd=ROOT, check=True)

    def ten_lines(self):
        endpoint = self.cluster.endpoints.split(",")[0]
        done = subprocess.run([sys.executable, EXAMPLE, endpoint], env=dict(os.environ, PYTHONPATH=self.dir.name),
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_ten_lines_of_grpcio_take_a_lock_and_are_told_who_has_it(self):
        self.generate()
        first, second = (int(re.fullmatch(r"settle the invoice with token (\d+)\n", self.ten_lines()).group(1))
                         for _ in range(2))
        self.assertGreater(second, first)

        holder = self.cluster.start("run", NAME, "--", "sh", "-c", "echo held; read _", stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE)
        self.assertEqual(holder.stdout.readline(), "held\n")
        self.assertRegex(self.ten_lines(), r"^held by \S+ for \d+ ms\n$")
        holder.communicate()

    def test_the_c_worker_settles_its_invoice(self):
        worker = os.environ["FENCELOCK_PAYOUT_WORKER"]
        done = subprocess.run([worker, "INV-1"], env=self.cluster.env, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^settled INV-1 with token \d+\n$")
        wait_for(lambda: not self.cluster.json("describe", "payout/INV-1").get("holders"), "the release")


if __name__ == "__main__":
    unittest.main(verbosity=2)
