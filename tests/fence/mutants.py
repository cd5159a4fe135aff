"""Each fence, broken in one place: its tests must see it. A mutant that survives is a test that is missing."""
import concurrent.futures
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
FENCES = os.path.join(HERE, "..", "..", "fence")

# file, its tests, what stands there, what stands there instead, what that does
MUTANTS = [
    ("postgresql.sql", "IF before > claim.token THEN", "IF false THEN", "claim refuses nothing"),
    ("postgresql.sql", "IF before > claim.token THEN", "IF before >= claim.token THEN", "claim refuses the holder itself"),
    ("postgresql.sql", "SET token = claim.token, ", "SET ", "claim raises nothing"),
    ("postgresql.sql", "    UPDATE fencelock.fence f SET checked_in = txid_current()\n",
     "    PERFORM 1 FROM fencelock.fence f\n", "check locks nothing"),
    ("postgresql.sql", "    UPDATE fencelock.fence f SET checked_in = txid_current()\n"
     '        WHERE f.resource = "check".resource AND f.token = "check".token;',
     '    PERFORM 1 FROM fencelock.fence f WHERE f.resource = "check".resource AND f.token = "check".token\n'
     "        FOR UPDATE;", "check locks, and leaves an older snapshot to go on"),
    ("postgresql.sql", "IF seen > \"check\".token THEN", "IF false THEN", "a stale check is told something else"),
    ("postgresql.sql", "SECURITY DEFINER", "", "an application needs rights on the table"),
    ("postgresql.sql", " AND f.checked_in = txid_current()", "", "the guard is content with an old check"),
    ("postgresql.sql", "PERFORM fencelock.demand(TG_ARGV[0] || (to_jsonb(NEW)", "PERFORM (TG_ARGV[0] || (to_jsonb(NEW)",
     "the guard sees where a row comes from, not where it goes"),
    ("postgresql.sql", "IF seen > check_shared.token THEN", "IF seen <> check_shared.token THEN", "readers need the writer's token"),
    ("postgresql.sql", " FOR SHARE;", ";", "a claim does not wait for readers"),
    ("sqlite.sql", "FROM fencelock_fence WHERE resource = NEW.resource AND token > NEW.token;",
     "FROM fencelock_fence WHERE 0;", "nothing is stale"),
    ("sqlite.sql", "SET token = excluded.token,", "SET token = token,", "claim raises nothing"),
    ("sqlite.sql", "AND token > NEW.token", "AND token >= NEW.token", "an equal token is stale"),
    ("sqlite.sql", "NOT EXISTS (SELECT 1 FROM fencelock_fence WHERE resource = NEW.resource AND token = NEW.token)", "0",
     "check takes tokens that nobody claimed"),
    ("mysql.sql", "IF seen > new_token THEN", "IF FALSE THEN", "claim refuses nothing"),
    ("mysql.sql", "token = GREATEST(token, new_token)", "token = token", "claim raises nothing"),
    ("mysql.sql", "WHERE resource = the_resource FOR UPDATE;\n    IF seen > own_token", "WHERE resource = the_resource;\n    IF seen > own_token",
     "check locks nothing"),
    ("mysql.sql", "VARBINARY(512)", "VARCHAR(512)", "resources that look alike are one"),
    ("mysql.sql", " LOCK IN SHARE MODE;", ";", "a claim does not wait for readers"),
    ("mysql.sql", "SQL SECURITY DEFINER", "SQL SECURITY INVOKER", "an application needs rights on the table"),
    ("redis.lua", "tonumber(seen) > token", "false", "nothing is stale"),
    ("redis.lua", "    redis.call('SET', keys[1], args[1])\n", "    redis.call('SETNX', keys[1], args[1])\n", "claim raises nothing"),
    ("redis.lua", "tonumber(seen) > token", "tonumber(seen) >= token", "an equal token is stale"),
    ("redis.lua", "if not seen or tonumber(seen) < token then", "if false then", "a write takes tokens that nobody claimed"),
    ("redis.lua", "if not token or not string.match(token, '^[1-9]%d*$') or", "if not tonumber(token) or",
     "tokens in other notations pass"),
]


def survives(mutant):
    """What is wrong: the mutant's effect, if its tests pass; None if they fail."""
    name, old, new, effect = mutant
    with open(os.path.join(FENCES, name)) as file:
        text = file.read()
    if old not in text:
        return f"{name}: the mutant \"{effect}\" fits nowhere"
    with tempfile.TemporaryDirectory() as directory:
        with open(os.path.join(directory, name), "w") as file:
            file.write(text.replace(old, new))
        tests = os.path.join(HERE, f"fence_{name.split('.')[0]}.py")
        done = subprocess.run([sys.executable, tests, "--failfast"], env=dict(os.environ, FENCELOCK_FENCES=directory),
                              capture_output=True, text=True)
    return f"{name}: {effect}" if done.returncode in (0, 77) else None


class Mutants(unittest.TestCase):
    def test_every_mutant_is_seen(self):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            survivors = [effect for effect in pool.map(survives, MUTANTS) if effect]
        self.assertEqual(survivors, [], "\n".join(survivors))


if __name__ == "__main__":
    unittest.main(verbosity=2)
