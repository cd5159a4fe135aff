"""Fencelock from Python with nothing but grpcio and generated stubs. On Debian 12 (packages protobuf-compiler,
protobuf-compiler-grpc and python3-grpcio) generate them once, in the root of the repository:

    protoc -Iproto --python_out=. --grpc_python_out=. \\
        --plugin=protoc-gen-grpc_python=/usr/bin/grpc_python_plugin fencelock/v1/lock.proto

Elsewhere "python3 -m grpc_tools.protoc" of grpcio-tools does the same. Then, with a cluster (make run):

    PYTHONPATH=. /usr/bin/python3 examples/ten_lines.py [127.0.0.1:3362]
"""
import sys

import grpc
from fencelock.v1 import lock_pb2 as pb
from fencelock.v1 import lock_pb2_grpc

endpoint = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:3362"
lock = lock_pb2_grpc.LockServiceStub(grpc.insecure_channel(endpoint))
session = lock.CreateSession(pb.CreateSessionRequest(options=pb.SessionOptions(client="ten-lines"))).session_id
got = lock.Acquire(pb.AcquireRequest(session_id=session, name="payout/INV-55102", wait_ms=5000))
if got.granted:
    print("settle the invoice with token", got.token)  # within lease_ms; longer work calls KeepAlive
    lock.Release(pb.ReleaseRequest(session_id=session, name="payout/INV-55102", token=got.token))
else:
    print("held by", got.holder.client, "for", got.holder.held_for_ms, "ms")
lock.CloseSession(pb.CloseSessionRequest(session_id=session))
