"""A bed for faults: `fencelockd` processes of a test's own, by themselves or in network namespaces that netbox joins,
and clients on plain gRPC, whose beliefs about their locks are recorded and checked afterwards.

    with Bed() as bed:
        bed.kill(bed.leader())
        bed.lock(2).acquire("L")
"""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import grpc

from cluster import BIN, ROOT, TOOL, wait_for

STUBS = tempfile.mkdtemp(prefix="fl-stubs-")
subprocess.run(["protoc", f"--proto_path={ROOT}/proto", f"--python_out={STUBS}", "fencelock/v1/lock.proto",
                "fencelock/v1/admin.proto"], check=True, cwd=os.path.join(ROOT, "proto"))
sys.path.insert(0, STUBS)
from fencelock.v1 import admin_pb2, lock_pb2  # noqa: E402

shutil.rmtree(STUBS)
DAEMON = os.environ.get("FENCELOCK_DAEMON", os.path.join(BIN, "fencelockd"))
NETBOX = os.environ.get("FENCELOCK_NETBOX", os.path.join(ROOT, "build", "tests", "cluster", "netbox"))
RHO = 0.01  # clocks may run so much faster or slower


def now():
    """Seconds on a clock that all processes share and nobody sets."""
    return time.clock_gettime(time.CLOCK_MONOTONIC_RAW)


def can_part_networks():
    """Whether this machine lets us make network namespaces joined by TUN devices; says why not."""
    probe = subprocess.run(["unshare", "--net", "--time", "true"], capture_output=True, text=True)
    if os.getuid() == 0 and os.path.exists("/dev/net/tun") and probe.returncode == 0:
        return True
    print(f"network and time namespaces and /dev/net/tun are needed, as root {probe.stderr.strip()}")
    return False


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Stub:
    """Calls of LockService and AdminService by name: stub.Acquire(name="L", ...)."""

    def __init__(self, address, metadata=None):
        self.channel = grpc.insecure_channel(address, options=[("grpc.initial_reconnect_backoff_ms", 50),
                                                               ("grpc.max_reconnect_backoff_ms", 500)])

    def __getattr__(self, call):
        def invoke(timeout=10, **fields):
            return self.future(call, timeout, **fields).result()
        return invoke

    def future(self, call, timeout=10, **fields):
        service, messages = ("AdminService", admin_pb2) if hasattr(admin_pb2, call + "Request") else \
            ("LockService", lock_pb2)
        request = getattr(messages, call + "Request")(**fields)
        method = self.channel.unary_unary(f"/fencelock.v1.{service}/{call}",
                                          request_serializer=lambda m: m.SerializeToString(),
                                          response_deserializer=getattr(messages, call + "Response").FromString)
        return method.future(request, timeout=timeout)

    def create_session(self, ttl_ms=10000, client="test", **more):
        return self.CreateSession(options=lock_pb2.SessionOptions(client=client, ttl_ms=ttl_ms, **more)).session_id

    def close(self):
        self.channel.close()


def error_of(call):
    """(code, reason, field) of the call's failure, or (OK, None, None)."""
    try:
        call()
        return grpc.StatusCode.OK, None, None
    except grpc.RpcError as error:
        trailers = dict(error.trailing_metadata() or ())
        return error.code(), trailers.get("fencelock-reason"), trailers.get("fencelock-field")


class Node:
    def __init__(self, bed, node_id):
        self.bed, self.id = bed, node_id
        self.dir = os.path.join(bed.dir, str(node_id))
        self.process = None
        os.makedirs(self.dir)


