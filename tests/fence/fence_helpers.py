"""The helpers for C, fence_sqlite.h and fence_postgresql.h, on real stores. Usage: fence_helpers.py HELPERS"""
import os
import subprocess
import sys

import postgres

FENCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "fence")

failed = subprocess.run([sys.argv[1], "sqlite", os.path.join(FENCES, "sqlite.sql")]).returncode
with postgres.Postgres() as server:
    server.load(os.path.join(FENCES, "postgresql.sql"))
    failed |= subprocess.run([sys.argv[1], "postgresql", f"host={server.dir} user=fencelock dbname=postgres"]).returncode
sys.exit(failed)
