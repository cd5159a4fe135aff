"""libfencelock with each allocation of its process failing in turn, against a real node (memory.c)."""
import os
import subprocess
import unittest

from cluster import PATIENCE, Cluster

PROGRAM = os.environ["FENCELOCK_MEMORY"]


class Memory(unittest.TestCase):
    def test_whichever_allocation_fails_it_is_said_and_nothing_is_lost(self):
        with Cluster(nodes=1) as cluster:
            done = subprocess.run([PROGRAM, cluster.endpoints], capture_output=True, text=True, timeout=5 * PATIENCE)
        print(done.stdout)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("out of memory", done.stdout)


if __name__ == "__main__":
    unittest.main()