class Bed:
    def __init__(self, nodes=5, netbox=False, client_hosts=1, options=()):
        # Short: netbox's socket lies in it.
        self.dir = tempfile.mkdtemp(prefix="fl-bed-")
        self.options = list(options)
        self.box = None
        self.is_kept = False
        self.programs = {}  # instead of fencelockd, by node
        self.prefix = f"fl{os.getpid()}"
        ids = range(1, nodes + 1)
        if netbox:
            self.start_netbox(nodes + client_hosts)
            self.hosts = {i: f"10.99.0.{i}" for i in ids}
            self.peer_ports, self.grpc_ports = {i: 3363 for i in ids}, {i: 3362 for i in ids}
        else:
            ports = free_ports(2 * nodes)
            self.hosts = {i: "127.0.0.1" for i in ids}
            self.peer_ports = {i: ports[2 * i - 2] for i in ids}
            self.grpc_ports = {i: ports[2 * i - 1] for i in ids}
        self.nodes = {i: Node(self, i) for i in ids}
        self.stubs = {}
        self.clock_offset = None  # a function: by so many seconds the next node's clocks are ahead (not the wall clock)

    def new_node(self):
        """A node that no cluster knows yet; its id."""
        i = max(self.nodes) + 1
        self.hosts[i] = "127.0.0.1"
        self.peer_ports[i], self.grpc_ports[i] = free_ports(2)
        self.nodes[i] = Node(self, i)
        return i

    # --- Life ---

    def __enter__(self):
        try:
            for i in self.nodes:
                self.start(i, "--bootstrap")
            self.leader()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for stub in self.stubs.values():
            stub.close()
        for i, node in self.nodes.items():
            if node.process is not None and node.process.poll() is None:
                node.process.send_signal(signal.SIGCONT)
                node.process.kill()
                node.process.wait()
            if sys.exc_info()[0] is not None or os.environ.get("FENCELOCK_TEST_LOGS"):
                print(f"--- node {i}\n" + "\n".join(self.log(i).splitlines()[-15:]), flush=True)
        if self.box is not None:
            self.box_socket.close()
            self.box.stdin.close()
            self.box.stdout.close()
            self.box.wait(30)
        if not self.is_kept:
            shutil.rmtree(self.dir, ignore_errors=True)

    def start_netbox(self, hosts):
        path = os.path.join(self.dir, "box")
        self.box = subprocess.Popen([NETBOX, "--prefix", self.prefix, "--hosts", str(hosts), "--socket", path],
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.box.stdout.readline().strip() != "ready":
            raise AssertionError("netbox did not come up")
        self.box_socket = socket.socket(socket.AF_UNIX)
        self.box_socket.connect(path)

    def net(self, command):
        self.box_socket.sendall(command.encode() + b"\n")
        answer = self.box_socket.recv(500).decode()
        assert answer.startswith("ok"), f"{command}: {answer}"
        return answer

    def cut(self, a, b):
        """Both ways."""
        self.net(f"cut {a} {b}")
        self.net(f"cut {b} {a}")

    def heal(self):
        self.net("heal * *")

    def host_command(self, host, command):
        return ["ip", "netns", "exec", f"{self.prefix}-{host}", *command] if self.box else command

    def spawn(self, i, *more):
        """Starts the process and does not wait for it."""
        node = self.nodes[i]
        command = [self.programs.get(i, DAEMON), "--node-id", str(i), "--dir", os.path.join(node.dir, "data"),
                   "--cluster", "bed", "--listen", f"{self.hosts[i]}:{self.grpc_ports[i]}",
                   "--peer-listen", f"{self.hosts[i]}:{self.peer_ports[i]}"]
        for j in self.nodes:
            command += ["--peer", f"{j}={self.hosts[j]}:{self.peer_ports[j]}"]
        if self.clock_offset is not None:
            ahead = str(self.clock_offset())
            command = ["unshare", "--time", "--monotonic", ahead, "--boottime", ahead, *command]
        with open(os.path.join(node.dir, "log"), "a") as log:
            node.process = subprocess.Popen(self.host_command(i, command + self.options + list(more)),
                                            stdout=subprocess.PIPE, stderr=log, text=True)

    def start(self, i, *more):
        node = self.nodes[i]
        self.spawn(i, *more)
        line = node.process.stdout.readline()
        node.process.stdout.close()  # it says no more
        if not line.startswith("ready"):
            node.process.wait(30)
            raise AssertionError(f"node {i} does not start: {self.log(i)[-500:]}")

    def keep(self):
        """Leaves the directories for a person to look at; where they are."""
        self.is_kept = True
        return self.dir

    def log(self, i):
        path = os.path.join(self.nodes[i].dir, "log")
        if not os.path.exists(path):
            return ""
        with open(path) as log:
            return log.read()

    def terminate(self, i):
        """As an operator stops it: it hands over, then ends."""
        self.nodes[i].process.terminate()
        return self.nodes[i].process.wait(60)

    def wipe(self, i):
        shutil.rmtree(os.path.join(self.nodes[i].dir, "data"))

    def kill(self, *ids):
        for i in ids:
            self.nodes[i].process.kill()
            self.nodes[i].process.wait()

    def stop(self, i):
        self.nodes[i].process.send_signal(signal.SIGSTOP)

    def cont(self, i):
        self.nodes[i].process.send_signal(signal.SIGCONT)

    def alive(self):
        return [i for i, node in self.nodes.items() if node.process is not None and node.process.poll() is None]

    # --- Looking ---

    def lock(self, i):
        """Calls to node i's gateway."""
        if i not in self.stubs:
            self.stubs[i] = Stub(f"{self.hosts[i]}:{self.grpc_ports[i]}")
        return self.stubs[i]

    def endpoints(self, ids=None):
        return ",".join(f"{self.hosts[i]}:{self.grpc_ports[i]}" for i in (ids or self.nodes))

    def start_tool(self, *args, host=None, ids=None, **more):
        """The fencelock tool, from the clients' host where there is netbox, speaking to these nodes."""
        command = self.host_command(host or len(self.nodes) + 1, [TOOL, *args])
        return subprocess.Popen(command, env=dict(os.environ, FENCELOCK_ENDPOINTS=self.endpoints(ids)), text=True, **more)

    def tool(self, *args, host=None, ids=None, check=True):
        process = self.start_tool(*args, host=host, ids=ids, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, error = process.communicate(timeout=120)
        done = subprocess.CompletedProcess(args, process.returncode, out, error)
        if check and done.returncode != 0:
            raise AssertionError(f"{args}: {done.returncode} {done.stderr}")
        return done

    def statuses(self, i, ids=None):
        """What the nodes say of themselves, asked through node i, by id."""
        if self.box:
            done = self.tool("status", "--json", host=i, ids=[i], check=False)
            nodes = json.loads(done.stdout)["nodes"] if done.returncode == 0 else []
            return {n["node_id"]: n for n in nodes if not n.get("error") and (ids is None or n["node_id"] in ids)}
        try:
            nodes = self.lock(i).Status(all_nodes=True, timeout=5).nodes
        except grpc.RpcError:
            return {}
        return {n.node_id: {"role": n.role, "term": n.term, "applied_index": n.applied_index,
                            "state_hash": n.state_hash, "sessions": n.sessions, "holds": n.holds, "waits": n.waits,
                            "token": n.token} for n in nodes if not n.error and (ids is None or n.node_id in ids)}

    def leader(self, through=None, among=None, patience=60):
        """The id of a node that leads, as node `through` (default: any live one) learns it."""
        def look():
            for i in [through] if through else self.alive():
                found = [(s["term"], n) for n, s in self.statuses(i, among).items() if s["role"] == "leader"]
                if found:
                    return max(found)[1]
            return None
        return wait_for(look, "a leader", patience)

    def converged(self, patience=60):
        """Waits until all live nodes are at one index with one hash."""
        def look():
            seen = self.statuses(self.alive()[0], self.alive())
            places = {(s["applied_index"], s["state_hash"]) for s in seen.values()}
            return len(seen) == len(self.alive()) and len(places) == 1
        wait_for(look, "equal states on all nodes", patience)


class Grant:
    def __init__(self, name, token, session):
        self.name, self.token, self.session = name, token, session
        self.since = now()
        self.until = None  # released, or told that it is lost


class History:
    """Beliefs of all clients. A client believes in a grant from its reply until it releases it, is told that it is
    lost, or its session's lease ends by its own clock (T1)."""

    def __init__(self):
        self.guard = threading.Lock()
        self.grants = []

    def granted(self, name, token, session):
        grant = Grant(name, token, session)
        with self.guard:
            self.grants.append(grant)
        return grant

    def check(self):
        """Tokens rise with real time, none is given twice, and no two clients ever believe at once."""
        by_name = {}
        for grant in self.grants:
            by_name.setdefault(grant.name, []).append(grant)
        for name, grants in by_name.items():
            tokens = [g.token for g in grants]
            assert len(set(tokens)) == len(tokens), f"{name}: a token was given twice: {sorted(tokens)}"
            for earlier, later in zip(sorted(grants, key=lambda g: g.token), sorted(grants, key=lambda g: g.token)[1:]):
                end = min(earlier.until or float("inf"), earlier.session.believes_until(earlier))
                assert end <= later.since, f"{name}: tokens {earlier.token} and {later.token} overlap by " \
                                           f"{end - later.since:.3f} s"
        return len(self.grants)


class Session:
    """A session kept by unary heartbeats from a thread, at whatever endpoint answers."""

    def __init__(self, bed, ids=None, ttl_ms=10000, client="bed"):
        self.bed, self.ttl_ms = bed, ttl_ms
        self.ids = list(ids or bed.nodes)
        self.at = 0
        self.lost_at = None
        self.leases = []  # (acknowledged at, believed until)
        self.stopping = threading.Event()
        sent = now()
        self.id = self.retry(lambda stub: stub.create_session(ttl_ms=ttl_ms, client=client))
        self.renewed(sent)
        self.thread = threading.Thread(target=self.keep, daemon=True)
        self.thread.start()

    def renewed(self, sent):
        lease = self.ttl_ms / 1000 * (1 - RHO) / (1 + RHO) - max(0.05, self.ttl_ms / 100000)
        self.leases.append((now(), sent + lease))

    def believes_until(self, grant):
        """When the belief in that grant ends by itself: the first gap between leases after it."""
        until = None
        for told, lease in self.leases:
            if until is not None and told > until and until > grant.since:
                break
            until = lease if until is None else max(until, lease)
        return min(until, self.lost_at or float("inf"))

    def is_lost(self):
        return self.lost_at is not None

    def retry(self, call, patience=60):
        """The call's result from the first endpoint that has one; UNAVAILABLE moves on."""
        end = time.monotonic() + patience
        while True:
            try:
                return call(self.bed.lock(self.ids[self.at % len(self.ids)]))
            except grpc.RpcError as error:
                if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED) or \
                        time.monotonic() > end:
                    raise
                self.at += 1
                time.sleep(0.02)

    def keep(self):
        while not self.stopping.wait(self.ttl_ms / 3000):
            sent = now()
            try:
                self.bed.lock(self.ids[self.at % len(self.ids)]).KeepAlive(session_id=self.id, timeout=self.ttl_ms / 6000)
                self.renewed(sent)
            except ValueError:
                return  # the bed is gone
            except grpc.RpcError as error:
                if error.code() == grpc.StatusCode.NOT_FOUND:
                    self.lost_at = now()
                    return
                self.at += 1
                if not self.stopping.is_set():
                    self.stopping.wait(0.05)

    def acquire(self, name, wait_ms=0, request_id=None, **more):
        request_id = request_id or int.from_bytes(os.urandom(6), "big") + 1
        return self.retry(lambda stub: stub.Acquire(session_id=self.id, name=name, wait_ms=wait_ms,
                                                    request_id=request_id, timeout=wait_ms / 1000 + 5, **more))

    def release(self, name, token):
        return self.retry(lambda stub: stub.Release(session_id=self.id, name=name, token=token))

    def crash(self):
        """No more heartbeats."""
        self.stopping.set()
        self.thread.join()

    def close(self):
        self.crash()
        self.retry(lambda stub: stub.CloseSession(session_id=self.id))
