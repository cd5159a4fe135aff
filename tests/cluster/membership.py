"""Members that come and go while the cluster serves: `fencelock node` on real nodes. Times are printed; only generous
limits are asserted."""
import json
import threading
import unittest

from bed import Bed, History, Session, now
from cluster import wait_for


class Load:
    """Clients that acquire and release all the time, recorded; a session that is lost is a failure."""

    def __init__(self, bed, clients=4, ids=None):
        self.history, self.stopping, self.failures = History(), threading.Event(), []
        self.sessions = [Session(bed, ids=ids, ttl_ms=10000) for _ in range(clients)]
        self.threads = [threading.Thread(target=self.run, args=(s, k), daemon=True) for k, s in enumerate(self.sessions)]
        self.done = 0
        self.longest = 0.0

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def run(self, session, k):
        try:
            while not self.stopping.is_set():
                began = now()
                got = session.acquire(f"load/{k % 2}", wait_ms=20000)
                if got.granted:
                    grant = self.history.granted(f"load/{k % 2}", got.token, session)
                    grant.until = now()
                    session.release(f"load/{k % 2}", got.token)
                    self.done += 1
                self.longest = max(self.longest, now() - began)
        except Exception as error:  # told by check()
            self.failures.append(repr(error))

    def __exit__(self, *_):
        self.stopping.set()
        for thread in self.threads:
            thread.join()
        for session in self.sessions:
            session.crash()

    def check(self, test):
        test.assertEqual(self.failures, [])
        test.assertFalse(any(s.is_lost() for s in self.sessions))
        test.assertGreater(self.done, 0)
        self.history.check()


def members(bed, through):
    """What the leader says: {id: role}."""
    told = json.loads(bed.tool("node", "ls", "--json", "--endpoints", bed.endpoints(through)).stdout)
    return {m["node_id"]: m["role"] for m in told["members"]}


def address(bed, i):
    return f"{i}={bed.hosts[i]}:{bed.peer_ports[i]}"


