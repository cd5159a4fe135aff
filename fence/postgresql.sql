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
-- has not written yet. check() is for later transactions of the same holder. Both write the resource's fence row,
-- so it stays locked until the transaction ends: a newer claim waits for it, and cannot slip in between the check
-- and the commit. Writing it, not only locking it, is what makes this hold at every isolation level: a claim that
-- waited with an older snapshot is told "could not serialize access" (SQLSTATE 40001) and repeats its transaction,
-- where otherwise it would go on and not see what the holder before it has committed.
--
-- An equal token passes: one holder may write twice. A lower one raises SQLSTATE FL001 and nothing is changed.
-- guard() is a trigger for tables that nobody may write without a check.
--
-- The functions act as their owner. An application needs USAGE on the schema and no right on the table, so that
-- it cannot lower a token: GRANT USAGE ON SCHEMA fencelock TO payouts;

CREATE SCHEMA IF NOT EXISTS fencelock;

CREATE TABLE IF NOT EXISTS fencelock.fence (
    resource   text        PRIMARY KEY,
    token      bigint      NOT NULL CHECK (token > 0),
    claimed_at timestamptz NOT NULL DEFAULT now(),
    checked_in bigint      NOT NULL DEFAULT txid_current() -- the transaction that claimed or checked last
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
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
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
    IF before IS NULL THEN -- somebody deleted the row just now: what was seen is lost, so nothing may pass
        RAISE EXCEPTION 'fencelock: the fence row of "%" was deleted meanwhile', claim.resource
            USING ERRCODE = 'serialization_failure', HINT = 'Repeat the transaction.';
    END IF;
    IF before > claim.token THEN
        PERFORM fencelock.refuse(claim.resource, claim.token, before);
    END IF;
    UPDATE fencelock.fence f
        SET token = claim.token, checked_in = txid_current(),
            claimed_at = CASE WHEN f.token < claim.token THEN now() ELSE f.claimed_at END
        WHERE f.resource = claim.resource;
    RETURN before;
END
$$;

-- Refuses unless `token` was claimed and is still the highest. The fence row stays locked until the transaction ends.
CREATE OR REPLACE FUNCTION fencelock."check"(resource text, token bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    seen bigint;
BEGIN
    UPDATE fencelock.fence f SET checked_in = txid_current()
        WHERE f.resource = "check".resource AND f.token = "check".token;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT f.token INTO seen FROM fencelock.fence f WHERE f.resource = "check".resource;
    IF seen > "check".token THEN
        PERFORM fencelock.refuse("check".resource, "check".token, seen);
    END IF;
    RAISE EXCEPTION 'fencelock: token % for "%" was not claimed', "check".token, "check".resource
        USING ERRCODE = 'FL002', HINT = 'Call fencelock.claim(resource, token) before the first read.';
END
$$;

-- For shared holders, each of which has a token of its own: refuses if a higher one has been claimed, and claims
-- nothing, so that they do not shut each other out. A claim waits until the transaction ends, if there was one before.
CREATE OR REPLACE FUNCTION fencelock.check_shared(resource text, token bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    seen bigint;
BEGIN
    IF token IS NULL OR token <= 0 OR resource IS NULL THEN
        RAISE EXCEPTION 'fencelock: check_shared() needs a resource and a token above 0'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT f.token INTO seen FROM fencelock.fence f WHERE f.resource = check_shared.resource FOR SHARE;
    IF seen > check_shared.token THEN
        PERFORM fencelock.refuse(check_shared.resource, check_shared.token, seen);
    END IF;
END
$$;

-- Fails with FL003 unless this transaction has claimed or checked the resource.
CREATE OR REPLACE FUNCTION fencelock.demand(resource text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM 1 FROM fencelock.fence f WHERE f.resource = demand.resource AND f.checked_in = txid_current();
    IF NOT FOUND THEN
        RAISE EXCEPTION 'fencelock: a write to "%" without a check of its token', demand.resource
            USING ERRCODE = 'FL003',
                  HINT = 'Call fencelock.check(resource, token) in the transaction of the write.';
    END IF;
END
$$;

-- A trigger for what nobody may write without a check, forgetful code included. One fence for a whole table:
--
--     CREATE TRIGGER fenced BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON ledger
--         FOR EACH STATEMENT EXECUTE FUNCTION fencelock.guard('ledger');
--
-- or one for each row, named by a prefix and a column (here invoice/INV-55102):
--
--     CREATE TRIGGER fenced BEFORE INSERT OR UPDATE OR DELETE ON invoice
--         FOR EACH ROW EXECUTE FUNCTION fencelock.guard('invoice/', 'id');
CREATE OR REPLACE FUNCTION fencelock.guard() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF TG_LEVEL = 'STATEMENT' THEN
        PERFORM fencelock.demand(TG_ARGV[0]);
        RETURN NULL;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        PERFORM fencelock.demand(TG_ARGV[0] || (to_jsonb(OLD) ->> TG_ARGV[1]));
    END IF;
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    PERFORM fencelock.demand(TG_ARGV[0] || (to_jsonb(NEW) ->> TG_ARGV[1]));
    RETURN NEW;
END
$$;
