-- Fencelock's fence for MariaDB (10.5 and later) and MySQL (8 and later), on InnoDB: the store keeps the highest token
-- that it has seen for each resource, and refuses a lower one. Load it once per database:
--
--     mariadb payouts < mysql.sql
--
-- In the transaction of every protected write:
--
--     START TRANSACTION;
--     CALL fencelock_claim('invoice/INV-55102', 417);   -- before the first read
--     SELECT ... FOR UPDATE;  UPDATE ... ;
--     COMMIT;
--
-- fencelock_claim() raises the highest token before anything is read, so a stale writer is refused even when the new
-- holder has not written yet. fencelock_check() is for later transactions of the same holder. Both lock the resource's
-- fence row until the transaction ends: a newer claim waits for it, and cannot slip in between the check and the
-- commit. Outside of a transaction (autocommit) they protect nothing but themselves.
--
-- InnoDB reads of a transaction, at REPEATABLE READ, see what was there at its first plain SELECT. So claim or check
-- first, before any SELECT: then what the holder before you committed is seen.
--
-- An equal token passes: one holder may write twice. A lower one raises SQLSTATE 45000, error 32001, and changes
-- nothing: ROLLBACK, and acquire the lock again.
--
-- The procedures act as whoever loaded this. An application needs EXECUTE on them and no right on the table, so that
-- it cannot lower a token: GRANT EXECUTE ON PROCEDURE payouts.fencelock_claim TO app;

-- Names are compared byte by byte: 'a' and 'A', or 'e' with and without an accent, are two resources.
CREATE TABLE IF NOT EXISTS fencelock_fence (
    resource   VARBINARY(512)  NOT NULL PRIMARY KEY,
    token      BIGINT          NOT NULL CHECK (token > 0),
    claimed_at TIMESTAMP       NOT NULL DEFAULT CURRENT_TIMESTAMP
) ENGINE = InnoDB;

DELIMITER //

DROP PROCEDURE IF EXISTS fencelock_refuse //
CREATE PROCEDURE fencelock_refuse(token BIGINT, seen BIGINT) SQL SECURITY DEFINER
BEGIN
    DECLARE told VARCHAR(128) DEFAULT
        CONCAT('fencelock: token ', token, ' is stale: ', seen, ' has been seen; acquire the lock again');

    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 32001, MESSAGE_TEXT = told;
END //

-- Raises the highest token of the resource to `new_token`, or refuses.
DROP PROCEDURE IF EXISTS fencelock_claim //
CREATE PROCEDURE fencelock_claim(the_resource VARBINARY(512), new_token BIGINT) SQL SECURITY DEFINER
BEGIN
    DECLARE seen BIGINT;

    IF the_resource IS NULL OR new_token IS NULL OR new_token <= 0 THEN
        SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 32004,
            MESSAGE_TEXT = 'fencelock: a claim needs a resource and a token above 0';
    END IF;
    -- One statement that inserts, or locks and raises; a row that somebody else inserts meanwhile is waited for.
    INSERT INTO fencelock_fence (resource, token) VALUES (the_resource, new_token)
        ON DUPLICATE KEY UPDATE
            claimed_at = IF(token < new_token, CURRENT_TIMESTAMP, claimed_at),
            token = GREATEST(token, new_token);
    SELECT token INTO seen FROM fencelock_fence WHERE resource = the_resource FOR UPDATE;
    IF seen > new_token THEN
        CALL fencelock_refuse(new_token, seen);
    END IF;
END //

-- Refuses unless `own_token` was claimed and is still the highest. The row stays locked until the transaction ends.
DROP PROCEDURE IF EXISTS fencelock_check //
CREATE PROCEDURE fencelock_check(the_resource VARBINARY(512), own_token BIGINT) SQL SECURITY DEFINER
BEGIN
    DECLARE seen BIGINT;

    SELECT token INTO seen FROM fencelock_fence WHERE resource = the_resource FOR UPDATE;
    IF seen > own_token THEN
        CALL fencelock_refuse(own_token, seen);
    END IF;
    IF seen IS NULL OR own_token IS NULL OR seen < own_token THEN
        SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 32002,
            MESSAGE_TEXT = 'fencelock: the token was not claimed; claim it before the first read';
    END IF;
END //

-- For shared holders, each of which has a token of its own: refuses if a higher one has been claimed, and claims
-- nothing. A claim waits until the transaction ends, if there was one before.
DROP PROCEDURE IF EXISTS fencelock_check_shared //
CREATE PROCEDURE fencelock_check_shared(the_resource VARBINARY(512), own_token BIGINT) SQL SECURITY DEFINER
BEGIN
    DECLARE seen BIGINT;

    IF the_resource IS NULL OR own_token IS NULL OR own_token <= 0 THEN
        SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 32004,
            MESSAGE_TEXT = 'fencelock: a check needs a resource and a token above 0';
    END IF;
    SELECT token INTO seen FROM fencelock_fence WHERE resource = the_resource LOCK IN SHARE MODE;
    IF seen > own_token THEN
        CALL fencelock_refuse(own_token, seen);
    END IF;
END //

DELIMITER ;
