"""Networks that part: five nodes and their clients in namespaces that netbox joins. The minority serves nothing, reads
included; a connected majority always gets a working leader; streams leave gateways that are cut off; nobody ever believes
in a lock that another one holds.

Clients run inside the namespaces, through the tool: nothing here needs a route from the test's own host."""
import json
import os
import subprocess
import sys
import time
import unittest

from bed import Bed, Stub, lock_pb2, now, can_part_networks
from cluster import wait_for

# By place, not by node: the node that leads takes place 1, where losing it hurts. Pairs that do not see each other.
SHAPES = {
    "two from three": [(1, 3), (1, 4), (1, 5), (2, 3), (2, 4), (2, 5)],
    "one from four": [(1, 2), (1, 3), (1, 4), (1, 5)],
    "two, two and one": [(1, 3), (1, 4), (1, 5), (2, 3), (2, 4), (2, 5), (3, 5), (4, 5)],
    "bridge: 1 2 and 4 5 meet only at 3": [(1, 4), (1, 5), (2, 4), (2, 5)],
    "ring": [(1, 3), (1, 4), (2, 4), (2, 5), (3, 5)],
    "the leader sees one of four": [(1, 3), (1, 4), (1, 5)],
}
CLIENT = 6  # the host beside the nodes


def keep_a_stream(endpoint):
    """Runs in a namespace: a session on a stream, with heartbeats, until the stream ends. Tells how."""
    stub = Stub(endpoint)

    def requests():
        yield lock_pb2.OpenSessionRequest(open=lock_pb2.OpenSessionRequest.Open(
            options=lock_pb2.SessionOptions(client="stream", ttl_ms=30000)))
        for seq in range(1, 1000):
            time.sleep(0.3)
            yield lock_pb2.OpenSessionRequest(keep_alive=lock_pb2.OpenSessionRequest.Heartbeat(seq=seq))

    call = stub.channel.stream_stream("/fencelock.v1.LockService/OpenSession", lambda m: m.SerializeToString(),
                                      lock_pb2.OpenSessionResponse.FromString)(requests())
    try:
        for response in call:
            print(response.WhichOneof("message"), flush=True)
    except Exception:
        pass
    print(json.dumps({"code": call.code().name, "reason": dict(call.trailing_metadata() or ()).get("fencelock-reason")}))


