"""fence/postgresql.sql on a real server: F1, F2 and the zombie writer of C84."""
import os
import sys
import threading
import unittest

import postgres

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LEDGER = """
    CREATE TABLE ledger (id int PRIMARY KEY, paid int NOT NULL, by_token bigint);
    INSERT INTO ledger VALUES (1, 0, NULL);
"""


class FenceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = postgres.Postgres().__enter__()
        cls.server.load(os.path.join(ROOT, "fence", "postgresql.sql"))
        cls.server.load(os.path.join(ROOT, "fence", "postgresql.sql"))  # loading again is harmless

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()

    def setUp(self):
        self.server.psql("DROP TABLE IF EXISTS ledger; DELETE FROM fencelock.fence;" + LEDGER)

    def pay(self, token, how="claim"):
        return self.server.psql(f"""BEGIN; SELECT fencelock.{how}('inv', {token});
            UPDATE ledger SET paid = paid + 1, by_token = {token} WHERE id = 1; COMMIT;""", check=False)

    def paid(self):
        return self.server.psql("SELECT paid, by_token FROM ledger").stdout.strip()

    def test_a_stale_writer_is_refused_and_changes_nothing(self):
        self.assertEqual(self.pay(2).returncode, 0)
        late = self.pay(1)
        self.assertNotEqual(late.returncode, 0)
        self.assertIn("FL001", late.stderr)
        self.assertIn('token 1 for "inv" is stale: 2 has been seen', late.stderr)
        self.assertEqual(self.paid(), "1|2")

    def test_a_claim_refuses_the_stale_writer_before_the_new_holder_has_written(self):
        self.assertEqual(self.pay(1).returncode, 0)
        self.server.psql("SELECT fencelock.claim('inv', 2)")  # the new holder has only opened it
        self.assertIn("FL001", self.pay(1, '"check"').stderr)
        self.assertIn("FL001", self.pay(1).stderr)
        self.assertEqual(self.paid(), "1|1")

    def test_an_equal_token_passes_so_one_holder_may_write_twice(self):
        for how in ("claim", '"check"', "claim"):
            self.assertEqual(self.pay(7, how).returncode, 0)
        self.assertEqual(self.paid(), "3|7")

    def test_an_unclaimed_token_is_told_so(self):
        self.assertIn("FL002", self.pay(3, '"check"').stderr)
        self.pay(3)
        self.assertIn("FL002", self.pay(4, '"check"').stderr)

    def test_resources_are_apart(self):
        self.server.psql("SELECT fencelock.claim('other', 100)")
        self.assertEqual(self.pay(1).returncode, 0)

    def test_nonsense_is_refused(self):
        for call in ("claim('inv', 0)", "claim('inv', -1)", "claim('inv', NULL)", "claim(NULL, 1)"):
            self.assertNotEqual(self.server.psql(f"SELECT fencelock.{call}", check=False).returncode, 0, call)

    def test_a_newer_claim_waits_for_a_checked_write_and_not_the_reverse(self):
        old, new = self.server.session(), self.server.session()
        old.run("SELECT fencelock.claim('inv', 1);")
        old.run("BEGIN; SELECT fencelock.\"check\"('inv', 1);")
        new.send("BEGIN; SELECT fencelock.claim('inv', 2); UPDATE ledger SET paid = paid + 10; COMMIT;")
        waiting = """SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"""
        while self.server.psql(waiting).stdout.strip() != "1":
            pass
        old.run("UPDATE ledger SET paid = paid + 1; COMMIT;")  # checked before the claim: it comes first
        new.wait()
        self.assertIn("FL001", old.run("BEGIN; SELECT fencelock.\"check\"('inv', 1); ROLLBACK;"))
        self.assertEqual(self.server.psql("SELECT paid FROM ledger").stdout.strip(), "11")
        old.close()
        new.close()

    def test_over_many_racing_writers_accepted_tokens_never_fall(self):
        self.server.psql("CREATE TABLE IF NOT EXISTS seen (n serial, token bigint); TRUNCATE seen;")
        writers, rounds = 6, 40

        def write(first):
            session = self.server.session()
            for i in range(rounds):
                token = first + i * writers
                session.run(f"""BEGIN; SELECT fencelock.claim('race', {token});
                    INSERT INTO seen (token) VALUES ({token}); COMMIT; ROLLBACK;""")
            session.close()

        threads = [threading.Thread(target=write, args=(i + 1,)) for i in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        tokens = [int(t) for t in self.server.psql("SELECT token FROM seen ORDER BY n").stdout.split()]
        self.assertEqual(tokens, sorted(tokens))
        self.assertIn(max(range(1, writers * rounds + 1)), tokens)


if __name__ == "__main__":
    if postgres.bin_dir() is None:
        print("PostgreSQL's server is not installed: scripts/install-deps test")
        sys.exit(77)
    unittest.main(verbosity=2)
