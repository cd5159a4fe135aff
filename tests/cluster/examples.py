"""The examples run as they say, against a real cluster."""
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

from cluster import ROOT, TOOL, Cluster, wait_for

EXAMPLE = os.path.join(ROOT, "examples", "ten_lines.py")
EXAMPLES = os.environ["FENCELOCK_EXAMPLES"]
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

    def run_example(self, name, *args):
        done = subprocess.run([os.path.join(EXAMPLES, name), *args], env=self.cluster.env, capture_output=True,
                              text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def start_example(self, name, *args):
        return subprocess.Popen([os.path.join(EXAMPLES, name), *args], env=self.cluster.env, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True)

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
        self.assertRegex(self.run_example("payout_worker", "INV-1"), r"^settled INV-1 with token \d+\n$")
        wait_for(lambda: not self.cluster.json("describe", "payout/INV-1").get("holders"), "the release")

    def test_one_leader_follows_another_with_a_higher_token(self):
        first = self.start_example("leader", "first")
        token = int(re.fullmatch(r"elected, token (\d+)\n", first.stdout.readline()).group(1))
        second = self.start_example("leader", "second")
        wait_for(lambda: self.cluster.json("describe", "scheduler/leader").get("waiter_count") == 1, "the second stands")
        self.assertEqual(self.cluster.json("describe", "scheduler/leader")["holders"][0]["client"], "first")
        first.kill()
        first.communicate()
        next_token = int(re.fullmatch(r"elected, token (\d+)\n", second.stdout.readline()).group(1))
        self.assertGreater(next_token, token)
        second.kill()
        second.communicate()

    def test_readers_come_together_and_a_writer_alone(self):
        path = os.path.join(self.dir.name, "catalog.txt")
        self.run_example("catalog", "write", path, "first")
        self.assertEqual(self.run_example("catalog", "read", path), "first\n")
        reader = self.cluster.start("run", "catalog", "--shared", "--", "sh", "-c", "echo held; read _",
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(reader.stdout.readline(), "held\n")
        self.assertEqual(self.run_example("catalog", "read", path), "first\n")  # beside the other reader
        writer = self.start_example("catalog", "write", path, "second")
        wait_for(lambda: self.cluster.json("describe", "catalog").get("waiter_count") == 1, "the writer waits")
        reader.communicate()
        self.assertEqual(writer.wait(60), 0)
        writer.communicate()
        self.assertEqual(self.run_example("catalog", "read", path), "second\n")

    def test_a_pool_has_so_many_permits(self):
        holders = [self.start_example("permits", "pool", "2") for _ in range(2)]
        tokens = [holder.stdout.readline() for holder in holders]
        self.assertEqual(len(set(tokens)), 2)
        third = self.start_example("permits", "pool", "2")
        wait_for(lambda: self.cluster.json("describe", "pool").get("waiter_count") == 1, "the third waits")
        holders[0].communicate()
        self.assertRegex(third.stdout.readline(), r"^permit \d+\n$")
        for each in (holders[1], third):
            each.communicate()

    def test_a_nightly_job_runs_once_on_many_hosts(self):
        database, ran = (os.path.join(self.dir.name, name) for name in ("jobs.db", "ran"))
        env = dict(self.cluster.env, PATH=os.path.dirname(TOOL) + ":" + os.environ["PATH"], NIGHT="2026-12-01")
        command = [os.path.join(ROOT, "examples", "nightly.sh"), database, f"echo once >> {ran}"]
        hosts = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(8)]
        said = "".join(host.communicate(timeout=60)[0] for host in hosts)
        self.assertEqual([host.returncode for host in hosts], [0] * 8)
        late = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)  # by another host's clock
        self.assertEqual((late.returncode, late.stdout), (0, "nightly: 2026-12-01 is done already\n"))
        with open(ran) as file:
            self.assertEqual(file.read(), "once\n")
        self.assertEqual(said.count("done with token"), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
