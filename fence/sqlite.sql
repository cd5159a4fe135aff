-- Fencelock's fence for SQLite (3.24 and later): the store keeps the highest token that it has seen for each
-- resource, and refuses a lower one. Load it once per database.
--
-- In the transaction of every protected write (BEGIN IMMEDIATE, so that no other writer comes between):
--
--     BEGIN IMMEDIATE;
--     INSERT INTO fencelock_claim VALUES ('invoice/INV-55102', 417);   -- before the first read
--     SELECT ... ;  UPDATE ... ;
--     COMMIT;
--
-- Claiming raises the highest token before anything is read, so a stale writer is refused even when the new holder
-- has not written yet. Later transactions of the same holder may say
--
--     INSERT INTO fencelock_check VALUES ('invoice/INV-55102', 417);
--
-- An equal token passes: one holder may write twice. A lower one fails with "fencelock: stale token" (SQLITE_
-- CONSTRAINT_TRIGGER): roll back, and acquire the lock again before anything else. Both are views: nothing is
-- stored in them.

CREATE TABLE IF NOT EXISTS fencelock_fence (
    resource   TEXT    PRIMARY KEY NOT NULL,
    token      INTEGER NOT NULL CHECK (token > 0),
    claimed_at TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP
) WITHOUT ROWID;

CREATE VIEW IF NOT EXISTS fencelock_claim (resource, token) AS SELECT NULL, NULL WHERE 0;
CREATE VIEW IF NOT EXISTS fencelock_check (resource, token) AS SELECT NULL, NULL WHERE 0;

CREATE TRIGGER IF NOT EXISTS fencelock_claim_insert INSTEAD OF INSERT ON fencelock_claim
BEGIN
    SELECT RAISE(ABORT, 'fencelock: a claim needs a resource and a token above 0')
        WHERE NEW.resource IS NULL OR NEW.token IS NULL OR typeof(NEW.token) != 'integer' OR NEW.token <= 0;
    SELECT RAISE(ABORT, 'fencelock: stale token: a higher one has been seen; acquire the lock again')
        FROM fencelock_fence WHERE resource = NEW.resource AND token > NEW.token;
    INSERT INTO fencelock_fence (resource, token) VALUES (NEW.resource, NEW.token)
        ON CONFLICT (resource) DO UPDATE SET token = excluded.token, claimed_at = CURRENT_TIMESTAMP
        WHERE excluded.token > fencelock_fence.token;
END;

CREATE TRIGGER IF NOT EXISTS fencelock_check_insert INSTEAD OF INSERT ON fencelock_check
BEGIN
    SELECT RAISE(ABORT, 'fencelock: stale token: a higher one has been seen; acquire the lock again')
        FROM fencelock_fence WHERE resource = NEW.resource AND token > NEW.token;
    SELECT RAISE(ABORT, 'fencelock: the token was not claimed; claim it before the first read')
        WHERE NOT EXISTS (SELECT 1 FROM fencelock_fence WHERE resource = NEW.resource AND token = NEW.token);
END;
