"""fence/redis.lua on a real server: F1, F2 and the zombie writer of C84."""
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FENCES = os.environ.get("FENCELOCK_FENCES", os.path.join(ROOT, "fence"))  # mutants.py breaks them
FENCE, DATA = "fence:{inv}", "paid:{inv}"


class FenceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.TemporaryDirectory(prefix="fl-redis-")
        cls.socket = os.path.join(cls.dir.name, "socket")
        cls.server = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", cls.socket, "--dir", cls.dir.name,
                                       "--save", ""], stdout=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while cls.redis("PING") != "PONG":
            assert time.monotonic() < end and cls.server.poll() is None, "redis-server did not come up"
        for _ in range(2):  # loading again is harmless
            with open(os.path.join(FENCES, "redis.lua")) as library:
                subprocess.run(["redis-cli", "-s", cls.socket, "-x", "FUNCTION", "LOAD", "REPLACE"], stdin=library,
                               check=True, capture_output=True)

    @classmethod
    def tearDownClass(cls):
        cls.server.terminate()
        cls.server.wait(60)
        cls.dir.cleanup()

    def setUp(self):
        self.redis("FLUSHALL")

    @classmethod
    def redis(cls, *command):
        done = subprocess.run(["redis-cli", "-s", cls.socket, *map(str, command)], capture_output=True, text=True)
        return (done.stdout + done.stderr).strip()

    def claim(self, token):
        return self.redis("FCALL", "fencelock_claim", 1, FENCE, token)

    def pay(self, token):
        return self.redis("FCALL", "fencelock_write", 2, FENCE, DATA, token, "INCRBY", 1)

    def test_a_claim_refuses_the_stale_writer_before_the_new_holder_has_written(self):
        self.assertEqual(self.claim(7), "OK")
        self.assertEqual(self.pay(7), "1")
        self.assertEqual(self.claim(8), "OK")
        for refused in (self.pay(7), self.claim(7)):
            self.assertRegex(refused, 'FENCELOCK_STALE token 7 for "fence:{inv}" is stale: 8 has been seen')
        self.assertEqual(self.redis("GET", DATA), "1")

    def test_an_equal_token_passes_so_one_holder_may_write_twice(self):
        self.claim(7)
        self.pay(7)
        self.claim(7)
        self.assertEqual(self.pay(7), "2")

    def test_an_unclaimed_token_is_told_so(self):
        self.assertIn("FENCELOCK_UNCLAIMED", self.pay(3))
        self.claim(3)
        self.assertIn("FENCELOCK_UNCLAIMED", self.pay(4))

    def test_nonsense_is_refused(self):
        for token in ("0", "-1", "", "seven", "1.5", "0x10", "1e3", "99999999999999999"):
            self.assertIn("FENCELOCK_ARGUMENT", self.claim(token), token)
            self.assertIn("FENCELOCK_ARGUMENT", self.pay(token), token)

    def test_the_largest_tokens_are_told_apart(self):
        self.claim(2**53 - 1)
        self.assertIn("FENCELOCK_STALE", self.pay(2**53 - 2))
        self.assertEqual(self.pay(2**53 - 1), "1")

    def test_over_many_racing_writers_accepted_tokens_never_fall(self):
        writers, rounds = 4, 60

        def write(first):
            lines = []
            for token in range(first, writers * rounds + 1, writers):
                lines += [f"FCALL fencelock_claim 1 {FENCE} {token}",
                          f"FCALL fencelock_write 2 {FENCE} {DATA} {token} RPUSH {token}"]
            subprocess.run(["redis-cli", "-s", self.socket], input="\n".join(lines), text=True, capture_output=True)

        threads = [threading.Thread(target=write, args=(i + 1,)) for i in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        tokens = [int(token) for token in self.redis("LRANGE", DATA, 0, -1).split()]
        self.assertEqual(tokens, sorted(tokens))
        self.assertIn(writers * rounds, tokens)


if __name__ == "__main__":
    if shutil.which("redis-server") is None:
        print("redis-server is not installed: scripts/install-deps test")
        sys.exit(77)
    unittest.main(verbosity=2)
