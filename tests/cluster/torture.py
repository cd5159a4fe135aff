"""kill -9 of all nodes at random points under load, again and again: every start succeeds, nothing acknowledged is lost,
all states are equal. FENCELOCK_POWER_ROUNDS rounds (5); scripts/torture-power runs many.

A round: clients acquire and release; all nodes are killed within a few milliseconds of each other; all are started
again, one time in four killed once more while they read their disks. Then every name that was acknowledged is as it was
told, what was under way is settled by asking again with its request_id, and the hashes of all nodes are compared."""
import os
import random
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

import grpc

from bed import Bed, now

ROUNDS = int(os.environ.get("FENCELOCK_POWER_ROUNDS", "5"))
SEED = int(os.environ.get("FENCELOCK_POWER_SEED", "0")) or random.randrange(1, 1 << 31)
CLIENTS = 4
TTL_MS = 3600000
HELD_MAX = 800  # beyond it clients release more than they take


class Client:
    """One session. What it was told: names to tokens; and the one call that may or may not have happened."""

    def __init__(self, bed, number, rng):
        self.bed, self.number, self.rng = bed, number, rng
        self.held, self.unsettled, self.highest = {}, None, {}
        self.acknowledged = self.counter = 0
        self.session = bed.lock(1 + number % len(bed.nodes)).create_session(ttl_ms=TTL_MS, client=f"c{number}")

    def call(self, i, operation):
        kind, name, key = operation
        stub = self.bed.lock(i)
        if kind == "acquire":
            got = stub.Acquire(session_id=self.session, name=name, request_id=key, timeout=5)
            assert got.granted, f"{name} is its client's alone, but was refused: {got}"
            assert got.token > self.highest.get(name, 0), f"{name}: token {got.token} after {self.highest[name]}"
            self.held[name] = self.highest[name] = got.token
        else:
            stub.Release(session_id=self.session, name=name, token=key, timeout=5)
            self.held.pop(name, None)
        self.acknowledged += 1
        self.unsettled = None

    def next(self):
        if self.held and (len(self.held) > HELD_MAX // CLIENTS or self.rng.random() < 0.4):
            name = self.rng.choice(list(self.held))
            return "release", name, self.held[name]
        self.counter += 1
        name = f"c{self.number}/{self.counter % 1000}"
        if name in self.held:
            return "release", name, self.held[name]
        return "acquire", name, self.counter

    def run(self, stopping):
        """Until the power goes: any error leaves the call unsettled."""
        i = 1 + self.number % len(self.bed.nodes)
        while not stopping.is_set():
            self.unsettled = self.next()
            try:
                self.call(i, self.unsettled)
            except grpc.RpcError as error:
                assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED), error
                return

    def settle(self):
        """Asks again, with the same ids: done before or now, but once."""
        end = time.monotonic() + 60
        while self.unsettled is not None:
            try:
                self.call(self.rng.randrange(1, len(self.bed.nodes) + 1), self.unsettled)
            except grpc.RpcError as error:
                assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED), error
                assert time.monotonic() < end, "no call gets through"
                time.sleep(0.02)


def patiently(call):
    """The call's result; a channel that saw its node die does not believe at once that it is back."""
    end = time.monotonic() + 60
    while True:
        try:
            return call()
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.UNAVAILABLE or time.monotonic() > end:
                raise
            time.sleep(0.05)


def listed(bed, i, prefix):
    """{name: token} of all that is held under the prefix."""
    found, page = {}, ""
    while True:
        answer = patiently(lambda: bed.lock(i).List(prefix=prefix, page_size=1000, page_token=page, timeout=30))
        found.update({item.name: item.token for item in answer.items})
        page = answer.next_page_token
        if not page:
            return found


class PowerCuts(unittest.TestCase):
    def start_all(self, bed, pool):
        for started in [pool.submit(bed.start, i) for i in bed.nodes]:
            started.result()

    def kill_all(self, bed, rng):
        order = list(bed.nodes)
        rng.shuffle(order)
        for i in order:
            bed.nodes[i].process.kill()
            time.sleep(rng.choice((0, 0, 0.001, 0.005, 0.02)))
        for i in order:
            bed.nodes[i].process.wait()

    def cut_while_starting(self, bed, rng):
        """They are in the middle of reading, cutting, syncing."""
        for i in bed.nodes:
            bed.spawn(i)
        time.sleep(rng.random() * 0.15)
        self.kill_all(bed, rng)
        for i in bed.nodes:
            bed.nodes[i].process.stdout.close()

    def round(self, bed, rng, clients, pool):
        stopping = threading.Event()
        running = [pool.submit(c.run, stopping) for c in clients]
        time.sleep(rng.choice((0.02, 0.1, 0.3, 0.6)) * rng.random() + 0.01)
        self.kill_all(bed, rng)
        stopping.set()
        for client in running:
            client.result()
        if rng.random() < 0.25:
            self.cut_while_starting(bed, rng)
        self.start_all(bed, pool)
        bed.leader()
        told = listed(bed, rng.choice(list(bed.nodes)), "c")
        for c in clients:
            for name, token in c.held.items():
                if c.unsettled is None or c.unsettled[1] != name:
                    self.assertEqual(told.get(name), token, f"{name} was acknowledged")
            c.settle()
        expected = {name: token for c in clients for name, token in c.held.items()}
        self.assertEqual(listed(bed, rng.choice(list(bed.nodes)), "c"), expected)
        bed.converged()

    def test_nothing_acknowledged_is_lost(self):
        print(f"seed {SEED}, {ROUNDS} rounds", flush=True)
        rng, began = random.Random(SEED), now()
        with Bed(options=["--snapshot-every", "200", "--log-level", "warn"]) as bed, ThreadPoolExecutor(16) as pool:
            clients = [Client(bed, k, random.Random(rng.random())) for k in range(CLIENTS)]
            for k in range(ROUNDS):
                try:
                    self.round(bed, rng, clients, pool)
                except BaseException:
                    print(f"round {k + 1} of seed {SEED}; the nodes' directories: {bed.keep()}", flush=True)
                    raise
                if (k + 1) % 50 == 0:
                    print(f"{k + 1} rounds, {sum(c.acknowledged for c in clients)} acknowledged, "
                          f"{now() - began:.0f} s", flush=True)
            print(f"{ROUNDS} times all five killed, {sum(c.acknowledged for c in clients)} calls acknowledged, none lost, "
                  f"{now() - began:.0f} s")


if __name__ == "__main__":
    unittest.main(verbosity=2)
