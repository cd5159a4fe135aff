"""Two releases in one cluster: this one, and one that knows a kind of entry more (fencelockd-next). What is new is
written only when all nodes know it, and an old node that meets it says so and ends."""
import os
import unittest

from bed import Bed, Session
from cluster import BIN, wait_for

OLD = os.path.join(BIN, "fencelockd")
NEXT = os.environ["FENCELOCKD_NEXT"]


class Upgrade(unittest.TestCase):
    def swap(self, bed, i, program):
        if bed.nodes[i].process.poll() is None:
            self.assertEqual(bed.terminate(i), 0)
        bed.programs[i] = program
        bed.start(i)

    def test_one_node_after_the_other_and_back_while_it_is_possible(self):
        with Bed(nodes=3) as bed:
            session = Session(bed, ttl_ms=60000)
            held = session.acquire("held").token
            for i in (1, 2):
                self.swap(bed, i, NEXT)
                bed.converged()
                self.assertTrue(session.acquire(f"with/{i}/new").granted)
            # A new leader, an old follower: nothing is written that the follower does not know.
            for leader in (1, 2, 1):
                if bed.leader() != leader:
                    bed.lock(bed.leader()).TransferLeader(node_id=leader)
                    wait_for(lambda: bed.leader() == leader, "the new release to lead")
                self.assertTrue(session.acquire(f"led/by/{leader}/{bed.statuses(1)[1]['term']}").granted)
            bed.converged()
            self.assertEqual(bed.alive(), [1, 2, 3])
            self.swap(bed, 2, OLD)  # one may go back
            bed.converged()
            self.swap(bed, 2, NEXT)
            self.swap(bed, 3, NEXT)
            wait_for(lambda: any("format level 2" in bed.log(i) for i in bed.nodes), "the new kind to be written")
            self.assertTrue(session.acquire("all/new").granted)
            bed.converged()
            self.assertEqual([h.token for h in bed.lock(1).Describe(name="held").holders], [held])
            # Now nobody can go back.
            victim = next(i for i in bed.nodes if i != bed.leader())
            self.assertEqual(bed.terminate(victim), 0)
            bed.programs[victim] = OLD
            bed.spawn(victim)
            self.assertEqual(bed.nodes[victim].process.wait(60), 1)
            bed.nodes[victim].process.stdout.close()
            self.assertIn("written by a later release", bed.log(victim))
            bed.programs[victim] = NEXT
            bed.start(victim)
            bed.converged()
            self.assertFalse(session.is_lost())
            session.crash()


if __name__ == "__main__":
    unittest.main(verbosity=2)
