"""A lock service of one process in plain Python, for tests of the client and the tool that must make the
server misbehave: go silent, forget sessions, refuse, lose answers. Generated messages, no generated stubs.

    fake = FakeLock(); fake.endpoint            # "127.0.0.1:PORT"
    fake.is_silent = True                       # heartbeats and requests are not answered
    fake.lose(name, by, reason); fake.end_sessions(); fake.drop_streams()
"""
import concurrent.futures
import importlib
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time

import grpc

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def load_messages():
    """The messages of lock.proto and admin.proto, generated into a folder of their own."""
    out = tempfile.mkdtemp(prefix="fencelock-proto-")
    protos = [f"fencelock/v1/{name}.proto" for name in ("lock", "admin")]
    subprocess.run(["protoc", f"--proto_path={ROOT}/proto", f"--python_out={out}"] + protos, check=True)
    sys.path.insert(0, out)
    messages = [importlib.import_module(f"fencelock.v1.{name}_pb2") for name in ("lock", "admin")]
    sys.path.remove(out)
    subprocess.run(["rm", "-r", out], check=True)
    return messages


lock, admin = load_messages()


class Hold:
    def __init__(self, session, request, token, wait_until):
        self.session, self.request_id, self.name, self.mode = session, request.request_id, request.name, request.mode
        self.limit, self.token, self.wait_until, self.since = request.limit, token, wait_until, time.time()


class Session:
    def __init__(self, id, options):
        self.id, self.options, self.heard, self.stream = id, options, time.time(), None


