"""Backups of a running cluster, and new clusters from them: tokens only rise, sessions are gone, damage is refused."""
import json
import os
import random
import shutil
import subprocess
import tempfile
import threading
import unittest

import grpc

from bed import Bed, Session, error_of, now
from cluster import BIN, TOOL, wait_for

DAEMON = os.path.join(BIN, "fencelockd")


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


KEPT = tempfile.mkdtemp(prefix="fl-backups-")
unittest.addModuleCleanup(shutil.rmtree, KEPT)


def backup(bed, name="backup"):
    path = os.path.join(KEPT, f"{os.path.basename(bed.dir)}-{name}")
    told = json.loads(bed.tool("backup", path, "--json", "--endpoints", bed.endpoints()).stdout)
    assert told["bytes"] == os.path.getsize(path)
    return path, told


def restore(bed, path, *more):
    """Into node 1 of a bed that has not begun."""
    return run(TOOL, "restore", path, "--node-id", "1", "--dir", os.path.join(bed.nodes[1].dir, "data"), "--cluster",
               "bed", "--peer", f"1=127.0.0.1:{bed.peer_ports[1]}", *more)


class Restored:
    """A new cluster from a backup: one node, then two more that join it."""

    def __init__(self, path, nodes=1, *more):
        self.bed = Bed(nodes=1)
        try:
            done = restore(self.bed, path, *more)
            assert done.returncode == 0, done.stderr
            self.bed.start(1)
            self.bed.leader()
            for _ in range(nodes - 1):
                i = self.bed.new_node()
                self.bed.start(i, "--join")
                self.bed.tool("node", "add", f"{i}=127.0.0.1:{self.bed.peer_ports[i]}", "--endpoints",
                              self.bed.endpoints([1]))
        except BaseException:
            self.bed.__exit__()
            raise

    def __enter__(self):
        return self.bed

    def __exit__(self, *_):
        self.bed.__exit__()


class Backups(unittest.TestCase):
    def test_tokens_rise_over_a_restore_and_sessions_are_gone(self):
        handed_out = {}
        with Bed(nodes=3) as bed:
            session = Session(bed, ttl_ms=60000)
            handed_out["held"] = session.acquire("held").token
            idle = session.acquire("idle").token
            session.release("idle", idle)
            path, told = backup(bed)
            self.assertGreaterEqual(told["token"], idle)
            for _ in range(500):  # after the backup; the store that they protect has seen them
                handed_out["idle"] = session.acquire("idle").token
                session.release("idle", handed_out["idle"])
            handed_out["born/later"] = session.acquire("born/later").token
            old_session = session.id
            session.crash()
        for attempt in range(2):  # a cluster that was restored is lost, too, and the same backup is used again
            with Restored(path, nodes=3) as bed:
                self.assertEqual(error_of(lambda: bed.lock(1).KeepAlive(session_id=old_session))[1], "SESSION_NOT_FOUND")
                status = bed.statuses(1)[1]
                self.assertEqual((status["sessions"], status["holds"]), (0, 0))
                session = Session(bed, ids=[1, 2, 3], ttl_ms=60000)
                for name, token in list(handed_out.items()):
                    got = session.acquire(name)
                    self.assertTrue(got.granted, name)
                    self.assertGreater(got.token, max(handed_out.values()), name)
                    self.assertGreaterEqual(got.token, 1 << 40)
                    self.assertLess(got.token, 1 << 53)
                    handed_out[name] = got.token
                    session.release(name, got.token)
                bed.kill(1)
                self.assertTrue(session.acquire("after/one/died").granted)
                session.crash()

    def test_a_floor_for_tokens_can_be_given(self):
        with Bed(nodes=3) as bed:
            path, _ = backup(bed)
        with Restored(path, 1, "--min-token", str(1 << 50)) as bed:
            self.assertGreater(Session(bed).acquire("x").token, 1 << 50)
        bed = Bed(nodes=1)
        done = restore(bed, path, "--min-token", str((1 << 53) - 1))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("nothing was changed", done.stderr)
        bed.__exit__()

    def test_backups_under_load_are_whole_and_the_load_goes_on(self):
        with Bed(nodes=3, options=["--snapshot-every", "300"]) as bed:
            stopping, failures = threading.Event(), []

            def load(k):
                try:
                    session = Session(bed, ttl_ms=60000)
                    while not stopping.is_set():
                        got = session.acquire(f"load/{k}")
                        session.release(f"load/{k}", got.token)
                except Exception as error:
                    failures.append(repr(error))

            threads = [threading.Thread(target=load, args=(k,)) for k in range(4)]
            for thread in threads:
                thread.start()
            tokens = []
            for k in range(5):
                path, told = backup(bed, f"b{k}")
                tokens.append(told["token"])
                check = run(DAEMON, "--check-backup", path)
                self.assertEqual(check.returncode, 0, check.stderr)
                self.assertIn("is whole", check.stdout)
            stopping.set()
            for thread in threads:
                thread.join()
            self.assertEqual(failures, [])
            self.assertEqual(tokens, sorted(tokens))

    def test_damage_is_refused_before_anything_changes(self):
        rng = random.Random(7)
        with Bed(nodes=3) as bed:
            session = Session(bed, ttl_ms=60000)
            for k in range(20):
                session.acquire(f"n/{k}")
            path, _ = backup(bed)
            session.crash()
            with open(path, "rb") as file:
                whole = file.read()
            target = Bed(nodes=1)
            broken = os.path.join(bed.dir, "broken")
            cases = [whole[:n] for n in (0, 7, 127, 128, 140, len(whole) // 2, len(whole) - 1)] + [whole + b"\0"]
            for at in rng.sample(range(len(whole)), 25):
                cases.append(whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1:])
            for k, content in enumerate(cases):
                with open(broken, "wb") as file:
                    file.write(content)
                done = restore(target, broken)
                self.assertEqual(done.returncode, 1, k)
                self.assertRegex(done.stderr, "offset|ends too early|later release")
                self.assertEqual(os.listdir(target.nodes[1].dir), [])
            self.assertEqual(restore(target, path).returncode, 0)
            again = restore(target, path)
            self.assertEqual(again.returncode, 1)
            self.assertIn("nothing was changed", again.stderr)
            target.__exit__()

    def test_a_file_that_cannot_be_written_is_told(self):
        with Bed(nodes=3) as bed:
            done = bed.tool("backup", os.path.join(bed.dir, "no", "such", "dir"), "--endpoints", bed.endpoints(),
                            check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("cannot be written", done.stderr)
            device = bed.tool("backup", bed.dir, "--endpoints", bed.endpoints(), check=False)
            self.assertNotEqual(device.returncode, 0)
            self.assertIn("directory", device.stderr)
            stub = bed.lock(bed.leader())
            begun = stub.BeginBackup()
            code, reason, field = error_of(lambda: stub.ReadBackup(backup_id=begun.backup_id + 7, node_id=begun.node_id))
            self.assertEqual((reason, field), ("BAD_ARGUMENT", "backup_id"))
            first = stub.ReadBackup(backup_id=begun.backup_id, node_id=begun.node_id).data
            self.assertEqual(stub.ReadBackup(backup_id=begun.backup_id, node_id=begun.node_id).data, first)
            self.assertTrue(first.startswith(b"FLBACKUP"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
