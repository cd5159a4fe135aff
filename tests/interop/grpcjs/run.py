"""Installs grpc-js as package-lock.json pins it, starts a server and runs a story against it.
Usage: run.py PREFIX echo ECHO_SERVER | run.py PREFIX locks TOOL PROTO_DIR; PREFIX is where node_modules may be."""
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def install(prefix):
    """Once for each package-lock.json, whoever runs at the same time."""
    os.makedirs(prefix, exist_ok=True)
    pinned = os.path.join(HERE, "package-lock.json")
    done = os.path.join(prefix, "installed-package-lock.json")
    with open(os.path.join(prefix, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(done) and open(done).read() == open(pinned).read():
            return
        for name in ("package.json", "package-lock.json"):
            shutil.copy(os.path.join(HERE, name), prefix)
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=prefix, check=True)
        shutil.copy(pinned, done)


def story(prefix, name, *args):
    modules = dict(os.environ, NODE_PATH=os.path.join(os.path.abspath(prefix), "node_modules"))
    return subprocess.run(["node", os.path.join(HERE, f"{name}.js"), *map(str, args)], env=modules).returncode


def echo(prefix, server):
    process = subprocess.Popen([server], stdout=subprocess.PIPE, text=True)
    try:
        failed = story(prefix, "echo", int(process.stdout.readline()), process.pid)
        return failed or process.wait(20)
    finally:
        process.kill()


def locks(prefix, tool, proto):
    with tempfile.TemporaryDirectory(prefix="fencelock-js-") as directory:
        process = subprocess.Popen([tool, "dev", "--nodes", "3", "--port", "0", "--dir", directory, "--json"],
                                   stdout=subprocess.PIPE, text=True)
        try:
            return story(prefix, "locks", json.loads(process.stdout.readline())["endpoints"], proto)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


install(sys.argv[1])
sys.exit({"echo": echo, "locks": locks}[sys.argv[2]](sys.argv[1], *sys.argv[3:]))
