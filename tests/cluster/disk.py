"""Disks that fill up, and files that are damaged, under real nodes."""
import glob
import itertools
import os
import random
import subprocess
import unittest

import grpc

from bed import Bed, Session, error_of, now
from cluster import wait_for

MIB = 1 << 20
REQUESTS = itertools.count(1000)


def can_mount():
    probe = subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True)
    return os.geteuid() == 0 and probe.returncode == 0


class SmallDisks(Bed):
    """Each node's directory is a file system of its own, which can be filled."""

    def __init__(self, nodes=3):
        super().__init__(nodes)
        for i in self.nodes:
            path = os.path.join(self.nodes[i].dir, "data")
            os.makedirs(path)
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400m", "tmpfs", path], check=True)

    def __exit__(self, *args):
        for node in self.nodes.values():
            if node.process is not None and node.process.poll() is None:
                node.process.kill()
                node.process.wait()
        for i in self.nodes:
            subprocess.run(["umount", "-l", os.path.join(self.nodes[i].dir, "data")], check=False)
        super().__exit__(*args)

    def fill(self, i):
        """Nothing is left: the node is started again, so that it holds no segment in advance."""
        self.kill(i)
        data = os.path.join(self.nodes[i].dir, "data")
        for spare in glob.glob(os.path.join(data, "*.tmp")):
            os.unlink(spare)
        left = os.statvfs(data)
        with open(os.path.join(data, "filler"), "wb") as file:
            os.posix_fallocate(file.fileno(), 0, left.f_bavail * left.f_frsize - MIB)
        self.start(i)

    def free(self, i):
        os.unlink(os.path.join(self.nodes[i].dir, "data", "filler"))


@unittest.skipUnless(can_mount(), "needs to mount file systems")
class FullDisk(unittest.TestCase):
    def disk_full(self, bed, i, session, name):
        """Each time another request for another name: what was granted before would be granted again."""
        number = next(REQUESTS)
        return error_of(lambda: bed.lock(i).Acquire(session_id=session, name=f"{name}/{number}",
                                                    request_id=number))[1] == "DISK_FULL"

    def test_one_full_disk_does_not_stop_grants(self):
        with SmallDisks() as bed:
            leader = bed.leader()
            bed.fill(leader)
            session = Session(bed, ttl_ms=60000)
            self.assertTrue(session.acquire("with/one/full").granted)
            # It may not stay leader when it is elected: whoever has space leads.
            others = [i for i in bed.nodes if i != leader]
            terms = bed.log(leader).count("leads term")
            bed.lock(bed.leader()).TransferLeader(node_id=leader)
            wait_for(lambda: bed.log(leader).count("leads term") > terms, "the full one to be elected")
            wait_for(lambda: bed.leader() in others, "a leader with space")
            self.assertTrue(session.acquire("and/again").granted)
            session.crash()

    def test_a_full_majority_refuses_grants_lets_releases_through_and_heals_by_itself(self):
        with SmallDisks() as bed:
            session = Session(bed, ttl_ms=60000)
            short = Session(bed, ttl_ms=2000)
            held = {f"held/{k}": session.acquire(f"held/{k}").token for k in range(50)}
            short.acquire("of/the/dead")
            bed.fill(1)
            bed.fill(2)
            bed.leader()
            wait_for(lambda: self.disk_full(bed, 3, session.id, "new"), "grants to be refused")
            for name, token in held.items():
                session.release(name, token)
            self.assertEqual(list(bed.lock(3).Describe(name="held/1").holders), [])
            short.crash()
            wait_for(lambda: not bed.lock(3).Describe(name="of/the/dead").holders, "the dead one's lock to be free")
            self.assertTrue(self.disk_full(bed, 3, session.id, "new/2"))
            self.assertFalse(session.is_lost())
            self.assertEqual(bed.alive(), [1, 2, 3])
            began = now()
            bed.free(1)
            bed.free(2)
            wait_for(lambda: error_of(lambda: bed.lock(3).Acquire(session_id=session.id, name="new", request_id=10))[0] ==
                     grpc.StatusCode.OK, "grants to go on")
            print(f"grants go on {now() - began:.2f} s after there is space")
            bed.converged()
            session.crash()


class Damage(unittest.TestCase):
    def test_a_damaged_directory_is_refused_with_file_offset_and_remedy(self):
        rng = random.Random(3)
        with Bed(nodes=3, options=["--snapshot-every", "64"]) as bed:
            session = Session(bed, ttl_ms=60000)
            for k in range(300):
                session.acquire(f"n/{k}")
            bed.converged()
            victim = next(i for i in bed.nodes if i != bed.leader())
            self.assertEqual(bed.terminate(victim), 0)
            data = os.path.join(bed.nodes[victim].dir, "data")
            told = 0
            for kind in ("identity", "vote", "peers", "log-", "snapshot-"):
                for _ in range(4):
                    path = max(p for p in glob.glob(os.path.join(data, kind + "*")) if p[-4:] not in (".tmp", "aged"))
                    with open(path, "rb") as file:
                        whole = file.read()
                    at = rng.randrange(len(whole.rstrip(b"\0")))
                    self.write_byte(path, at, whole[at] ^ 0x40)
                    if self.start_damaged(bed, victim, kind):
                        told += 1
                        self.write_byte(path, at, whole[at])
            self.assertGreater(told, 0)
            print(f"{told} damages refused with their place")

    def write_byte(self, path, at, value):
        with open(path, "r+b") as file:
            file.seek(at)
            file.write(bytes([value]))

    def start_damaged(self, bed, i, kind):
        """Whether it was refused; otherwise it was repaired from a second copy."""
        before = len(bed.log(i))
        try:
            bed.start(i)
        except AssertionError:
            said = bed.log(i)[before:]
            self.assertIn(bed.nodes[i].dir, said)
            self.assertIn("offset" if kind != "vote" else "vote", said)
            self.assertIn("keep this directory aside", said)
            return True
        bed.converged()
        self.assertEqual(bed.terminate(i), 0)
        return False


if __name__ == "__main__":
    unittest.main(verbosity=2)
