"""A stranger's client, grpcio, against our server: unary and streaming, deadlines, cancel, metadata, windows,
many waiting calls, health, reflection, and a drain while calls wait. Usage: grpcio_echo.py ECHO_SERVER"""
import signal
import subprocess
import sys
import threading
import time

import grpc

failures = 0


def check(what, ok, detail=""):
    global failures
    if not ok:
        failures += 1
    print(("ok      " if ok else "FAILED  ") + what + (f": {detail}" if not ok else ""), flush=True)


def start():
    server = subprocess.Popen([sys.argv[1]], stdout=subprocess.PIPE, text=True)
    return server, int(server.stdout.readline())


def unary(channel):
    return channel.unary_unary("/test.Echo/Unary", lambda b: b, lambda b: b)


def stream(channel):
    return channel.stream_stream("/test.Echo/Stream", lambda b: b, lambda b: b)


def code_of(call):
    try:
        call()
        return grpc.StatusCode.OK
    except grpc.RpcError as error:
        return error.code()


def test_unary(channel):
    echo = unary(channel)
    check("unary echo", echo(b"hello") == b"hello")
    check("unary empty", echo(b"") == b"")
    check("unary 200 KB", echo(b"x" * 200000) == b"x" * 200000)
    check("unary too big", code_of(lambda: echo(b"x" * 300000)) == grpc.StatusCode.RESOURCE_EXHAUSTED)
    check("unary metadata", echo(b"m", metadata=[("x-echo", "value")]) == b"value")
    try:
        echo(b"e")
        check("unary error", False)
    except grpc.RpcError as error:
        trailers = dict(error.trailing_metadata())
        check("unary error code", error.code() == grpc.StatusCode.FAILED_PRECONDITION)
        check("unary error message", error.details() == " 100% bl\u00f6d ", repr(error.details()))
        check("unary error trailers", trailers.get("fencelock-reason") == "STALE_TOKEN"
              and trailers.get("fencelock-field") == "token"
              and trailers.get("fencelock-retry-after-ms") == "1500", trailers)
    check("unary deadline", code_of(lambda: echo(b"w", timeout=0.2)) == grpc.StatusCode.DEADLINE_EXCEEDED)
    call = echo.future(b"w")
    time.sleep(0.05)
    call.cancel()
    check("unary cancel", call.code() == grpc.StatusCode.CANCELLED)
    check("unary after cancel", echo(b"still") == b"still")
    missing = channel.unary_unary("/test.Echo/Missing", lambda b: b, lambda b: b)
    check("unknown method", code_of(lambda: missing(b"")) == grpc.StatusCode.UNIMPLEMENTED)
    check("compressed", code_of(lambda: echo(b"x" * 1000, compression=grpc.Compression.Gzip))
          == grpc.StatusCode.UNIMPLEMENTED)
    check("metadata over the limit", code_of(lambda: echo(b"a", metadata=[("x-big", "v" * 20000)]))
          == grpc.StatusCode.RESOURCE_EXHAUSTED)


def test_stream(channel):
    messages = [b"%d" % i for i in range(2000)]
    check("stream 2000 in order", list(stream(channel)(iter(messages))) == messages)
    check("stream empty", list(stream(channel)(iter([]))) == [])
    check("stream big replies", sum(map(len, stream(channel)(iter([b"b"] * 50)))) == 5000000)
    check("stream error", code_of(lambda: list(stream(channel)(iter([b"a", b"e"]))))
          == grpc.StatusCode.FAILED_PRECONDITION)
    check("stream deadline", code_of(lambda: list(stream(channel)(iter([b"w"] + [b"w"]), timeout=0.2)))
          in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.OK))
    stop = threading.Event()

    def endless():
        yield b"one"
        stop.wait(20)

    call = stream(channel)(endless())
    check("stream ping-pong", next(call) == b"one")
    call.cancel()
    stop.set()
    check("stream cancel", call.code() == grpc.StatusCode.CANCELLED)


def test_windows(port):
    for window in (1, 7, 65535):
        options = [("grpc.http2.lookahead_bytes", window), ("grpc.http2.bdp_probe", 0)]
        with grpc.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
            check(f"window {window}", unary(channel)(b"b") == b"\0" * 100000)


def test_waiters(port):
    count = 10000
    with grpc.insecure_channel(f"localhost:{port}") as channel:
        echo = unary(channel)
        calls = [echo.future(b"w") for _ in range(count)]
        check("a call beside 10000 waiting ones", echo(b"xbeside", timeout=20) == b"xbeside")
        for call in calls:
            call.cancel()
        check("10000 cancelled", all(call.code() == grpc.StatusCode.CANCELLED for call in calls))
        check("a call after them", echo(b"after", timeout=20) == b"after")


def test_health(channel):
    check_call = channel.unary_unary("/grpc.health.v1.Health/Check", lambda b: b, lambda b: b)
    check("health of the server", check_call(b"") == b"\x08\x01")
    check("health of a stranger", code_of(lambda: check_call(b"\x0a\x01x")) == grpc.StatusCode.NOT_FOUND)
    watch = channel.unary_stream("/grpc.health.v1.Health/Watch", lambda b: b, lambda b: b)(b"\x0a\x01x")
    check("health watch of a stranger", next(watch) == b"\x08\x03")
    watch.cancel()


def test_reflection(channel):
    for version in ("v1", "v1alpha"):
        path = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
        call = channel.stream_stream(path, lambda b: b, lambda b: b)
        reply = list(call(iter([b"\x3a\x00"])))
        check(f"reflection {version} lists", len(reply) == 1 and b"test.Echo" in reply[0]
              and b"grpc.health.v1.Health" in reply[0], reply)


def test_drain(server, port):
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        echo = unary(channel)
        calls = [echo.future(b"w", timeout=2) for _ in range(50)]
        check("a call before the drain", echo(b"x") == b"x")
        server.send_signal(signal.SIGTERM)
        codes = {call.code() for call in calls}
        check("waiting calls end by themselves in a drain", codes == {grpc.StatusCode.DEADLINE_EXCEEDED}, codes)
    check("the server ends", server.wait(20) == 0)


def main():
    server, port = start()
    try:
        for address in (f"127.0.0.1:{port}", f"[::1]:{port}", f"localhost:{port}"):
            with grpc.insecure_channel(address) as channel:
                check(f"reach {address}", unary(channel)(b"a", timeout=10) == b"a")
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            test_unary(channel)
            test_stream(channel)
            test_health(channel)
            test_reflection(channel)
        test_windows(port)
        test_waiters(port)
        test_drain(server, port)
    finally:
        server.kill()
    print(f"{failures} failures")
    return 1 if failures else 0


sys.exit(main())
