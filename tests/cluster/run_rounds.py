"""`fencelock run` never lets its command overlap the next holder's: many rounds in each of which the tool of the first
holder is cut off, stopped, or killed, or its guard is, while its command ignores TERM and has a child that left its process group.

    run_rounds.py [--rounds N] [--together N]
"""
import argparse
import concurrent.futures
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from cluster import PATIENCE, TOOL, Cluster, wait_for

FAULTS = ("cut off", "stopped", "killed", "guard killed")
# Appends the time, which counts a suspend, as often as it can; its child does, too.
COMMAND = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
out = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    os.write(out, b"%d\\n" % time.clock_gettime_ns(time.CLOCK_BOOTTIME))
    time.sleep(0.002)
"""


class Proxy:
    """A TCP proxy that can stop to pass anything on, without closing anything: a network that is cut."""

    def __init__(self, target):
        self.target = target
        self.is_cut = False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                here, _ = self.listener.accept()
            except OSError:
                return
            host, port = self.target.rsplit(":", 1)
            there = socket.create_connection((host, int(port)))
            for a, b in ((here, there), (there, here)):
                threading.Thread(target=self.pump, args=(a, b), daemon=True).start()

    def pump(self, source, target):
        try:
            while data := source.recv(65536):
                while self.is_cut:
                    time.sleep(0.01)
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.is_cut = False
        self.listener.close()


def times(path):
    with open(path) as file:
        return [int(line) for line in file.read().split("\n")[:-1]]


def begun(path):
    return os.path.exists(path) and os.path.getsize(path) > 0


def start(endpoints, name, path, seconds, *options):
    # A process group of its own, so that the round can be sure that nothing of it stays behind.
    return subprocess.Popen([TOOL, "run", name, "--ttl", "2s", *options, "--", sys.executable, "-c", COMMAND, path,
                             str(seconds)], env=dict(os.environ, FENCELOCK_ENDPOINTS=endpoints), start_new_session=True,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def one_round(cluster, folder, number):
    """Milliseconds between the last sign of the first command and the first of the second; the fault."""
    fault = FAULTS[number % len(FAULTS)]
    name = f"round/{number}"
    first_path, second_path = (os.path.join(folder, f"{number}.{who}") for who in "ab")
    proxy = Proxy(cluster.endpoints.split(",")[number % len(cluster.nodes)])
    first = start(proxy.endpoint, name, first_path, 600)
    wait_for(lambda: begun(first_path), f"round {number}: the first command")
    second = start(cluster.endpoints, name, second_path, 0.2, "--wait", "60s")
    wait_for(lambda: cluster.json("describe", name).get("waiter_count") == 1, f"round {number}: the second waits")
    time.sleep((number * 37 % 700) / 1000)  # somewhere between two heartbeats: this is what the rounds are about
    if fault == "cut off":
        proxy.is_cut = True
    elif fault == "guard killed":
        with open(f"/proc/{first.pid}/task/{first.pid}/children") as children:
            os.kill(int(children.read().split()[0]), signal.SIGKILL)
    else:
        os.kill(first.pid, signal.SIGSTOP if fault == "stopped" else signal.SIGKILL)
    if second.wait(PATIENCE) != 0:
        raise AssertionError(f"round {number}, {fault}: the second command ended with {second.returncode}")
    os.kill(first.pid, signal.SIGCONT)
    proxy.close()
    first.wait(PATIENCE)
    return (times(second_path)[0] - times(first_path)[-1]) / 1e6, fault


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--together", type=int, default=6)
    options = parser.parse_args()
    gaps = {fault: [] for fault in FAULTS}
    with Cluster(nodes=3) as cluster, tempfile.TemporaryDirectory(prefix="fencelock-rounds-") as folder, \
            concurrent.futures.ThreadPoolExecutor(options.together) as pool:
        for gap, fault in pool.map(lambda number: one_round(cluster, folder, number), range(options.rounds)):
            gaps[fault].append(gap)
    for fault, all_gaps in gaps.items():
        print(f"{fault:12}  {len(all_gaps)} rounds, from the last sign of the first command to the first of the second: "
              f"shortest {min(all_gaps):.0f} ms, median {sorted(all_gaps)[len(all_gaps) // 2]:.0f} ms, "
              f"longest {max(all_gaps):.0f} ms")
    overlaps = sum(gap <= 0 for all_gaps in gaps.values() for gap in all_gaps)
    print(f"{options.rounds} rounds, {overlaps} overlaps")
    sys.exit(1 if overlaps else 0)


main()
