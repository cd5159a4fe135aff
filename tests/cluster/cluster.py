"""A real cluster for a test: `fencelock dev` on free ports, under a directory of its own.

    with Cluster(nodes=3) as cluster:
        cluster.tool("run", "L", "--", "true").returncode
        cluster.kill(cluster.leader())
"""
import json
import os
import signal
import subprocess
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("FENCELOCK_BIN", os.path.join(ROOT, "build", "bin"))
TOOL = os.path.join(BIN, "fencelock")
PATIENCE = 60  # seconds; never what a test is about


def wait_for(condition, what, patience=PATIENCE):
    """The condition's first true value; fails with `what` when none comes."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"waited {patience} s for: {what}")


def within(call, what, patience=PATIENCE):
    """What the call returns; fails with `what` when it hangs."""
    result = []
    thread = threading.Thread(target=lambda: result.append(call()), daemon=True)
    thread.start()
    thread.join(patience)
    if not result:
        raise AssertionError(f"waited {patience} s for: {what}")
    return result[0]


class Cluster:
    def __init__(self, nodes=5, dir=None):
        command = [TOOL, "dev", "--nodes", str(nodes), "--json"]
        command += ["--dir", dir] if dir else []
        if not (dir and os.path.exists(os.path.join(dir, "dev.json"))):
            command += ["--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the cluster did not come up: code {self.process.wait()}")
        told = json.loads(line)
        self.endpoints, self.dir = told["endpoints"], told["dir"]
        self.nodes = {node["id"]: node for node in told["nodes"]}
        self.env = dict(os.environ, FENCELOCK_ENDPOINTS=self.endpoints)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for node in self.nodes.values():
            self.signal(node["id"], signal.SIGCONT)
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.process.stdout.close()

    def tool(self, *args, check=False, **more):
        return subprocess.run([TOOL, *args], env=self.env, capture_output=True, text=True, check=check,
                              timeout=PATIENCE, **more)

    def start(self, *args, **more):
        return subprocess.Popen([TOOL, *args], env=self.env, text=True, **more)

    def json(self, *args):
        return json.loads(self.tool(*args, "--json", check=True).stdout)

    def leader(self):
        """The id of the node that leads."""
        def look():
            done = self.tool("status", "--json")
            nodes = json.loads(done.stdout)["nodes"] if done.returncode == 0 else []
            return [node["node_id"] for node in nodes if node["role"] == "leader"]
        return wait_for(look, "a leader")[-1]

    def signal(self, node_id, number):
        try:
            os.kill(self.nodes[node_id]["pid"], number)
        except ProcessLookupError:
            pass

    def kill(self, node_id):
        self.signal(node_id, signal.SIGKILL)
