"""fence/mysql.sql on a real MariaDB server: F1, F2 and the zombie writer of C84."""
import os
import threading
import time
import unittest

import mariadb

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FENCES = os.environ.get("FENCELOCK_FENCES", os.path.join(ROOT, "fence"))  # mutants.py breaks them
STALE, UNCLAIMED, NONSENSE = "ERROR 32001 (45000)", "ERROR 32002 (45000)", "ERROR 32004 (45000)"


class FenceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = mariadb.MariaDB()
        cls.addClassCleanup(cls.server.__exit__)
        cls.server.__enter__()
        cls.server.load(os.path.join(FENCES, "mysql.sql"))
        cls.server.load(os.path.join(FENCES, "mysql.sql"))  # loading again is harmless

    def setUp(self):
        self.server.sql("""DELETE FROM fencelock_fence; DROP TABLE IF EXISTS ledger;
            CREATE TABLE ledger (id INT PRIMARY KEY, paid INT NOT NULL, by_token BIGINT) ENGINE = InnoDB;
            INSERT INTO ledger VALUES (1, 0, NULL);""")

    def pay(self, token, how="claim", resource="inv"):
        return self.server.sql(f"""START TRANSACTION; CALL fencelock_{how}('{resource}', {token});
            UPDATE ledger SET paid = paid + 1, by_token = {token} WHERE id = 1; COMMIT;""", check=False)

    def paid(self):
        return self.server.sql("SELECT paid, by_token FROM ledger").stdout.split()

    def await_one_waiter(self):
        waiting = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
        end = time.monotonic() + mariadb.PATIENCE_S
        while self.server.sql(waiting).stdout.strip() != "1":
            self.assertLess(time.monotonic(), end, "nobody waits")

    def test_a_stale_writer_is_refused_and_changes_nothing(self):
        self.assertEqual(self.pay(2).returncode, 0)
        late = self.pay(1)
        self.assertIn(STALE, late.stderr)
        self.assertIn("token 1 is stale: 2 has been seen", late.stderr)
        self.assertEqual(self.paid(), ["1", "2"])

    def test_a_claim_refuses_the_stale_writer_before_the_new_holder_has_written(self):
        self.assertEqual(self.pay(1).returncode, 0)
        self.server.sql("CALL fencelock_claim('inv', 2)")  # the new holder has only opened it
        for how in ("check", "claim"):
            self.assertIn(STALE, self.pay(1, how).stderr)
        self.assertEqual(self.paid(), ["1", "1"])

    def test_an_equal_token_passes_so_one_holder_may_write_twice(self):
        for how in ("claim", "check", "claim"):
            self.assertEqual(self.pay(7, how).returncode, 0)
        self.assertEqual(self.paid(), ["3", "7"])

    def test_an_unclaimed_token_is_told_so(self):
        self.assertIn(UNCLAIMED, self.pay(3, "check").stderr)
        self.pay(3)
        self.assertIn(UNCLAIMED, self.pay(4, "check").stderr)

    def test_nonsense_is_refused(self):
        for call in ("claim('inv', 0)", "claim('inv', -1)", "claim('inv', NULL)", "claim(NULL, 1)", "check_shared('inv', NULL)"):
            self.assertIn(NONSENSE, self.server.sql(f"CALL fencelock_{call}", check=False).stderr, call)
        self.assertIn(UNCLAIMED, self.server.sql("CALL fencelock_check('inv', NULL)", check=False).stderr)

    def test_resources_are_apart_byte_by_byte(self):
        for other in ("other", "INV", "ínv", "inv "):
            self.server.sql(f"CALL fencelock_claim('{other}', 100)")
        self.assertEqual(self.pay(1).returncode, 0)

    def test_a_newer_claim_waits_for_a_checked_write_and_not_the_reverse(self):
        self.server.sql("CALL fencelock_claim('inv', 1)")
        old, new = self.server.session(), self.server.session()
        old.run("START TRANSACTION; CALL fencelock_check('inv', 1);")
        new.send("START TRANSACTION; CALL fencelock_claim('inv', 2); UPDATE ledger SET paid = paid + 10; COMMIT;")
        self.await_one_waiter()
        old.run("UPDATE ledger SET paid = paid + 1; COMMIT;")  # checked before the claim: it comes first
        new.wait()
        self.assertIn(STALE, old.run("CALL fencelock_check('inv', 1);"))
        self.assertEqual(self.paid()[0], "11")
        old.close()
        new.close()

    def test_a_claim_that_waited_sees_what_the_holder_before_committed_at_every_isolation_level(self):
        for level in ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"):
            for how in ("claim", "check"):
                self.server.sql("""DELETE FROM fencelock_fence; DROP TABLE IF EXISTS payment;
                    CREATE TABLE payment (token BIGINT) ENGINE = InnoDB; CALL fencelock_claim('inv', 1)""")
                old, new = self.server.session(), self.server.session()
                old.run(f"START TRANSACTION; CALL fencelock_{how}('inv', 1); INSERT INTO payment VALUES (1);")
                new.send(f"""SET TRANSACTION ISOLATION LEVEL {level}; START TRANSACTION;
                    CALL fencelock_claim('inv', 2);
                    SELECT COUNT(*) INTO @paid FROM payment;
                    INSERT INTO payment SELECT 2 FROM DUAL WHERE @paid = 0; COMMIT;""")
                self.await_one_waiter()
                old.run("COMMIT;")
                new.wait()
                self.assertEqual(self.server.sql("SELECT token FROM payment").stdout.split(), ["1"], level + how)
                old.close()
                new.close()

    def test_shared_holders_do_not_shut_each_other_out_and_a_writer_shuts_out_all(self):
        for token in (5, 4, 6):
            self.server.sql(f"CALL fencelock_check_shared('inv', {token})")
        self.server.sql("CALL fencelock_claim('inv', 7)")
        self.assertIn(STALE, self.server.sql("CALL fencelock_check_shared('inv', 6)", check=False).stderr)
        self.server.sql("CALL fencelock_check_shared('inv', 8)")
        self.assertEqual(self.pay(7, "check").returncode, 0)

        reader, writer = self.server.session(), self.server.session()
        reader.run("START TRANSACTION; CALL fencelock_check_shared('inv', 8);")
        writer.send("CALL fencelock_claim('inv', 9);")
        self.await_one_waiter()
        reader.run("COMMIT;")
        writer.wait()
        reader.close()
        writer.close()

    def test_an_application_can_claim_but_not_lower_a_token(self):
        self.server.sql("""CREATE OR REPLACE USER app@localhost; GRANT SELECT, UPDATE ON payouts.ledger TO app@localhost;
            GRANT EXECUTE ON PROCEDURE payouts.fencelock_claim TO app@localhost;
            GRANT EXECUTE ON PROCEDURE payouts.fencelock_check TO app@localhost""")
        self.server.sql("CALL fencelock_claim('inv', 2); CALL fencelock_check('inv', 2)", user="app")
        self.assertIn(STALE, self.server.sql("CALL fencelock_claim('inv', 1)", user="app", check=False).stderr)
        lower = self.server.sql("UPDATE fencelock_fence SET token = 1", user="app", check=False)
        self.assertIn("denied", lower.stderr)

    def test_over_many_racing_writers_accepted_tokens_never_fall(self):
        self.server.sql("CREATE OR REPLACE TABLE seen (n INT AUTO_INCREMENT PRIMARY KEY, token BIGINT) ENGINE = InnoDB")
        writers, rounds = 6, 40

        def write(first):
            session = self.server.session()
            for i in range(rounds):
                token = first + i * writers
                session.run(f"""START TRANSACTION; CALL fencelock_claim('race', {token});
                    INSERT INTO seen (token) SELECT {token} FROM DUAL WHERE
                        (SELECT token FROM fencelock_fence WHERE resource = 'race') = {token}; COMMIT;""")
            session.close()

        threads = [threading.Thread(target=write, args=(i + 1,)) for i in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        tokens = [int(t) for t in self.server.sql("SELECT token FROM seen ORDER BY n").stdout.split()]
        self.assertEqual(tokens, sorted(tokens))
        self.assertIn(writers * rounds, tokens)


if __name__ == "__main__":
    unittest.main(verbosity=2)
