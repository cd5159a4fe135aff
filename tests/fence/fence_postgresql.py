"""fence/postgresql.sql on a real server: F1, F2 and the zombie writer of C84."""
import os
import sys
import threading
import time
import unittest

import postgres

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FENCES = os.environ.get("FENCELOCK_FENCES", os.path.join(ROOT, "fence"))  # mutants.py breaks them
LEDGER = """
    CREATE TABLE ledger (id int PRIMARY KEY, paid int NOT NULL, by_token bigint);
    INSERT INTO ledger VALUES (1, 0, NULL);
"""


class FenceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = postgres.Postgres()
        cls.addClassCleanup(cls.server.__exit__)
        cls.server.__enter__()
        cls.server.load(os.path.join(FENCES, "postgresql.sql"))
        cls.server.load(os.path.join(FENCES, "postgresql.sql"))  # loading again is harmless

    def setUp(self):
        self.server.psql("DROP TABLE IF EXISTS ledger; DELETE FROM fencelock.fence;" + LEDGER)

    def pay(self, token, how="claim"):
        return self.server.psql(f"""BEGIN; SELECT fencelock.{how}('inv', {token});
            UPDATE ledger SET paid = paid + 1, by_token = {token} WHERE id = 1; COMMIT;""", check=False)

    def paid(self):
        return self.server.psql("SELECT paid, by_token FROM ledger").stdout.strip()

    def await_one_waiter(self):
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        end = time.monotonic() + 20
        while self.server.psql(waiting).stdout.strip() != "1":
            self.assertLess(time.monotonic(), end, "nobody waits")

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
        for call in ("claim('inv', 0)", "claim('inv', -1)", "claim('inv', NULL)", "claim(NULL, 1)",
                     "check('inv', NULL)", "check_shared('inv', NULL)"):
            self.assertNotEqual(self.server.psql(f"SELECT fencelock.{call}", check=False).returncode, 0, call)

    def await_lock_wait(self):
        """Until one connection waits for a lock: looked for inside the server, with a generous limit."""
        self.server.psql("""DO $$ BEGIN
            FOR i IN 1..6000 LOOP
                PERFORM pg_stat_clear_snapshot();
                IF EXISTS (SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock') THEN RETURN; END IF;
                PERFORM pg_sleep(0.01);
            END LOOP;
            RAISE EXCEPTION 'nobody waits for a lock';
        END $$""")

    def test_a_claim_whose_row_was_deleted_meanwhile_does_not_pass(self):
        self.server.psql("SELECT fencelock.claim('inv', 5)")
        deleting, claiming = self.server.session(), self.server.session()
        deleting.run("BEGIN; DELETE FROM fencelock.fence WHERE resource = 'inv';")
        claiming.send("SELECT fencelock.claim('inv', 3);")
        self.await_lock_wait()
        deleting.run("COMMIT;")
        said = claiming.wait()
        passed = self.server.psql("SELECT token FROM fencelock.fence WHERE resource = 'inv'").stdout.strip()
        self.assertTrue("40001" in said or passed == "3", said)  # refused, or recorded: never passed unseen
        deleting.close()
        claiming.close()

    def test_a_newer_claim_waits_for_a_checked_write_and_not_the_reverse(self):
        old, new = self.server.session(), self.server.session()
        old.run("SELECT fencelock.claim('inv', 1);")
        old.run("BEGIN; SELECT fencelock.\"check\"('inv', 1);")
        new.send("BEGIN; SELECT fencelock.claim('inv', 2); UPDATE ledger SET paid = paid + 10; COMMIT;")
        self.await_one_waiter()
        old.run("UPDATE ledger SET paid = paid + 1; COMMIT;")  # checked before the claim: it comes first
        new.wait()
        self.assertIn("FL001", old.run("BEGIN; SELECT fencelock.\"check\"('inv', 1); ROLLBACK;"))
        self.assertEqual(self.server.psql("SELECT paid FROM ledger").stdout.strip(), "11")
        old.close()
        new.close()

    def test_a_claim_that_waited_sees_what_the_holder_before_committed_at_every_isolation_level(self):
        for level in ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"):
            for how in ("claim", '"check"'):
                self.server.psql("""DELETE FROM fencelock.fence; DROP TABLE IF EXISTS payment;
                    CREATE TABLE payment (token bigint); SELECT fencelock.claim('inv', 1)""")
                old, new = self.server.session(), self.server.session()
                old.run(f"BEGIN; SELECT fencelock.{how}('inv', 1); INSERT INTO payment VALUES (1);")
                new.send(f"""BEGIN ISOLATION LEVEL {level}; SELECT fencelock.claim('inv', 2);
                    INSERT INTO payment SELECT 2 WHERE NOT EXISTS (SELECT 1 FROM payment); COMMIT;""")
                self.await_one_waiter()
                old.run("COMMIT;")
                told = new.wait()
                self.assertEqual("40001" in told, level != "READ COMMITTED", told)
                self.assertEqual(self.server.psql("SELECT token FROM payment").stdout.split(), ["1"], level + how)
                old.close()
                new.close()

    def test_shared_holders_do_not_shut_each_other_out_and_a_writer_shuts_out_all(self):
        for token in (5, 4, 6):
            self.server.psql(f"SELECT fencelock.check_shared('inv', {token})")
        self.server.psql("SELECT fencelock.claim('inv', 7)")
        self.assertIn("FL001", self.server.psql("SELECT fencelock.check_shared('inv', 6)", check=False).stderr)
        self.server.psql("SELECT fencelock.check_shared('inv', 8)")
        self.assertEqual(self.pay(7, '"check"').returncode, 0)

        reader, writer = self.server.session(), self.server.session()
        reader.run("BEGIN; SELECT fencelock.check_shared('inv', 8);")
        writer.send("SELECT fencelock.claim('inv', 9);")
        self.await_one_waiter()
        reader.run("COMMIT;")
        writer.wait()
        reader.close()
        writer.close()

    def test_an_application_can_claim_but_not_lower_a_token(self):
        self.server.psql("""DROP OWNED BY payouts; DROP ROLE payouts""", check=False)
        self.server.psql("CREATE ROLE payouts; GRANT USAGE ON SCHEMA fencelock TO payouts")
        self.server.psql("""SET ROLE payouts; SELECT fencelock.claim('inv', 2); SELECT fencelock."check"('inv', 2)""")
        lower = self.server.psql("SET ROLE payouts; UPDATE fencelock.fence SET token = 1", check=False)
        self.assertIn("42501", lower.stderr)

    def test_a_guarded_row_refuses_whoever_did_not_check(self):
        self.server.psql("""CREATE TRIGGER fenced BEFORE INSERT OR UPDATE OR DELETE ON ledger
            FOR EACH ROW EXECUTE FUNCTION fencelock.guard('ledger/', 'id'); SELECT fencelock.claim('ledger/1', 5)""")
        for write in ("UPDATE ledger SET paid = 9", "DELETE FROM ledger", "INSERT INTO ledger VALUES (2, 0, 0)"):
            self.assertIn("FL003", self.server.psql(write, check=False).stderr, write)
        check = "BEGIN; SELECT fencelock.\"check\"('ledger/1', 5);"
        moved = self.server.psql(f"{check} UPDATE ledger SET id = 2; COMMIT", check=False)
        self.assertIn('"ledger/2"', moved.stderr)
        self.server.psql(f"{check} SAVEPOINT s; UPDATE ledger SET paid = 1; RELEASE s; COMMIT")
        self.server.psql(f"{check} DELETE FROM ledger; COMMIT")

    def test_a_guarded_table_refuses_whoever_did_not_check(self):
        self.server.psql("""CREATE TRIGGER fenced BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON ledger
            FOR EACH STATEMENT EXECUTE FUNCTION fencelock.guard('ledger')""")
        for write in ("UPDATE ledger SET paid = 9", "TRUNCATE ledger"):
            self.assertIn("FL003", self.server.psql(write, check=False).stderr, write)
        self.server.psql("BEGIN; SELECT fencelock.claim('ledger', 5); UPDATE ledger SET paid = 1; COMMIT")

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