class Members(unittest.TestCase):
    def add(self, bed, through):
        i = bed.new_node()
        bed.start(i, "--join")
        bed.tool("node", "add", address(bed, i), "--endpoints", bed.endpoints(through))
        return i

    def test_three_grow_to_five_and_survive_two_deaths_and_a_restart(self):
        with Bed(nodes=3, options=["--snapshot-every", "256"]) as bed:
            first = [1, 2, 3]
            with Load(bed, ids=first) as load:
                began = now()
                added = [self.add(bed, first), self.add(bed, first)]
                print(f"two nodes added under load in {now() - began:.1f} s, {load.done} grants meanwhile")
                self.assertEqual(members(bed, added), {i: "voter" for i in range(1, 6)})
                bed.kill(1, 2)
                held = load.sessions[0].retry(lambda stub: stub.create_session(ttl_ms=60000))
                bed.start(1)
                bed.start(2)
            load.check(self)
            self.assertTrue(held)
            bed.converged()
            bed.kill(*bed.nodes)
            for i in bed.nodes:
                bed.start(i)
            bed.leader()
            bed.converged()
            self.assertEqual(members(bed, first), {i: "voter" for i in range(1, 6)})

    def test_a_dead_node_is_replaced_under_load(self):
        with Bed(nodes=3, options=["--snapshot-every", "256"]) as bed:
            bed.kill(3)
            new = bed.new_node()
            with Load(bed, ids=[1, 2]) as load:
                bed.start(new, "--join")
                bed.tool("node", "replace", "3", address(bed, new), "--endpoints", bed.endpoints([1, 2]))
            load.check(self)
            self.assertEqual(members(bed, [1]), {1: "voter", 2: "voter", new: "voter"})
            del bed.nodes[3]
            bed.converged()
            # The new one counts: with it and one of the others there is a majority.
            bed.kill(1)
            self.assertTrue(Session(bed, ids=[2, new]).acquire("with/two").granted)

    def test_the_leader_is_removed_under_load(self):
        with Bed(nodes=5) as bed:
            old = bed.leader()
            others = [i for i in bed.nodes if i != old]
            with Load(bed, ids=others) as load:
                began = now()
                bed.tool("node", "remove", str(old), "--endpoints", bed.endpoints(others))
                print(f"leader removed in {now() - began:.2f} s; the longest acquire meanwhile {load.longest:.2f} s")
            load.check(self)
            self.assertNotIn(old, members(bed, others))
            self.assertEqual(len(members(bed, others)), 4)
            self.assertEqual(bed.terminate(old), 0)
            del bed.nodes[old]
            self.assertNotEqual(bed.leader(), old)
            bed.converged()

    def test_what_cannot_be_is_refused_with_the_reason(self):
        with Bed(nodes=3) as bed:
            ends = ("--endpoints", bed.endpoints())
            for order, said in ((("remove", "2"), "last three"), (("remove", "9"), "no member"),
                                (("promote", "9"), "add it first"), (("add", "9=nowhere"), "HOST:PORT"),
                                (("add", "x=1:2"), "needs ID=HOST:PORT"), (("grow",), "say what to do")):
                done = bed.tool("node", *order, "--wait", "3s", *ends, check=False)
                self.assertNotEqual(done.returncode, 0, order)
                self.assertIn(said, done.stderr, order)
            nobody = bed.new_node()
            done = bed.tool("node", "add", address(bed, nobody), "--wait", "2s", *ends, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("started with --join", done.stderr)
            self.assertEqual(members(bed, [1])[nobody], "standby")
            bed.tool("node", "remove", str(nobody), *ends)
            self.assertNotIn(nobody, members(bed, [1]))


class Wiped(unittest.TestCase):
    def refused(self, bed, i, *options):
        """Starts, is told, ends; and the directory is good for nothing any more."""
        bed.spawn(i, *options)
        self.assertEqual(bed.nodes[i].process.wait(60), 1)
        bed.nodes[i].process.stdout.close()
        self.assertIn("must not vote under its old id", bed.log(i))
        with self.assertRaisesRegex(AssertionError, "was refused by the cluster"):
            bed.start(i, *options)

    def test_a_node_that_lost_its_data_never_votes_under_its_id(self):
        with Bed(nodes=3) as bed:
            bed.converged()
            term = bed.statuses(1)[1]["term"]
            victim = next(i for i in bed.nodes if i != bed.leader())
            for option in ("--bootstrap", "--join"):
                bed.kill(victim)
                bed.wipe(victim)
                self.refused(bed, victim, option)
            leader = bed.leader(among=bed.alive())
            self.assertEqual(bed.statuses(leader)[leader]["term"], term)
            # Alone, the leader serves nobody: the wiped one does not help it to a majority.
            other = next(i for i in bed.alive() if i != leader)
            bed.kill(other)
            bed.wipe(victim)
            bed.spawn(victim, "--bootstrap")
            self.assertEqual(bed.nodes[victim].process.wait(60), 1)
            bed.start(other)
            self.assertTrue(Session(bed, ids=bed.alive()).acquire("two/of/three").granted)

    def test_a_removed_node_is_told_and_its_id_is_used_up(self):
        with Bed(nodes=4) as bed:
            victim = next(i for i in bed.nodes if i != bed.leader())
            others = [i for i in bed.nodes if i != victim]
            ends = ("--endpoints", bed.endpoints(others))
            bed.tool("node", "remove", str(victim), *ends)
            wait_for(lambda: "removed from the cluster: stop it" in bed.log(victim), "the removed node to be told")
            bed.kill(victim)
            bed.wipe(victim)
            bed.spawn(victim, "--join")
            done = bed.tool("node", "add", address(bed, victim), "--wait", "3s", *ends, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("never used again", done.stderr)
            self.assertNotIn(victim, members(bed, others))
            bed.nodes[victim].process.stdout.close()


class CleanStop(unittest.TestCase):
    def test_a_leader_that_is_asked_to_stop_hands_over_first(self):
        with Bed(nodes=3) as bed:
            took = []
            for _ in range(3):
                leader = bed.leader()
                session = Session(bed, ids=[i for i in bed.nodes if i != leader])
                session.acquire("warm")
                ended = threading.Thread(target=bed.terminate, args=(leader,))
                began = now()
                ended.start()
                longest = 0.0
                while ended.is_alive():
                    asked = now()
                    self.assertTrue(session.acquire(f"stop/{asked}").granted)
                    longest = max(longest, now() - asked)
                ended.join()
                self.assertEqual(bed.nodes[leader].process.returncode, 0)
                took.append((now() - began, longest))
                session.close()
                bed.start(leader)
                bed.converged()
            print("leader stopped cleanly: " + ", ".join(f"gone in {t:.2f} s, longest acquire {1000 * l:.0f} ms"
                                                         for t, l in took))
            self.assertLess(max(l for _, l in took), 5)


if __name__ == "__main__":
    unittest.main(verbosity=2)
