"""fence/sqlite.sql: F1, F2 and the zombie writer of C84."""
import os
import sqlite3
import tempfile
import threading
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FENCES = os.environ.get("FENCELOCK_FENCES", os.path.join(ROOT, "fence"))  # mutants.py breaks them


class FenceTest(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.dir.name, "store.db")
        self.db = self.connect()
        with open(os.path.join(FENCES, "sqlite.sql")) as sql:
            text = sql.read()
        self.db.executescript(text)
        self.db.executescript(text)  # loading again is harmless
        self.db.executescript("CREATE TABLE ledger (paid INTEGER); INSERT INTO ledger VALUES (0);")

    def tearDown(self):
        self.db.close()
        self.dir.cleanup()

    def connect(self):
        return sqlite3.connect(self.path, timeout=60, isolation_level=None)

    def pay(self, token, how="claim", db=None, resource="inv"):
        db = db or self.db
        db.execute("BEGIN IMMEDIATE")
        try:
            db.execute(f"INSERT INTO fencelock_{how} VALUES (?, ?)", (resource, token))
            db.execute("UPDATE ledger SET paid = paid + 1")
            db.execute("COMMIT")
        except sqlite3.Error:
            db.execute("ROLLBACK")
            raise

    def paid(self):
        return self.db.execute("SELECT paid FROM ledger").fetchone()[0]

    def test_a_stale_writer_is_refused_and_changes_nothing(self):
        self.pay(2)
        with self.assertRaisesRegex(sqlite3.IntegrityError, "fencelock: stale token"):
            self.pay(1)
        self.assertEqual(self.paid(), 1)

    def test_a_claim_refuses_the_stale_writer_before_the_new_holder_has_written(self):
        self.pay(1)
        self.db.execute("INSERT INTO fencelock_claim VALUES ('inv', 2)")
        for how in ("check", "claim"):
            with self.assertRaisesRegex(sqlite3.IntegrityError, "stale token"):
                self.pay(1, how)
        self.assertEqual(self.paid(), 1)

    def test_an_equal_token_passes_so_one_holder_may_write_twice(self):
        for how in ("claim", "check", "claim"):
            self.pay(7, how)
        self.assertEqual(self.paid(), 3)

    def test_an_unclaimed_token_is_told_so(self):
        for claimed in (None, 3):
            if claimed:
                self.pay(claimed)
            with self.assertRaisesRegex(sqlite3.IntegrityError, "was not claimed"):
                self.pay(4, "check")

    def test_nonsense_is_refused(self):
        for token in (0, -1, None, "seven", 1.5):
            with self.assertRaises(sqlite3.IntegrityError):
                self.pay(token)

    def test_resources_are_apart(self):
        self.pay(100, resource="other")
        self.pay(1)

    def test_a_newer_claim_waits_for_a_checked_write_and_not_the_reverse(self):
        new = sqlite3.connect(self.path, timeout=0, isolation_level=None)
        token = 0
        for journal in ("DELETE", "WAL"):
            self.db.execute(f"PRAGMA journal_mode = {journal}")
            for begin in ("BEGIN IMMEDIATE", "BEGIN"):  # a check is an insert: it takes the write lock itself
                token += 1
                self.pay(token)
                self.db.execute(begin)
                self.db.execute("INSERT INTO fencelock_check VALUES ('inv', ?)", (token,))
                with self.assertRaisesRegex(sqlite3.OperationalError, "locked"):
                    new.execute("INSERT INTO fencelock_claim VALUES ('inv', ?)", (token + 1,))
                self.db.execute("UPDATE ledger SET paid = paid + 1")
                self.db.execute("COMMIT")
                new.execute("INSERT INTO fencelock_claim VALUES ('inv', ?)", (token + 1,))
                with self.assertRaisesRegex(sqlite3.IntegrityError, "stale token"):
                    self.pay(token, "check")
                self.assertEqual(self.paid(), 2 * token)
        new.close()

    def test_over_many_racing_writers_accepted_tokens_never_fall(self):
        self.db.execute("CREATE TABLE seen (n INTEGER PRIMARY KEY AUTOINCREMENT, token INTEGER)")
        writers, rounds = 4, 50

        def write(first):
            db = self.connect()
            for i in range(rounds):
                token = first + i * writers
                db.execute("BEGIN IMMEDIATE")
                try:
                    db.execute("INSERT INTO fencelock_claim VALUES ('race', ?)", (token,))
                    db.execute("INSERT INTO seen (token) VALUES (?)", (token,))
                    db.execute("COMMIT")
                except sqlite3.IntegrityError:
                    db.execute("ROLLBACK")
            db.close()

        threads = [threading.Thread(target=write, args=(i + 1,)) for i in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        tokens = [row[0] for row in self.db.execute("SELECT token FROM seen ORDER BY n")]
        self.assertEqual(tokens, sorted(tokens))
        self.assertIn(writers * rounds, tokens)


if __name__ == "__main__":
    unittest.main(verbosity=2)
