"""Fencelock from Python with nothing but grpcio and generated stubs. Generate them once:

    python3 -m grpc_tools.protoc -Iproto --python_out=. --grpc_python_out=. proto/fencelock/v1/lock.proto

Then, with a cluster at 127.0.0.1:3362 (fencelock dev):  python3 examples/ten_lines.py
"""
import grpc
from fencelock.v1 import lock_pb2 as pb
from fencelock.v1 import lock_pb2_grpc

lock = lock_pb2_grpc.LockServiceStub(grpc.insecure_channel("127.0.0.1:3362"))
session = lock.CreateSession(pb.CreateSessionRequest(options=pb.SessionOptions(client="ten-lines"))).session_id
got = lock.Acquire(pb.AcquireRequest(session_id=session, name="payout/INV-55102", wait_ms=5000))
if got.granted:
    print("settle the invoice with token", got.token)  # within lease_ms; longer work calls KeepAlive
    lock.Release(pb.ReleaseRequest(session_id=session, name="payout/INV-55102", token=got.token))
else:
    print("held by", got.holder.client, "for", got.holder.held_for_ms, "ms")
lock.CloseSession(pb.CloseSessionRequest(session_id=session))
