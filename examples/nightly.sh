#!/bin/sh
# A cron job that stands in the crontab of many hosts and runs once a night:
#
#     0 3 * * *  nightly.sh /srv/shared/jobs.db 'nightly-report --send'
#
# The lock alone is not enough: hosts' clocks differ, and whoever comes when the first is done would run it
# again. So the night is written down in a store, under the lock, with the lock's token; and a host that was
# stopped in the middle is refused there, since its token is lower than its successor's.
set -eu
database=$1 job=$2
night=${NIGHT:-$(date +%F)}

if [ -z "${FENCELOCK_TOKEN:-}" ]; then
    # Whoever comes while it runs has nothing to do: not granted (75) is no failure.
    exec fencelock run cron/nightly --conflict-exit-code 0 -- "$0" "$@"
fi

sqlite3 "$database" 'PRAGMA busy_timeout = 10000;
    CREATE TABLE IF NOT EXISTS nights (night TEXT PRIMARY KEY, token INTEGER NOT NULL, done INTEGER NOT NULL)' >/dev/null

# Ours only if it is not done, and if no higher token has begun it.
begun=$(sqlite3 "$database" "PRAGMA busy_timeout = 10000;
    INSERT INTO nights VALUES ('$night', $FENCELOCK_TOKEN, 0)
        ON CONFLICT (night) DO UPDATE SET token = $FENCELOCK_TOKEN WHERE done = 0 AND token <= $FENCELOCK_TOKEN;
    SELECT changes()" | tail -n 1)
if [ "$begun" -eq 0 ]; then
    echo "nightly: $night is done already"
    exit 0
fi
sh -c "$job"
sqlite3 "$database" "PRAGMA busy_timeout = 10000;
    UPDATE nights SET done = 1 WHERE night = '$night' AND token = $FENCELOCK_TOKEN" >/dev/null
echo "nightly: $night done with token $FENCELOCK_TOKEN"
