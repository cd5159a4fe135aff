"""A stranger's client, grpcio with generated stubs, against the lock service.
Usage: lock_client.py SOLO PROTO_DIR STUB_DIR"""
import atexit
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import grpc
from grpc_tools import protoc

SOLO, PROTO = sys.argv[1:3]
os.makedirs(sys.argv[3], exist_ok=True)
STUBS = tempfile.mkdtemp(dir=sys.argv[3])  # two runs at once are two folders
atexit.register(shutil.rmtree, STUBS)


def generate():
    """Debian's grpc_tools do not know "optional" in proto3: they are given what it stands for, as proto/generate
    does."""
    os.makedirs(f"{STUBS}/in/fencelock/v1", exist_ok=True)
    for name in ("lock", "admin"):
        with open(f"{PROTO}/fencelock/v1/{name}.proto") as source:
            text = re.sub(r"optional (\w+) (\w+) = (\d+);", r"oneof has_\2 { \1 \2 = \3; }", source.read())
        with open(f"{STUBS}/in/fencelock/v1/{name}.proto", "w") as target:
            target.write(text)
    if protoc.main(["protoc", f"-I{STUBS}/in", f"--python_out={STUBS}", f"--grpc_python_out={STUBS}",
                    "fencelock/v1/lock.proto", "fencelock/v1/admin.proto"]) != 0:
        sys.exit("the stubs cannot be generated")


generate()
sys.path.insert(0, STUBS)

from fencelock.v1 import admin_pb2, admin_pb2_grpc, lock_pb2, lock_pb2_grpc  # noqa: E402

Code = grpc.StatusCode
failures = 0


def check(what, ok, detail=""):
    global failures
    if not ok:
        failures += 1
    print(("ok      " if ok else "FAILED  ") + what + (f": {detail}" if not ok else ""), flush=True)


def check_error(what, call, code, reason, field=None):
    try:
        got = call()
        check(what, False, f"no error but {got}")
    except grpc.RpcError as error:
        trailers = dict(error.trailing_metadata() or ())
        check(what, error.code() == code and trailers.get("fencelock-reason") == reason
              and (field is None or trailers.get("fencelock-field") == field),
              (error.code(), error.details(), trailers))


class Stream:
    """OpenSession: what is sent, and what is heard, each with a limit of ten seconds."""

    def __init__(self, locks, first):
        self.out = queue.Queue()
        self.out.put(first)
        self.heard = queue.Queue()
        self.call = locks.OpenSession(iter(self.out.get, None))
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        try:
            for message in self.call:
                self.heard.put(message)
            self.heard.put(None)
        except grpc.RpcError as error:
            self.heard.put(error)

    def say(self, **message):
        self.out.put(lock_pb2.OpenSessionRequest(**message))

    def hear(self, kind):
        message = self.heard.get(timeout=10)
        check(f"the stream hears {kind}", getattr(message, "WhichOneof", lambda _: "an end")("message") == kind,
              message)
        return getattr(message, kind)


def open_session(**options):
    return lock_pb2.OpenSessionRequest(
        open=lock_pb2.OpenSessionRequest.Open(options=lock_pb2.SessionOptions(**options)))


def new_session(locks, client):
    return locks.CreateSession(lock_pb2.CreateSessionRequest(
        options=lock_pb2.SessionOptions(client=client)), timeout=10).session_id


def acquire(session, name="invoice/1", **more):
    return lock_pb2.AcquireRequest(session_id=session, name=name, **more)


def test_unary(locks):
    a, b = new_session(locks, "a"), new_session(locks, "b")
    first = locks.Acquire(acquire(a, request_id=1), timeout=10)
    check("a grant", first.granted and first.token > 0 and first.lease_ms == 10000, first)
    again = locks.Acquire(acquire(a, request_id=1), timeout=10)
    check("the repeated request has the same grant", again.token == first.token, again)
    miss = locks.Acquire(acquire(b), timeout=10)
    check("a miss names the holder", not miss.granted and miss.holder.client == "a"
          and miss.cause == lock_pb2.TIMED_OUT, miss)
    wait = locks.Acquire.future(acquire(b, wait_ms=60000, request_id=5), timeout=30)
    while locks.Describe(lock_pb2.DescribeRequest(name="invoice/1"), timeout=10).waiter_count == 0:
        pass
    locks.Release(lock_pb2.ReleaseRequest(session_id=a, name="invoice/1", token=first.token), timeout=10)
    second = wait.result(timeout=10)
    check("the waiter gets a higher token", second.granted and second.token > first.token, second)
    locks.KeepAlive(lock_pb2.KeepAliveRequest(session_id=a), timeout=10)
    timed_out = locks.Acquire(acquire(a, wait_ms=20), timeout=10)
    check("a wait ends in time", not timed_out.granted and timed_out.cause == lock_pb2.TIMED_OUT, timed_out)
    page = locks.List(lock_pb2.ListRequest(prefix="invoice/"), timeout=10)
    check("a list", [item.name for item in page.items] == ["invoice/1"], page)
    locks.CloseSession(lock_pb2.CloseSessionRequest(session_id=b), timeout=10)
    check("a closed session holds nothing",
          not locks.Describe(lock_pb2.DescribeRequest(name="invoice/1"), timeout=10).held)
    locks.CloseSession(lock_pb2.CloseSessionRequest(session_id=a), timeout=10)


