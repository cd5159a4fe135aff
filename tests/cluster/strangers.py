"""Clients without our library, which write a history as `load` does (load.c), with the log's indices: grpcio and unary
calls, sessions kept by KeepAlive, requests repeated at the next endpoint with the same id, calls that are cancelled.

    strangers.py --endpoints LIST --clients N --ttl MS --names K --think MS --tag TEXT --others N

They also try the locks that each of the N clients of `load` (tags A to F) has for its own.

Ends what is under way when standard input ends, and says "# settled"."""
import argparse
import itertools
import random
import sys
import threading
import time

import grpc

from bed import Session, Stub, lock_pb2, now

MODES = {"exclusive": lock_pb2.EXCLUSIVE, "shared": lock_pb2.SHARED, "counted": lock_pb2.COUNTED}
PERMITS = 3
PATIENCE = 20  # seconds for a request that no endpoint answers


class Front:
    """What a Session asks of a bed: stubs by endpoint."""

    def __init__(self, endpoints):
        self.nodes = dict(enumerate(endpoints.split(",")))
        self.stubs = {i: Stub(endpoint) for i, endpoint in self.nodes.items()}

    def lock(self, i):
        return self.stubs[i]


class Client(threading.Thread):
    def __init__(self, run, number):
        super().__init__(daemon=True)
        self.run_of, self.name_of = run, f"load/{run.tag}s{number}"
        self.chance = random.Random(f"{run.tag}{number}")
        self.session = None

    def begin(self, text):
        op = f"{self.run_of.tag}s{next(self.run_of.ops)}"
        self.run_of.say(f"i {int(now() * 1e9)} {op} {self.name_of} {text}")
        return op

    def answered(self, op, text):
        self.run_of.say(f"r {int(now() * 1e9)} {op} {text}")

    def run(self):
        while not self.run_of.ending.wait(self.chance.uniform(0.5, 1.5) * self.run_of.think):
            try:
                if self.session is None or self.session.is_lost():
                    self.session = Session(self.run_of.front, ttl_ms=self.run_of.ttl_ms, client=self.name_of)
                self.work()
            except grpc.RpcError:
                pass  # no leader for long: what was asked is written down as unknown

    def work(self):
        number = self.chance.randrange(self.run_of.names)
        kind = {2: "m", 3: "n"}.get(number % 4, "x")
        name = f"{kind}/{number}"
        if self.chance.random() < 0.2:
            # Somebody else's, held as long as that client lives: granted only if its session has ended.
            kind, name = "x", f"own/{self.chance.choice('ABCDEF')}{self.chance.randrange(self.run_of.others)}"
        if self.chance.random() < 0.3:
            self.describe(name)
            return
        mode = {"x": "exclusive", "n": "counted", "m": self.chance.choice(["shared", "exclusive"])}[kind]
        wait_ms = 0 if name.startswith("own") else self.chance.choice([0, 3000])
        op = self.begin(f"acquire {name} {mode} {PERMITS if mode == 'counted' else 0} {wait_ms}")
        token = self.acquire(op, name, mode, wait_ms)
        if token:
            time.sleep(self.chance.uniform(0, self.chance.choice([0.06, 0.06, 0.06, 2])))
            self.release(op, name, token)

    def acquire(self, op, name, mode, wait_ms):
        """The token, or None when it is not known to be granted."""
        more = {"limit": PERMITS} if mode == "counted" else {}
        fields = dict(session_id=self.session.id, name=name, mode=MODES[mode], wait_ms=wait_ms,
                      request_id=self.chance.getrandbits(52) + 1, **more)
        if wait_ms and self.chance.random() < 0.1:
            self.cancel(op, fields)
            return None
        timeout = self.chance.choice([0.1, 0.3, 2]) + wait_ms / 1000 * self.chance.choice([0.1, 1])
        try:  # a call that is given up is repeated elsewhere, and its gateway cancels it
            got = self.session.retry(lambda stub: stub.Acquire(timeout=timeout, **fields), PATIENCE)
        except grpc.RpcError as error:
            self.answered(op, f"unknown {error.code().name}")
            return None
        if got.cause == lock_pb2.CANCELLED:
            self.answered(op, "fail CANCELLED")
            return None
        if not got.granted:
            self.answered(op, f"no {got.holder.token}")
            return None
        self.answered(op, f"ok {got.token} {got.log_index}")
        return got.token

    def cancel(self, op, fields):
        """Gives the call up; should it have been granted, the gateway gives it back."""
        call = self.session.bed.lock(self.chance.randrange(len(self.session.bed.nodes))).future("Acquire", 5, **fields)
        time.sleep(self.chance.uniform(0, 0.1))
        call.cancel()
        self.answered(op, "unknown CANCELLED")

    def release(self, grant, name, token):
        at = now()
        if not self.session.is_lost() and at < self.session.leases[-1][1]:
            self.run_of.say(f"v {int(at * 1e9)} {grant}")
        op = self.begin(f"release {name} {grant}")
        try:
            done = self.session.retry(lambda stub: stub.Release(session_id=self.session.id, name=name, token=token, timeout=2),
                                      PATIENCE)
            self.answered(op, f"ok {done.log_index}")
        except grpc.RpcError as error:
            self.answered(op, f"unknown {error.code().name}")
            self.run_of.say(f"l {int(now() * 1e9)} {grant} {error.code().name}")

    def describe(self, name):
        op = self.begin(f"describe {name}")
        try:
            shown = self.session.retry(lambda stub: stub.Describe(name=name, waiters_max=64, timeout=2), PATIENCE)
        except grpc.RpcError as error:
            self.answered(op, f"unknown {error.code().name}")
            return
        holders = ",".join(str(holder.token) for holder in shown.holders)
        waiters = ",".join(waiter.client for waiter in shown.waiters)
        self.answered(op, f"ok {shown.log_index} holders{'=' * bool(holders)}{holders} waiters{'=' * bool(waiters)}{waiters}")


class Run:
    def __init__(self, arguments):
        self.front = Front(arguments.endpoints)
        self.tag, self.ttl_ms, self.names = arguments.tag, arguments.ttl, arguments.names
        self.think, self.others = arguments.think / 1000, arguments.others
        self.ops = itertools.count(1)
        self.guard, self.ending = threading.Lock(), threading.Event()
        self.clients = [Client(self, i) for i in range(arguments.clients)]

    def say(self, text):
        with self.guard:
            print(text, flush=True)

    def run(self):
        for client in self.clients:
            client.start()
        self.say("# ready")
        sys.stdin.read()
        self.ending.set()
        for client in self.clients:
            client.join()
        self.say("# settled")


def main():
    parser = argparse.ArgumentParser()
    for name, kind in (("endpoints", str), ("clients", int), ("ttl", int), ("names", int), ("think", int), ("tag", str),
                       ("others", int)):
        parser.add_argument(f"--{name}", type=kind, required=True)
    Run(parser.parse_args()).run()


if __name__ == "__main__":
    main()
