"""The HTTP port of a real cluster: the transcript of docs/http-api.md, what strangers send, and who may ask."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import unittest

from prometheus_client.parser import text_string_to_metric_families

from cluster import PATIENCE, ROOT, Cluster, wait_for

MARK = "---- next ----"


def transcript(page):
    """The commands of the page's console blocks, and what each prints."""
    steps = []
    for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                steps.append((line[2:], []))
            else:
                steps[-1][1].append(line)
    return steps


def shape(text):
    """Without what differs from run to run: ids and numbers."""
    return re.sub(r"\d+", "N", re.sub(r"s_[0-9a-f]{32}", "SESSION", text))


class Http(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(nodes=3)
        cls.address = cls.cluster.nodes[1]["http"]
        # Each takes ten seconds to be given up: they wait beside the other tests.
        cls.slow = [cls.dribble(b"GET / HTTP/1.1\r\nHost: localhost\r\n"), cls.dribble(b"")]

    @classmethod
    def tearDownClass(cls):
        for s, _ in cls.slow:
            s.close()
        cls.cluster.__exit__()

    @classmethod
    def connect(cls, address=None):
        host, port = (address or cls.address).rsplit(":", 1)
        return socket.create_connection((host, int(port)), PATIENCE)

    @classmethod
    def dribble(cls, begun):
        s = cls.connect()
        s.sendall(begun)
        return s, begun

    def ask(self, method, path, body=None, address=None, **headers):
        """(status, document, headers) of one request."""
        connection = http.client.HTTPConnection(address or self.address, timeout=PATIENCE)
        self.addCleanup(connection.close)
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        if body is not None:
            headers.setdefault("Content_Type", "application/json")
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        text = response.read()
        is_json = response.headers.get("Content-Type") == "application/json"
        return response.status, json.loads(text) if is_json and text else text.decode(), response.headers

    def call(self, name, body, address=None):
        status, document, _ = self.ask("POST", f"/v1/{name}", body, address)
        self.assertEqual(status, 200, document)
        return document

    def open(self, client="test", ttl_ms=60000, address=None):
        return self.call("LockService/OpenSession", {"client": client, "ttl_ms": ttl_ms}, address)["session_id"]

    def test_the_documentation_s_transcript_is_what_happens(self):
        with open(os.path.join(ROOT, "docs", "http-api.md")) as page:
            steps = transcript(page.read())
        self.assertGreater(len(steps), 12)
        commands = [c if not c.startswith("HTTP=") else f"HTTP=http://{self.address}" for c, _ in steps]
        with tempfile.TemporaryDirectory() as scratch:
            said = subprocess.run(["bash", "-c", f"\necho '{MARK}'\n".join(commands)], cwd=scratch, check=True,
                                  capture_output=True, text=True, timeout=PATIENCE).stdout
        for (command, expected), got in zip(steps, said.split(MARK + "\n"), strict=True):
            self.assertEqual(shape(got.strip()), shape("\n".join(expected)), command)

    def test_alive_and_useful_are_two_things(self):
        self.assertEqual(self.ask("GET", "/healthz")[:2], (200, "alive\n"))
        self.assertEqual(self.ask("HEAD", "/healthz")[0], 200)
        self.assertRegex(self.ask("GET", "/readyz")[1], r"^node [123] leads\n$")
        with Cluster(nodes=3) as other:
            address = other.nodes[1]["http"]
            other.kill(2)
            other.kill(3)
            wait_for(lambda: self.ask("GET", "/readyz", address=address)[0] == 503, "a node that is of no use")
            self.assertEqual(self.ask("GET", "/healthz", address=address)[0], 200)
            status, document, _ = self.ask("POST", "/v1/LockService/OpenSession", {}, address)
            self.assertEqual((status, document["error"]["reason"]), (503, "NO_LEADER"))

    def test_bad_arguments_are_told_by_their_field(self):
        session = self.open()
        acquire = {"session_id": session, "name": "L"}
        long_name = "x" * 513
        for call, body, field in [
                ("Acquire", {**acquire, "name": ""}, "name"),
                ("Acquire", {"session_id": session}, "name"),
                ("Acquire", {"name": "L"}, "session_id"),
                ("Acquire", {**acquire, "name": long_name}, "name"),
                ("Acquire", {**acquire, "name": "a\nb"}, "name"),
                ("Acquire", {**acquire, "name": 5}, "name"),
                ("Acquire", {**acquire, "name": ["L"]}, "name"),
                ("Acquire", {**acquire, "wait_ms": -1}, "wait_ms"),
                ("Acquire", {**acquire, "wait_ms": 1.5}, "wait_ms"),
                ("Acquire", {**acquire, "wait_ms": "10s"}, "wait_ms"),
                ("Acquire", {**acquire, "wait_ms": ""}, "wait_ms"),
                ("Acquire", {**acquire, "waitMs": 2 ** 32}, "wait_ms"),
                ("Acquire", {**acquire, "wait_ms": 86400001}, "wait_ms"),
                ("Acquire", {**acquire, "wait_ms": True}, "wait_ms"),
                ("Acquire", {**acquire, "request_id": 0}, "request_id"),
                ("Acquire", {**acquire, "request_id": str(2 ** 64)}, "request_id"),
                ("Acquire", {**acquire, "mode": "SHARD"}, "mode"),
                ("Acquire", {**acquire, "mode": 17}, "mode"),
                ("Acquire", {**acquire, "mode": "COUNTED"}, "limit"),
                ("Acquire", {**acquire, "limit": 3}, "limit"),
                ("Acquire", {**acquire, "tokn": 3}, "tokn"),
                ("Release", {**acquire, "token": 0}, "token"),
                ("Release", {**acquire, "token": 2 ** 53}, "token"),
                ("OpenSession", {"ttl_ms": 999}, "ttl_ms"),
                ("OpenSession", {"client": "x" * 129}, "client"),
                ("OpenSession", {"release_on_disconnect": "yes"}, "release_on_disconnect"),
                ("CreateSession", {"options": []}, "options"),
                ("CreateSession", {"options": {"client": "\t"}}, "client")]:
            status, document, _ = self.ask("POST", f"/v1/LockService/{call}", body)
            self.assertEqual((status, document["error"].get("field")), (400, field), (call, body))
            self.assertTrue(document["error"]["message"].startswith(field), document)

    def test_nonsense_is_refused_and_says_why(self):
        for body in ["", "{", "[]", "5", "null", '"x"', "\0", "\xff", '{"a": 1, "a": 2}', '{"name": "\\u0000"}',
                     '{"name": "\\ud800"}', "[" * 60000, '{"wait_ms": 99999999999999999999}']:
            status, document, _ = self.ask("POST", "/v1/LockService/Acquire", body.encode("latin-1"))
            self.assertEqual(status, 400, body[:40])
            self.assertTrue(document["error"]["message"], body[:40])
        for query in ["name=%", "name=%zz", "name=%ff", "name=%00", "name=a&name=b", "nam=a", "name=a&stale_ok=5"]:
            self.assertEqual(self.ask("GET", f"/v1/LockService/Describe?{query}")[0], 400, query)

    def test_names_survive_the_query(self):
        session = self.open()
        for name in ["a b", "a+b", "100%", "ä/ö?&=#", "x" * 512, "😀"]:
            self.call("LockService/Acquire", {"session_id": session, "name": name})
            encoded = "".join(f"%{byte:02x}" for byte in name.encode())
            status, document, _ = self.ask("GET", f"/v1/LockService/Describe?name={encoded}")
            self.assertEqual((status, document["name"], document["held"]), (200, name, True))

    def test_numbers_are_read_as_strings_and_never_rounded(self):
        session = self.open()
        top = 2 ** 64 - 1
        granted = self.call("LockService/Acquire", {"session_id": session, "name": "n", "request_id": str(top)})
        self.assertEqual(granted["request_id"], str(top))
        again = self.call("LockService/Acquire", {"session_id": session, "name": "n", "request_id": str(top)})
        self.assertEqual(again["token"], granted["token"])
        self.call("LockService/Release", {"sessionId": session, "name": "n", "token": str(granted["token"])})

    def test_methods_and_addresses(self):
        for method, path, status in [("GET", "/v1/LockService/Acquire", 405), ("PUT", "/v1/LockService/Acquire", 405),
                                     ("DELETE", "/v1/LockService/Describe", 405), ("POST", "/healthz", 405),
                                     ("GET", "/v1/LockService/NoSuch", 404), ("POST", "/v1/LockService/Watch/x", 404),
                                     ("GET", "/v1/LockService/" + "x" * 500, 404), ("OPTIONS", "*", 404),
                                     ("HEAD", "/v1/LockService/Watch?name=a", 405), ("GET", "/no/such", 404), ("GET", "/../etc/passwd", 404),
                                     ("GET", "/v1/", 200), ("GET", "/v1/AdminService/Status?all_nodes=true", 200),
                                     ("POST", "/v1/AdminService/Status", 200)]:
            got, document, headers = self.ask(method, path, "" if method == "POST" else None)
            self.assertEqual(got, status, (method, path))
            if status == 405:
                self.assertIn("Allow", headers)
        self.assertEqual(self.ask("POST", "/v1/LockService/OpenSession", "{}", Content_Type="text/plain")[0], 415)
        self.assertEqual(self.ask("POST", "/v1/LockService/OpenSession", "{}",
                                  Content_Type="application/json; charset=utf-8")[0], 200)

    def test_pages_from_elsewhere_neither_act_nor_read(self):
        ours = f"http://{self.address}"
        self.assertEqual(self.ask("POST", "/v1/LockService/OpenSession", {}, Origin=ours)[0], 200)
        for headers in [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": ours + ".evil.example"},
                        {"Host": "evil.example:3364", "Origin": "http://evil.example:3364"}, {"Host": "evil.example"},
                        {"Host": "127.0.0.1.evil.example"}]:
            status, document, _ = self.ask("POST", "/v1/LockService/OpenSession", {}, **headers)
            self.assertEqual((status, document["error"]["reason"]), (403, "FOREIGN_PAGE"), headers)
            self.assertEqual(self.ask("GET", "/v1/AdminService/ListSessions", **headers)[0], 403, headers)

    def test_a_waiter_is_granted_when_the_holder_releases(self):
        holder, waiter = self.open("holder"), self.open("waiter")
        first = self.call("LockService/Acquire", {"session_id": holder, "name": "handed"})
        answers = []
        thread = threading.Thread(target=lambda: answers.append(self.call(
            "LockService/Acquire", {"session_id": waiter, "name": "handed", "wait_ms": 60000},
            self.cluster.nodes[2]["http"])))
        thread.start()
        wait_for(lambda: self.ask("GET", "/v1/LockService/Describe?name=handed")[1]["waiter_count"] == 1, "a waiter")
        self.call("LockService/Release", {"session_id": holder, "name": "handed", "token": first["token"]})
        thread.join(PATIENCE)
        self.assertTrue(answers[0]["granted"])
        self.assertGreater(answers[0]["token"], first["token"])

    def waiters(self, name, address=None):
        return self.ask("GET", f"/v1/LockService/Describe?name={name}", address=address)[1]["waiter_count"]

    def start_waiting(self, name, session, address=None, **more):
        """A connection on which an acquire waits, as one of the name's waiters."""
        before = self.waiters(name, address)
        body = json.dumps({"session_id": session, "name": name, "wait_ms": 600000, **more})
        s = self.connect(address)
        self.addCleanup(s.close)
        s.sendall(f"POST /v1/LockService/Acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                  f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        wait_for(lambda: self.waiters(name, address) == before + 1, "a waiter")
        return s

    def test_a_client_that_leaves_leaves_the_queue(self):
        self.call("LockService/Acquire", {"session_id": self.open(), "name": "left"})
        self.start_waiting("left", self.open()).close()
        wait_for(lambda: self.waiters("left") == 0, "an empty queue")

    def test_a_client_that_chose_its_request_id_finds_its_place_again(self):
        """C02: its connection broke, and somebody else came meanwhile."""
        holder, first, second = self.open(), self.open(), self.open()
        token = self.call("LockService/Acquire", {"session_id": holder, "name": "kept"})["token"]
        self.start_waiting("kept", first, request_id=7).close()
        later = self.start_waiting("kept", second)
        answers = []
        thread = threading.Thread(target=lambda: answers.append(self.call(
            "LockService/Acquire", {"session_id": first, "name": "kept", "wait_ms": 600000, "request_id": 7})))
        thread.start()
        self.call("LockService/Release", {"session_id": holder, "name": "kept", "token": token})
        thread.join(PATIENCE)
        self.assertTrue(answers[0]["granted"])
        self.assertEqual(self.waiters("kept"), 1)
        self.call("LockService/Release", {"session_id": first, "name": "kept", "token": answers[0]["token"]})
        self.assertIn(b'"granted": true', later.recv(65536))

    def watch(self, query):
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE)
        self.addCleanup(connection.close)
        connection.request("GET", f"/v1/LockService/Watch?{query}")
        response = connection.getresponse()
        response.leave = connection.close
        return response

    def test_a_watch_tells_each_change_as_a_line(self):
        session = self.open("watched")
        granted = self.call("LockService/Acquire", {"session_id": session, "name": "w/1"})
        watch = self.watch("name=w/&is_prefix=true")
        self.assertEqual((watch.status, watch.headers["Content-Type"]), (200, "application/x-ndjson"))
        kinds = [json.loads(watch.readline()) for _ in range(2)]
        self.assertEqual([e["kind"] for e in kinds], ["PRESENT", "CAUGHT_UP"])
        self.call("LockService/Release", {"session_id": session, "name": "w/1", "token": granted["token"]})
        self.call("LockService/Acquire", {"session_id": session, "name": "w/2"})
        ended, begun = json.loads(watch.readline()), json.loads(watch.readline())
        self.assertEqual((ended["kind"], ended["name"], ended["cause"]), ("ENDED", "w/1", "RELEASED"))
        self.assertEqual((begun["kind"], begun["name"], begun["client"]), ("GRANTED", "w/2", "watched"))
        again = self.watch(f"name=w/&is_prefix=true&from_index={ended['index']}")
        self.assertEqual(json.loads(again.readline()), ended)
        watches = ("fencelock_gateway_watches",)
        self.assertGreaterEqual(self.samples(1)[watches], 2)
        watch.leave()
        again.leave()
        watch.close()
        again.close()
        wait_for(lambda: self.samples(1)[watches] == 0, "the end of watches that nobody reads")

    def test_a_watch_that_cannot_be_is_refused_like_any_call(self):
        for query, field in [("", "name"), ("name=a&from_index=0", "from_index"), ("name=a&prefix=true", "prefix")]:
            watch = self.watch(query)
            self.assertEqual((watch.status, json.loads(watch.read())["error"]["field"]), (400, field))

    def test_those_who_wait_in_a_circle_are_named(self):
        """C80: long after they began to, on any node, until one gives up."""
        one, two = self.open("circle-one"), self.open("circle-two")
        self.call("LockService/Acquire", {"session_id": one, "name": "circle/a"})
        self.call("LockService/Acquire", {"session_id": two, "name": "circle/b"})
        self.start_waiting("circle/b", one)
        self.start_waiting("circle/a", two)
        told = self.ask("GET", "/v1/AdminService/ListWaits", address=self.cluster.nodes[2]["http"])[1]
        cycles = [sorted((step["client"], step["waits_for"]) for step in cycle["steps"]) for cycle in told["cycles"]]
        self.assertEqual(cycles, [[("circle-one", "circle/b"), ("circle-two", "circle/a")]])
        name = next(name for name in told["names"] if name["name"] == "circle/a")
        self.assertEqual([(h["client"], h["session_id"]) for h in name["holders"]], [("circle-one", one)])
        self.assertEqual([(w["client"], w["session_id"]) for w in name["waiters"]], [("circle-two", two)])
        self.call("LockService/CloseSession", {"session_id": one})
        self.assertEqual(self.ask("GET", "/v1/AdminService/ListWaits")[1]["cycles"], [])
        self.assertEqual(self.ask("GET", "/v1/AdminService/ListWaits?max=1001")[1]["error"]["field"], "max")

    def test_an_operator_ends_a_session_and_forces_a_name(self):
        holder = self.open("victim")
        granted = self.call("LockService/Acquire", {"session_id": holder, "name": "forced"})
        status, document, _ = self.ask("POST", "/v1/AdminService/ForceRelease",
                                       {"name": "forced", "token": granted["token"], "by": "ops"})
        self.assertEqual((status, document["error"]["field"]), (400, "reason"))
        self.call("AdminService/ForceRelease", {"name": "forced", "token": granted["token"], "by": "ops", "reason": "gone"})
        self.assertFalse(self.ask("GET", "/v1/LockService/Describe?name=forced")[1]["held"])
        self.call("AdminService/EndSession", {"session_id": holder, "by": "ops", "reason": "gone"})
        self.assertEqual(self.ask("POST", "/v1/LockService/KeepAlive", {"session_id": holder})[0], 404)

    def families(self, node):
        _, text, headers = self.ask("GET", "/metrics", address=self.cluster.nodes[node]["http"])
        self.assertEqual(headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
        return list(text_string_to_metric_families(text))

    def samples(self, node):
        """By name and labels; each once."""
        found = {}
        for family in self.families(node):
            for sample in family.samples:
                key = (sample.name, *sorted(sample.labels.items()))
                self.assertNotIn(key, found)
                found[key] = sample.value
        return found

    def test_metrics_tell_what_happened(self):
        leader = self.cluster.leader()
        session = self.open()
        before = self.samples(leader)
        for _ in range(20):
            granted = self.call("LockService/Acquire", {"session_id": session, "name": "counted"},
                                self.cluster.nodes[leader]["http"])
            self.call("LockService/Release", {"session_id": session, "name": "counted", "token": granted["token"]},
                      self.cluster.nodes[leader]["http"])
        wait_for(lambda: self.samples(leader).get(("fencelock_grants_total",), 0)
                 >= before.get(("fencelock_grants_total",), 0) + 20, "grants that are counted")
        acquired = ("fencelock_gateway_operations_total", ("operation", "Acquire"), ("outcome", "GRANTED"))
        self.assertGreaterEqual(self.samples(leader)[acquired], before.get(acquired, 0) + 20)
        leads = [self.samples(node)[("fencelock_node_is_leader",)] for node in self.cluster.nodes]
        self.assertEqual(sorted(leads), [0, 0, 1])

    def test_histograms_add_up(self):
        for family in self.families(self.cluster.leader()):
            if family.type != "histogram":
                continue
            last, buckets, counts = {}, {}, {}
            for sample in family.samples:
                labels = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
                if sample.name.endswith("_bucket"):
                    self.assertGreaterEqual(sample.value, last.get(labels, 0), family.name)
                    last[labels] = sample.value
                    buckets[labels] = sample.labels["le"]
                elif sample.name.endswith("_count"):
                    counts[labels] = sample.value
            self.assertEqual(last, counts, family.name)
            self.assertEqual(set(buckets.values()), {"+Inf"} if buckets else set())

    def test_many_names_make_no_series(self):
        """C78: nor does a name break the format."""
        leader, session = self.cluster.leader(), self.open()
        hostile = 'a"b\\c{le="5"}'
        for _ in range(5):
            granted = self.call("LockService/Acquire", {"session_id": session, "name": hostile})
            self.call("LockService/Release", {"session_id": session, "name": hostile, "token": granted["token"]})
        top = ("fencelock_top_acquires_per_second", ("name", hostile))
        wait_for(lambda: top in self.samples(leader), "the hostile name")
        tokens = self.samples(leader)[("fencelock_token",)]
        self.cluster.tool("bench", "--seconds", "3", "--names", "0", check=True)
        after = self.samples(leader)
        self.assertGreater(after[("fencelock_token",)], tokens + 1000)
        self.assertLess(len(after), 1500)
        self.assertLessEqual(sum("top" in key[0] for key in after), 60)

    def test_every_family_is_documented(self):
        with open(os.path.join(ROOT, "docs", "monitoring.md")) as page:
            known = set(re.findall(r"`([a-z_]+)`", page.read()))
        for family in self.families(self.cluster.leader()):
            self.assertTrue({family.name, family.name + "_total"} & known, family.name)

    def test_the_dashboard_is_served_whole_and_loads_nothing_from_elsewhere(self):
        status, page, headers = self.ask("GET", "/")
        self.assertEqual((status, headers["Content-Type"]), (200, "text/html; charset=utf-8"))
        self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
        self.assertEqual(self.ask("GET", "/", If_None_Match=headers["ETag"])[0], 304)
        named = re.findall(r'(?:src|href)="([^"#]+)"', page)
        self.assertGreaterEqual(len(named), 3)
        for path in named:
            status, text, _ = self.ask("GET", "/" + path)
            self.assertEqual(status, 200, path)
            for other in re.findall(r'from "\./([^"]+)"', text):
                self.assertEqual(self.ask("GET", "/" + other)[0], 200, other)
            self.assertEqual(re.findall(r"https?://(?!www\.w3\.org/2000/svg)", text), [], path)

    def test_the_monitor_tells_as_json_what_metrics_tell(self):
        leader = self.cluster.leader()
        address = self.cluster.nodes[leader]["http"]
        self.call("LockService/Acquire", {"session_id": self.open(), "name": "monitored"}, address)
        told = wait_for(lambda: (lambda m: m if m["node"] and m["node"]["holds"] else None)(
            self.ask("GET", "/v1/Monitor", address=address)[1]), "a hold")
        self.assertTrue(told["node"]["is_leader"])
        self.assertEqual(len(told["node"]["commit"]["counts"]), len(told["bounds_us"]) + 1)
        self.assertIn("Acquire", told["gateway"]["times"])

    def test_one_connection_serves_many_requests(self):
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE)
        for _ in range(200):
            connection.request("GET", "/healthz")
            self.assertEqual(connection.getresponse().read(), b"alive\n")
        connection.close()

    def test_a_stopped_node_answers_before_it_ends(self):
        with Cluster(nodes=1) as solo:
            address = solo.nodes[1]["http"]
            self.call("LockService/Acquire", {"session_id": self.open(address=address), "name": "L"}, address)
            s = self.start_waiting("L", self.open(address=address), address)
            solo.signal(1, signal.SIGTERM)
            s.recv(65536)  # an answer, or the end: not a process that hangs
            s.close()

    def test_z_those_who_dribble_are_given_up(self):
        """S4: within ten seconds."""
        for s, begun in self.slow:
            got = s.recv(65536)
            self.assertEqual(got[:12], b"HTTP/1.1 408" if begun else b"")


if __name__ == "__main__":
    unittest.main(verbosity=2)