def test_errors(locks):
    a = new_session(locks, "a")
    check_error("an empty name", lambda: locks.Acquire(acquire(a, name=""), timeout=10),
                Code.INVALID_ARGUMENT, "BAD_ARGUMENT", "name")
    check_error("a name with a zero byte", lambda: locks.Acquire(acquire(a, name="a\0b"), timeout=10),
                Code.INVALID_ARGUMENT, "BAD_ARGUMENT", "name")
    check_error("a long name", lambda: locks.Acquire(acquire(a, name="x" * 513), timeout=10),
                Code.INVALID_ARGUMENT, "BAD_ARGUMENT", "name")
    check_error("a TTL of zero", lambda: locks.CreateSession(lock_pb2.CreateSessionRequest(
        options=lock_pb2.SessionOptions(ttl_ms=0)), timeout=10),
        Code.INVALID_ARGUMENT, "BAD_ARGUMENT", "ttl_ms")
    check_error("an unknown session", lambda: locks.Acquire(acquire("s_nobody"), timeout=10),
                Code.NOT_FOUND, "SESSION_NOT_FOUND")
    grant = locks.Acquire(acquire(a), timeout=10)
    check_error("a stale token", lambda: locks.Release(lock_pb2.ReleaseRequest(
        session_id=a, name="invoice/1", token=grant.token + 1), timeout=10),
        Code.FAILED_PRECONDITION, "STALE_TOKEN")
    check_error("another mode", lambda: locks.Acquire(acquire(a, mode=lock_pb2.SHARED), timeout=10),
                Code.FAILED_PRECONDITION, "MODE_CONFLICT")
    check_error("the fast tier", lambda: locks.Acquire(acquire(a, tier=lock_pb2.FAST), timeout=10),
                Code.UNIMPLEMENTED, "NO_FAST_TIER")
    locks.CloseSession(lock_pb2.CloseSessionRequest(session_id=a), timeout=10)


def test_abandoned_waits(locks):
    a, b = new_session(locks, "a"), new_session(locks, "b")
    locks.Acquire(acquire(a), timeout=10)
    cancelled = locks.Acquire.future(acquire(b, wait_ms=60000, request_id=7))
    expired = locks.Acquire.future(acquire(b, wait_ms=60000, request_id=8), timeout=0.3)
    while locks.Describe(lock_pb2.DescribeRequest(name="invoice/1"), timeout=10).waiter_count < 2:
        pass
    cancelled.cancel()
    check("a deadline of the call", expired.exception(timeout=10).code() == Code.DEADLINE_EXCEEDED)
    for _ in range(2000):
        if locks.Describe(lock_pb2.DescribeRequest(name="invoice/1"), timeout=10).waiter_count == 0:
            break
    check("given up waits leave the queue",
          locks.Describe(lock_pb2.DescribeRequest(name="invoice/1"), timeout=10).waiter_count == 0)
    for session in (a, b):
        locks.CloseSession(lock_pb2.CloseSessionRequest(session_id=session), timeout=10)


def test_stream(locks, admin, solo):
    stream = Stream(locks, open_session(client="streamer"))
    stream.say(acquire=acquire("", request_id=1))  # not waiting for `opened`
    session = stream.hear("opened").session_id
    grant = stream.hear("acquired")
    check("a pipelined grant", grant.request_id == 1 and grant.response.granted, grant)
    stream.say(keep_alive=lock_pb2.OpenSessionRequest.Heartbeat(seq=1))
    check("an acknowledgement", stream.hear("keep_alive_ack").seq == 1)
    solo.send_signal(signal.SIGUSR1)
    stream.say(keep_alive=lock_pb2.OpenSessionRequest.Heartbeat(seq=2))
    solo.send_signal(signal.SIGUSR2)
    heard = {message.WhichOneof("message"): message for message in (stream.heard.get(timeout=10) for _ in range(2))}
    check("the stream survives its leader", set(heard) == {"keep_alive_ack", "opened"}
          and heard["opened"].opened.holds[0].token == grant.response.token, heard)
    admin.ForceRelease(admin_pb2.ForceReleaseRequest(
        name="invoice/1", token=grant.response.token, by="ops", reason="stuck"), timeout=10)
    lost = stream.hear("lost")
    check("a forced loss names who and why", lost.by == "ops" and lost.reason == "stuck"
          and lost.cause == lock_pb2.FORCE_RELEASED, lost)
    newer = Stream(locks, lock_pb2.OpenSessionRequest(
        resume=lock_pb2.OpenSessionRequest.Resume(session_id=session)))
    check("a resume keeps the session", newer.hear("opened").session_id == session)
    replaced = stream.heard.get(timeout=10)
    check("the older stream is replaced", isinstance(replaced, grpc.RpcError)
          and replaced.code() == Code.ABORTED, replaced)
    newer.say(close=lock_pb2.OpenSessionRequest.Close())
    check("a close ends the stream well", newer.heard.get(timeout=10) is None)


