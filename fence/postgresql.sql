-- Fencelock's fence for PostgreSQL (12 and later): the store keeps the highest token that it has seen for each
-- resource, and refuses a lower one. Load it once per database:
--
--     psql -v ON_ERROR_STOP=1 -f postgresql.sql
--
-- In the transaction of every protected write:
--
--     BEGIN;
--     SELECT fencelock.claim('invoice/INV-55102', 417);   -- before the first read
--     SELECT ... ;  UPDATE ... ;
--     COMMIT;
--
-- claim() raises the highest token before anything is read, so a stale writer is refused even when the new holder
-- has not written yet. check() is for later transactions of the same holder. Both lock the resource's fence row
-- until the transaction ends: a newer claim waits for it, and cannot slip in between the check and the commit.
-- That holds at every isolation level (under REPEATABLE READ and SERIALIZABLE the loser of a race is told
-- "could not serialize access", SQLSTATE 40001, and repeats its transaction).
--
-- An equal token passes: one holder may write twice. A lower one raises SQLSTATE FL001 and nothing is changed.

CREATE SCHEMA IF NOT EXISTS fencelock;

CREATE TABLE IF NOT EXISTS fencelock.fence (
    resource   text        PRIMARY KEY,
    token      bigint      NOT NULL CHECK (token > 0),
    claimed_at timestamptz NOT NULL DEFAULT now()
);

COMMENT ON TABLE fencelock.fence IS
    'The highest fencing token seen for each resource. Never delete a row while a holder may still be around.';

-- Fails with FL001; a function of its own, so that both callers say the same.
CREATE OR REPLACE FUNCTION fencelock.refuse(resource text, token bigint, seen bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'fencelock: token % for "%" is stale: % has been seen', token, resource, seen
        USING ERRCODE = 'FL001',
              HINT = 'Somebody else holds the lock now. Do not repeat the write: acquire the lock again first.';
END
$$;

-- Raises the highest token of `resource` to `token`, or refuses. Returns the token that stood there before
-- (NULL: none).
CREATE OR REPLACE FUNCTION fencelock.claim(resource text, token bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    before bigint;
BEGIN
    IF token IS NULL OR token <= 0 OR resource IS NULL THEN
        RAISE EXCEPTION 'fencelock: claim() needs a resource and a token above 0'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- A row that somebody else inserts meanwhile is waited for, then locked like any other.
    INSERT INTO fencelock.fence AS f (resource, token) VALUES (claim.resource, claim.token)
        ON CONFLICT ON CONSTRAINT fence_pkey DO NOTHING;
    IF FOUND THEN
        RETURN NULL;
    END IF;
    SELECT f.token INTO before FROM fencelock.fence f WHERE f.resource = claim.resource FOR UPDATE;
    IF before > claim.token THEN
        PERFORM fencelock.refuse(claim.resource, claim.token, before);
    END IF;
    IF before < claim.token THEN
        UPDATE fencelock.fence f SET token = claim.token, claimed_at = now() WHERE f.resource = claim.resource;
    END IF;
    RETURN before;
END
$$;

-- Refuses unless `token` was claimed and is still the highest. Holds the fence row until the transaction ends.
CREATE OR REPLACE FUNCTION fencelock."check"(resource text, token bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    seen bigint;
BEGIN
    SELECT f.token INTO seen FROM fencelock.fence f WHERE f.resource = "check".resource FOR UPDATE;
    IF seen IS NULL OR seen < "check".token THEN
        RAISE EXCEPTION 'fencelock: token % for "%" was not claimed', "check".token, "check".resource
            USING ERRCODE = 'FL002', HINT = 'Call fencelock.claim(resource, token) before the first read.';
    END IF;
    IF seen > "check".token THEN
        PERFORM fencelock.refuse("check".resource, "check".token, seen);
    END IF;
END
$$;