class Parted(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.bed = Bed(netbox=True)
        cls.addClassCleanup(cls.bed.__exit__)
        cls.bed.__enter__()

    def setUp(self):
        self.mend()

    def mend(self):
        self.bed.heal()
        self.bed.leader()
        self.bed.converged()

    def start_at(self, i, *args):
        """The tool on node i's host, speaking to node i only."""
        return self.bed.start_tool(*args, host=i, ids=[i], stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def tool_at(self, i, *args):
        process = self.start_at(i, *args)
        out, error = process.communicate(timeout=120)
        return process.returncode, out, error

    def serves(self, i, name):
        code, out, _ = self.tool_at(i, "run", name, "--timeout", "1s", "--", "sh", "-c", "echo $FENCELOCK_TOKEN")
        return int(out) if code == 0 else None

    def granted(self, name, ids):
        """A grant's token from one of these nodes, and after how long."""
        began = now()
        token = wait_for(lambda: next((t for t in (self.serves(i, name) for i in ids) if t), None), f"a grant in {ids}")
        return token, now() - began


class Shapes(Parted):
    def places(self):
        """Node by place; place 1 leads."""
        leader = self.bed.leader()
        order = [leader, *(i for i in self.bed.nodes if i != leader)]
        return dict(enumerate(order, 1))

    def start_asking(self, ids, name):
        """What each of these nodes says now to somebody who wants the lock, or wants to know who has it."""
        return {(i, what): self.start_at(i, what, name, "--timeout", "2500ms", *more)
                for i in ids for what, more in (("run", ("--", "true")), ("describe", ()), ("ls", ()))}

    def check_refused(self, asked, shape):
        for (i, what), process in asked.items():
            out, error = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 69, f"{shape}: node {i} is cut off and serves {what}: {out} {error}")

    def check_shape(self, shape):
        node = self.places()
        pairs = [(node[a], node[b]) for a, b in SHAPES[shape]]
        before = max(s["token"] for s in self.bed.statuses(node[1]).values())
        sees = {i: {j for j in self.bed.nodes if j != i and (i, j) not in pairs and (j, i) not in pairs}
                for i in self.bed.nodes}
        able = [i for i in sees if len(sees[i]) >= 2]  # each of these can lead
        cut_off = [i for i in sees if i not in able and not sees[i] & set(able)]
        for a, b in pairs:
            self.bed.cut(a, b)
        name = f"shape/{shape}"
        asked = self.start_asking(cut_off, name)  # at once: the old leader has noticed nothing yet
        said = "nobody serves"
        if able:
            token, took = self.granted(name, able)
            self.assertGreater(token, before)
            said = f"granted again after {took:.1f} s"
        later = self.start_asking(cut_off, name)
        self.check_refused(asked, shape)
        self.check_refused(later, shape)
        self.mend()
        for i in self.bed.nodes:
            self.assertIsNotNone(self.serves(i, f"healed/{shape}/{i}"), f"{shape}: node {i} does not serve when healed")
        print(f"{shape}: {said}; cut off and silent: {cut_off}")

    def test_two_from_three(self):
        self.check_shape("two from three")

    def test_one_from_four(self):
        self.check_shape("one from four")

    def test_two_two_and_one(self):
        self.check_shape("two, two and one")

    def test_bridge(self):
        self.check_shape("bridge: 1 2 and 4 5 meet only at 3")

    def test_ring(self):
        self.check_shape("ring")

    def test_the_leader_sees_one_of_four(self):
        self.check_shape("the leader sees one of four")

    def test_a_leader_that_is_deaf_or_mute_is_replaced(self):
        for way in ("hears nobody", "is heard by nobody"):
            leader = self.bed.leader()
            others = [i for i in self.bed.nodes if i != leader]
            for i in others:
                self.bed.net(f"cut {i} {leader}" if way == "hears nobody" else f"cut {leader} {i}")
            asked = self.start_asking([leader], f"one-way/{way}")
            _, took = self.granted(f"one-way/{way}", others[:1])
            self.check_refused(asked, f"the leader {way}")
            print(f"the leader {way}: granted again after {took:.1f} s")
            self.mend()


class TheyCanFail(unittest.TestCase):
    def test_a_leader_that_reads_without_asking_the_others_is_found(self):
        """C21, on daemons with that bug."""
        environment = dict(os.environ, FENCELOCK_DAEMON=os.environ["FENCELOCK_DAEMON_BUGS"],
                           FENCELOCK_BUG="NODE_READ_WITHOUT_CONFIRM")
        done = subprocess.run([sys.executable, os.path.abspath(__file__), "Shapes.test_one_from_four"], env=environment,
                              stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, "is cut off and serves (describe|ls)")


class Clients(Parted):
    def hold(self, gateways, name, ttl, seconds):
        """A command under a lock for so many seconds, whose tool knows these gateways."""
        process = self.bed.start_tool("run", name, "--ttl", ttl, "--", "sh", "-c", f"echo up; sleep {seconds}",
                                      host=CLIENT, ids=gateways, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.assertEqual(process.stdout.readline(), "up\n")
        return process

    def check_it_moves(self, gateways, refuge, ttl, seconds, harm):
        """Clients that sit on these gateways keep their locks through the harm, longer than a TTL: they move to the
        refuge, which they could not see before."""
        self.bed.cut(CLIENT, refuge)
        runs = [self.hold([i, refuge], f"moves/{i}", ttl, seconds) for i in gateways]
        self.bed.net(f"heal {CLIENT} {refuge}")
        self.bed.net(f"heal {refuge} {CLIENT}")
        harm()
        for i, run in zip(gateways, runs):
            self.assertEqual(run.wait(60), 0, f"gateway {i}: {run.stderr.read()}")

    def test_a_client_leaves_a_gateway_that_has_no_leader(self):
        """C24: its gateway still answers, but is on the wrong side. It goes elsewhere within the lease."""
        leader = self.bed.leader()
        small = [i for i in self.bed.nodes if i != leader][:2]

        def harm():
            for a in set(self.bed.nodes) - set(small):
                for b in small:
                    self.bed.cut(a, b)
        self.check_it_moves(small, leader, "8s", 11, harm)

    def test_half_open_connections_are_noticed_within_the_lease(self):
        """C22: packets vanish between client and gateway, both ways or one way, and nothing says so."""
        def harm():
            self.bed.cut(CLIENT, 3)
            self.bed.net(f"cut {CLIENT} 4")
            self.bed.net(f"cut 5 {CLIENT}")
        self.check_it_moves([3, 4, 5], 1, "5s", 8, harm)

    def test_a_stream_through_a_gateway_that_is_cut_off_ends_with_the_reason(self):
        node = next(i for i in self.bed.nodes if i != self.bed.leader())
        stream = subprocess.Popen(
            self.bed.host_command(CLIENT, [sys.executable, os.path.abspath(__file__), "stream", self.bed.endpoints([node])]),
            stdout=subprocess.PIPE, text=True)
        try:
            self.assertEqual(stream.stdout.readline(), "opened\n")
            self.assertEqual(stream.stdout.readline(), "keep_alive_ack\n")
            for i in self.bed.nodes:
                if i != node:
                    self.bed.cut(i, node)
            began = now()
            told = stream.communicate(timeout=60)[0].splitlines()[-1]
            print(f"a stream through a gateway that is cut off ended after {now() - began:.1f} s: {told}")
            self.assertEqual(json.loads(told), {"code": "UNAVAILABLE", "reason": "NO_LEADER"})
        finally:
            stream.kill()
            stream.communicate()

    def test_a_command_on_a_host_that_is_cut_off_ends_before_the_next_holder_begins(self):
        """C14: the holder's host loses the network; its command is gone before another host's begins."""
        marks = os.path.join(self.bed.dir, "marks")
        script = f"while :; do date +%s%N >> {marks}; sleep 0.02; done"
        holder = self.bed.start_tool("run", "cut-off", "--ttl", "3s", "--", "sh", "-c", script, host=CLIENT,
                                     stderr=subprocess.PIPE)
        wait_for(lambda: os.path.exists(marks), "the command to run")
        for i in self.bed.nodes:
            self.bed.cut(CLIENT, i)
        code, out, error = self.tool_at(1, "run", "cut-off", "--wait", "60s", "--", "date", "+%s%N")
        self.assertEqual(code, 0, error)
        self.assertEqual(holder.wait(30), 76, holder.stderr.read())
        holder.stderr.close()
        with open(marks) as file:
            last = int(file.read().split()[-1])
        print(f"cut off: its last mark was {(int(out) - last) / 1e9:.2f} s before the next holder's first")
        self.assertLess(last, int(out))

    def test_a_bad_network_is_slow_and_never_wrong(self):
        """Holders never overlap, and tokens rise, while packets are lost, doubled, late and out of order."""
        self.bed.net("set * * delay=1-15 loss=30 dup=30 reorder=50")
        script = "echo $FENCELOCK_TOKEN $(date +%s%N); sleep 0.1; date +%s%N"
        runs = [self.bed.start_tool("run", "shared", "--wait", "60s", "--timeout", "30s", "--", "sh", "-c", script, host=i,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                for i in self.bed.nodes for _ in range(2)]
        spans = []
        for run in runs:
            out, error = run.communicate(timeout=200)
            self.assertEqual(run.returncode, 0, error)
            spans.append(tuple(int(word) for word in out.split()))
        spans.sort()
        for (_, _, end), (token, start, _) in zip(spans, spans[1:]):
            self.assertLess(end, start, f"token {token} began before its predecessor ended")
        self.assertEqual(len({s[0] for s in spans}), len(spans))


if __name__ == "__main__":
    if sys.argv[1:2] == ["stream"]:
        keep_a_stream(sys.argv[2])
        sys.exit()
    if not can_part_networks():
        sys.exit(77)
    unittest.main(verbosity=2)