class FakeLock:
    def __init__(self, port=0):
        self.mutex = threading.RLock()
        self.sessions, self.holds, self.waits = {}, {}, {}  # id; name -> [Hold]; name -> [Hold]
        self.token = 0
        self.is_silent = self.drops_answers = self.refuses = False
        self.heartbeats = self.opened = self.resumed = 0
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(64))
        self.server.add_generic_rpc_handlers((self._service("LockService", lock, {
            "OpenSession": (lock.OpenSessionRequest, self._open_session),
            "Describe": (lock.DescribeRequest, self._describe),
            "Release": (lock.ReleaseRequest, self._release),
            "CloseSession": (lock.CloseSessionRequest, self._close_session),
        }), self._service("AdminService", admin, {
            "ForceRelease": (admin.ForceReleaseRequest, self._force_release),
        })))
        self.port = self.server.add_insecure_port(f"127.0.0.1:{port}")
        self.endpoint = f"127.0.0.1:{self.port}"
        self.server.start()
        threading.Thread(target=self._expire, daemon=True).start()

    def _service(self, name, module, methods):
        def handler(request_type, method):
            make = grpc.stream_stream_rpc_method_handler if method == self._open_session else grpc.unary_unary_rpc_method_handler
            return make(method, request_type.FromString, lambda response: response.SerializeToString())
        return grpc.method_handlers_generic_handler(
            f"fencelock.v1.{name}", {key: handler(*value) for key, value in methods.items()})

    def stop(self):
        self.server.stop(0)

    # What tests do to it.

    def end_sessions(self, cause=lock.SESSION_EXPIRED, tell=True):
        with self.mutex:
            for session in list(self.sessions.values()):
                self._end(session, cause, tell)

    def lose(self, name, by, reason):
        with self.mutex:
            for hold in self.holds.pop(name, []):
                self._say(hold.session, lost=lock.OpenSessionResponse.Lost(
                    name=name, token=hold.token, request_id=hold.request_id, cause=lock.FORCE_RELEASED,
                    by=by, reason=reason))
            self._grant(name)

    def drop_streams(self):
        with self.mutex:
            for session in self.sessions.values():
                if session.stream:
                    session.stream.put(None)

    def holders(self, name):
        with self.mutex:
            return [hold.token for hold in self.holds.get(name, [])]

    def waiters(self, name):
        with self.mutex:
            return len(self.waits.get(name, []))

    # The rules, in the plainest form.

    def _say(self, session, **message):
        if session.stream and not self.is_silent:
            session.stream.put(lock.OpenSessionResponse(**message))

    def _end(self, session, cause, tell=True):
        self.sessions.pop(session.id, None)
        for table in (self.holds, self.waits):
            for name in list(table):
                table[name] = [hold for hold in table[name] if hold.session is not session]
                self._grant(name)
        if tell:
            self._say(session, lost=lock.OpenSessionResponse.Lost(cause=cause))
        if session.stream:
            session.stream.put(None)

    def _expire(self):
        while True:
            time.sleep(0.02)
            with self.mutex:
                now = time.time()
                for session in list(self.sessions.values()):
                    if now > session.heard + session.options.ttl_ms / 1000:
                        self._end(session, lock.SESSION_EXPIRED)
                for name, waits in list(self.waits.items()):
                    for wait in [wait for wait in waits if now >= wait.wait_until]:
                        waits.remove(wait)
                        self._refuse(wait)

    def _refuse(self, wait, cause=lock.TIMED_OUT):
        response = lock.AcquireResponse(granted=False, cause=cause, request_id=wait.request_id)
        for hold in self.holds.get(wait.name, [])[:1]:
            response.holder.client, response.holder.token = hold.session.options.client, hold.token
            response.holder.held_for_ms = int((time.time() - hold.since) * 1000)
        self._answer(wait, response)

    def _answer(self, hold, response):
        if not self.drops_answers:
            self._say(hold.session, acquired=lock.OpenSessionResponse.Acquired(
                request_id=hold.request_id, response=response))

    def _fits(self, name, hold):
        holds = self.holds.get(name, [])
        if hold.mode == lock.SHARED:
            return all(other.mode == lock.SHARED for other in holds)
        if hold.mode == lock.COUNTED:
            return all(other.mode == lock.COUNTED for other in holds) and len(holds) < hold.limit
        return not holds

    def _grant(self, name):
        waits = self.waits.setdefault(name, [])
        while waits and self._fits(name, waits[0]):
            hold = waits.pop(0)
            self.token += 1
            hold.token, hold.since = self.token, time.time()
            self.holds.setdefault(name, []).append(hold)
            self._answer(hold, lock.AcquireResponse(granted=True, token=hold.token, request_id=hold.request_id))

    def _acquire(self, session, request):
        for hold in self.holds.get(request.name, []) + self.waits.get(request.name, []):
            if hold.session is session and hold.request_id == request.request_id:
                if hold.token:
                    self._answer(hold, lock.AcquireResponse(granted=True, token=hold.token, request_id=hold.request_id))
                return
        wait = Hold(session, request, 0, time.time() + request.wait_ms / 1000)
        self.waits.setdefault(request.name, []).append(wait)
        self._grant(request.name)
        if not wait.token and request.wait_ms == 0:
            self.waits[request.name].remove(wait)
            self._refuse(wait)

    def _end_hold(self, name, token):
        """Whether the token was the name's."""
        holds = self.holds.get(name, [])
        left = [hold for hold in holds if hold.token != token]
        self.holds[name] = left
        self._grant(name)
        return len(left) < len(holds)

    def _handle(self, session, message):
        kind = message.WhichOneof("message")
        with self.mutex:
            if kind == "keep_alive":
                self.heartbeats += 1
                if session.id in self.sessions and not self.is_silent:
                    session.heard = time.time()
                    self._say(session, keep_alive_ack=lock.OpenSessionResponse.KeepAliveAck(
                        seq=message.keep_alive.seq, ttl_ms=session.options.ttl_ms))
            elif kind == "acquire" and self.refuses:
                self._say(session, error=lock.OpenSessionResponse.Error(
                    request_id=message.acquire.request_id, code=8, reason="RATE_LIMITED", message="too fast",
                    retry_after_ms=70))
            elif kind == "acquire" and not self.is_silent:
                self._acquire(session, message.acquire)
            elif kind == "release" and not self.is_silent:
                release = message.release
                if self._end_hold(release.name, release.token):
                    self._say(session, released=lock.OpenSessionResponse.Released(request_id=release.request_id))
                else:
                    self._say(session, error=lock.OpenSessionResponse.Error(
                        request_id=release.request_id, code=9, reason="STALE_TOKEN", message="not yours"))
            elif kind == "cancel":
                for waits in self.waits.values():
                    for wait in [w for w in waits if w.session is session and w.request_id == message.cancel.request_id]:
                        waits.remove(wait)
                        self._refuse(wait, lock.CANCELLED)
            elif kind == "close":
                self._end(session, lock.SESSION_CLOSED, tell=False)

    def _first(self, message, context):
        if message.WhichOneof("message") == "open":
            self.opened += 1
            session = Session(f"s_{os.urandom(16).hex()}", message.open.options)
            self.sessions[session.id] = session
            return session
        self.resumed += 1
        session = self.sessions.get(message.resume.session_id)
        if session is None:
            context.set_trailing_metadata((("fencelock-reason", "SESSION_NOT_FOUND"),))
            context.abort(grpc.StatusCode.NOT_FOUND, "the session is gone")
        if session.stream:
            session.stream.put(None)
        return session

    def _known(self, session):
        opened = lock.OpenSessionResponse.Opened(session_id=session.id, ttl_ms=session.options.ttl_ms)
        for name, holds in self.holds.items():
            for hold in holds:
                if hold.session is session:
                    opened.holds.add(name=name, token=hold.token, request_id=hold.request_id)
        for name, waits in self.waits.items():
            for wait in waits:
                if wait.session is session:
                    opened.waits.add(name=name, request_id=wait.request_id)
        return opened

    def _open_session(self, requests, context):
        while self.is_silent:
            time.sleep(0.02)
        stream = queue.Queue()
        with self.mutex:
            session = self._first(next(requests), context)
            session.stream = stream
            opened = self._known(session)

        def read():
            try:
                for message in requests:
                    self._handle(session, message)
            except grpc.RpcError:
                pass
            stream.put(None)

        threading.Thread(target=read, daemon=True).start()
        yield lock.OpenSessionResponse(opened=opened)
        while (message := stream.get()) is not None:
            yield message

    def _describe(self, request, context):
        with self.mutex:
            response = lock.DescribeResponse(name=request.name, waiter_count=len(self.waits.get(request.name, [])))
            for hold in self.holds.get(request.name, []):
                response.held = True
                response.holders.add(client=hold.session.options.client, token=hold.token, session_id=hold.session.id)
            return response

    def _release(self, request, context):
        with self.mutex:
            if not self._end_hold(request.name, request.token):
                context.set_trailing_metadata((("fencelock-reason", "STALE_TOKEN"),))
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not yours")
            return lock.ReleaseResponse()

    def _close_session(self, request, context):
        with self.mutex:
            if request.session_id in self.sessions:
                self._end(self.sessions[request.session_id], lock.SESSION_CLOSED)
        return lock.CloseSessionResponse()

    def _force_release(self, request, context):
        if self.holders(request.name) != [request.token]:
            context.set_trailing_metadata((("fencelock-reason", "STALE_TOKEN"),))
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "another token holds it now")
        self.lose(request.name, request.by, request.reason)
        return admin.ForceReleaseResponse()