def test_watch_and_admin(locks, admin):
    a = new_session(locks, "a")
    first = locks.Acquire(acquire(a, name="watched/1"), timeout=10)
    events = locks.Watch(lock_pb2.WatchRequest(name="watched/", is_prefix=True), timeout=30)
    check("a watch begins with who is there", next(events).token == first.token)
    check("and says when that is all", next(events).kind == lock_pb2.WatchResponse.CAUGHT_UP)
    locks.Release(lock_pb2.ReleaseRequest(session_id=a, name="watched/1", token=first.token), timeout=10)
    ended = next(events)
    check("a watch tells an end", ended.kind == lock_pb2.WatchResponse.ENDED
          and ended.cause == lock_pb2.RELEASED, ended)
    events.cancel()
    status = admin.Status(admin_pb2.StatusRequest(all_nodes=True), timeout=10)
    check("status", len(status.nodes) == 1 and status.nodes[0].error == "", status)
    sessions = admin.ListSessions(admin_pb2.ListSessionsRequest(), timeout=10).sessions
    check("sessions", a in [s.session_id for s in sessions], sessions)
    admin.EndSession(admin_pb2.EndSessionRequest(session_id=a, by="ops", reason="test"), timeout=10)
    check_error("an ended session", lambda: locks.KeepAlive(
        lock_pb2.KeepAliveRequest(session_id=a), timeout=10), Code.NOT_FOUND, "SESSION_NOT_FOUND")


def wait_for_health(channel, wanted):
    """A signal and a call may overtake each other."""
    health = channel.unary_unary("/grpc.health.v1.Health/Check", lambda b: b, lambda b: b)
    while health(b"", timeout=10) != wanted:
        time.sleep(0.01)


def test_no_leader(channel, locks, solo):
    a = new_session(locks, "a")
    solo.send_signal(signal.SIGUSR1)
    wait_for_health(channel, b"\x08\x02")  # NOT_SERVING
    check_error("no leader", lambda: locks.Acquire(acquire(a, name="later"), timeout=20),
                Code.UNAVAILABLE, "NO_LEADER")
    solo.send_signal(signal.SIGUSR2)
    check("and then there is one", locks.Acquire(acquire(a, name="later"), timeout=20).granted)


def test_eager_pings(port):
    """C23: a client that pings twenty times a second is told so, and its session is there when it comes back."""
    options = [("grpc.keepalive_time_ms", 50), ("grpc.keepalive_permit_without_calls", 1),
               ("grpc.http2.max_pings_without_data", 0), ("grpc.http2.min_ping_interval_without_data_ms", 50)]
    with grpc.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        locks = lock_pb2_grpc.LockServiceStub(channel)
        stream = Stream(locks, open_session(client="eager"))
        session = stream.hear("opened").session_id
        end = stream.heard.get(timeout=20)
        check("eager pings end the connection", isinstance(end, grpc.RpcError) and end.code() == Code.UNAVAILABLE, end)
        again = Stream(locks, lock_pb2.OpenSessionRequest(
            resume=lock_pb2.OpenSessionRequest.Resume(session_id=session)))
        check("and the session is still there", again.hear("opened").session_id == session)


def main():
    solo = subprocess.Popen([SOLO], stdout=subprocess.PIPE, text=True)
    try:
        port = int(solo.stdout.readline())
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            locks = lock_pb2_grpc.LockServiceStub(channel)
            admin = admin_pb2_grpc.AdminServiceStub(channel)
            test_unary(locks)
            test_errors(locks)
            test_abandoned_waits(locks)
            test_stream(locks, admin, solo)
            test_watch_and_admin(locks, admin)
            test_eager_pings(port)
            test_no_leader(channel, locks, solo)
            last = Stream(locks, open_session(client="last"))
            last.hear("opened")
            solo.send_signal(signal.SIGTERM)
            end = last.heard.get(timeout=10)
            check("a drain ends the stream with a reason", isinstance(end, grpc.RpcError)
                  and dict(end.trailing_metadata()).get("fencelock-reason") == "SHUTTING_DOWN", end)
        check("the drain ends", solo.wait(timeout=20) == 0)
    finally:
        solo.kill()
    sys.exit(1 if failures else 0)


main()
