"""The checker of histories can fail: an ideal service's history passes, and each way of spoiling it is found."""
import heapq
import random
import unittest

import history

MS = 1000000


class Ideal:
    """Clients of a perfect lock service on a simulated network, and their history."""

    def __init__(self, seed, clients=12, ops=1500):
        self.random = random.Random(seed)
        self.events, self.lines = [], []  # (time, order, what to do); (time, text)
        self.order = self.op = self.token = self.index = 0
        self.left = ops
        self.holders, self.queues = {}, {}  # by name: [(token, ...)], [request]
        for client in range(clients):
            self.at(self.random.randrange(10 * MS), self.ask, f"c{client}")
        while self.events:
            self.now, _, do, args = heapq.heappop(self.events)
            do(*args)
        self.lines = [text for _, _, text in sorted(self.lines)]

    def at(self, when, do, *args):
        self.order += 1
        heapq.heappush(self.events, (when, self.order, do, args))

    def later(self, do, *args):
        self.at(self.now + self.random.randrange(1, 3 * MS), do, *args)

    def say(self, text):
        self.order += 1
        self.lines.append((self.now, self.order, text))

    def begin(self, client, text):
        self.op += 1
        self.say(f"i {self.now} {self.op} {client} {text}")
        return self.op

    def ask(self, client):
        self.left -= 1
        if self.left < 0:
            return
        name = self.random.choice(["x/0", "x/1", "m/2", "n/3"])
        if self.random.random() < 0.3:
            self.later(self.decide_describe, client, self.begin(client, f"describe {name}"), name)
            return
        mode = {"x": "exclusive", "m": self.random.choice(["shared", "shared", "exclusive"]), "n": "counted"}[name[0]]
        wait = self.random.choice([0, 5000, 5000])
        op = self.begin(client, f"acquire {name} {mode} {3 if mode == 'counted' else 0} {wait}")
        self.later(self.decide_acquire, client, op, name, mode, wait)

    def may(self, name, mode):
        held = self.holders.get(name, [])
        return not held or mode == "counted" and len(held) < 3 or mode == "shared" and held[0][1] == "shared"

    def decide_acquire(self, client, op, name, mode, wait):
        self.index += 1
        queue = self.queues.setdefault(name, [])
        if wait == 0 and (queue or not self.may(name, mode)):
            self.later(self.hear, f"r %d {op} no {self.holders[name][0][0]}", client)
            return
        queue.append((client, op, mode))
        self.promote(name)

    def promote(self, name):
        queue = self.queues.get(name, [])
        while queue and self.may(name, queue[0][2]):
            client, op, mode = queue.pop(0)
            self.token += 1
            self.holders.setdefault(name, []).append((self.token, mode))
            self.later(self.hold, client, op, name, self.token, self.index)

    def hold(self, client, op, name, token, index):
        self.say(f"r {self.now} {op} ok {token} {index}")
        self.at(self.now + self.random.randrange(1, 20 * MS), self.give_back, client, op, name, token)

    def give_back(self, client, op, name, token):
        self.say(f"v {self.now} {op}")
        self.later(self.decide_release, client, self.begin(client, f"release {name} {op}"), name, token)

    def decide_release(self, client, op, name, token):
        self.index += 1
        self.holders[name] = [h for h in self.holders[name] if h[0] != token]
        self.promote(name)
        self.later(self.hear, f"r %d {op} ok {self.index}", client)

    def decide_describe(self, client, op, name):
        holders = ",".join(str(h[0]) for h in self.holders.get(name, []))
        waiters = ",".join(w[0] for w in self.queues.get(name, []))
        self.later(self.hear, f"r %d {op} ok {self.index} holders{'=' * bool(holders)}{holders} "
                              f"waiters{'=' * bool(waiters)}{waiters}", client)

    def hear(self, text, client):
        self.say(text % self.now)
        self.later(self.ask, client)


class Spoilt:
    """A history as words, to be changed."""

    def __init__(self, lines):
        self.words = [line.split() for line in lines]
        self.asked = {w[2]: w for w in self.words if w[0] == "i"}

    def answers(self, kind, result="ok", name=""):
        return [w for w in self.words if w[0] == "r" and w[3] == result and self.asked[w[2]][4] == kind and
                self.asked[w[2]][5].startswith(name)]

    def faults(self):
        return history.check(history.read(" ".join(w) for w in self.words), lossless=True)

    def without_index(self):
        """As libfencelock's users see it."""
        for w in self.answers("acquire"):
            del w[5:]
        for w in self.answers("release"):
            del w[4:]


class Checker(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ideal = Ideal(1).lines

    def spoilt(self):
        return Spoilt(self.ideal)

    def assert_found(self, spoilt, rule, words=""):
        faults = spoilt.faults()
        self.assertTrue(any(f.startswith(rule + ":") and words in f for f in faults), f"{rule} is not found: {faults[:5]}")

    def test_an_ideal_service_passes(self):
        for seed in range(5):
            lines = Ideal(seed).lines
            self.assertEqual(history.check(history.read(lines), lossless=True), [])
            names = history.read(lines)
            self.assertGreater(len(names["x/0"].grants), 50)
            self.assertTrue(any(d.waiters for d in names["x/0"].describes))

    def test_a_dropped_release_is_found(self):
        s = self.spoilt()
        s.without_index()
        op = s.answers("release", name="x/")[5][2]
        s.words = [w for w in s.words if w[2] != op]
        self.assert_found(s, "L3")

    def test_a_token_given_twice_is_found(self):
        s = self.spoilt()
        s.without_index()
        grants = s.answers("acquire", name="x/0")
        grants[6][4] = grants[5][4]
        self.assert_found(s, "L2")

    def test_two_grants_swapped_are_found(self):
        s = self.spoilt()
        s.without_index()
        grants = sorted(s.answers("acquire", name="x/0"), key=lambda w: int(w[4]))
        a, b = next((a, b) for a in grants for b in grants if int(a[1]) < int(s.asked[b[2]][1]))
        a[4], b[4] = b[4], a[4]
        self.assert_found(s, "L1")

    def test_a_second_holder_is_found(self):
        s = self.spoilt()
        s.without_index()
        believed = next(w for w in s.words if w[0] == "v" and s.asked[w[2]][5] == "x/1")
        believed[1] = str(int(believed[1]) + 200 * MS)
        self.assert_found(s, "L3")

    def test_one_permit_too_many_is_found(self):
        s = self.spoilt()
        s.without_index()
        for w in s.asked.values():
            if w[5] == "n/3" and w[4] == "acquire":
                w[7] = "2"
        self.assert_found(s, "L3")

    def test_a_reader_beside_a_writer_is_found(self):
        s = self.spoilt()
        s.without_index()
        changed = 0
        for w in s.answers("acquire", name="m/"):
            if s.asked[w[2]][6] == "shared":
                s.asked[w[2]][6] = "exclusive"
                changed += 1
        self.assertGreater(changed, 10)
        self.assert_found(s, "L3")

    def test_a_stale_read_is_found(self):
        s = self.spoilt()
        s.without_index()
        reads = [w for w in s.answers("describe", name="x/0") if "=" in w[5]]
        reads[9][5] = reads[2][5]
        self.assert_found(s, "L15")

    def test_a_read_that_misses_a_holder_is_found(self):
        s = self.spoilt()
        s.without_index()
        for w in s.answers("describe", name="x/0"):
            w[5] = "holders"
        self.assert_found(s, "L13")

    def test_a_read_of_what_nobody_asked_for_is_found(self):
        s = self.spoilt()
        next(w for w in s.answers("describe", name="x/0") if "=" in w[5])[5] = "holders=999999"
        self.assert_found(s, "L13")

    def test_a_refusal_for_one_who_has_left_is_found(self):
        s = self.spoilt()
        no = s.answers("acquire", "no", "x/0")
        no[-1][4] = no[0][4]
        self.assert_found(s, "L12")

    def test_a_refusal_on_a_free_name_is_found(self):
        s = self.spoilt()
        s.words += [["i", "1", "900001", "c99", "acquire", "x/0", "exclusive", "0", "0"], ["r", "2", "900001", "no", "0"]]
        self.assert_found(s, "L12")

    def test_one_who_overtakes_the_queue_is_found(self):
        s = self.spoilt()
        s.without_index()
        by_op = {w[2]: w for w in s.answers("acquire", name="x/0")}
        for read in s.answers("describe", name="x/0"):
            waiting = [op for client in read[6].partition("=")[2].split(",") for op, w in by_op.items()
                       if s.asked[op][3] == client and int(s.asked[op][1]) < int(s.asked[read[2]][1]) and
                       int(w[1]) > int(read[1])]
            if len(waiting) >= 2:
                a, b = by_op[waiting[0]], by_op[waiting[1]]
                a[4], b[4] = b[4], a[4]
                self.assert_found(s, "L7")
                return
        self.fail("no read shows two waiters")

    def test_a_release_of_what_another_holds_already_is_found(self):
        s = self.spoilt()
        s.without_index()
        first = s.answers("release", name="x/0")[3]
        s.asked[first[2]][1] = first[1] = s.words[-1][1]
        self.assert_found(s, "L4")

    def test_a_healthy_holder_refused_is_found(self):
        s = self.spoilt()
        s.answers("release", name="x/0")[3][3:] = ["fail", "STALE_TOKEN"]
        self.assert_found(s, "V4")

    def test_a_lost_lock_is_found_where_none_may_be_lost(self):
        s = self.spoilt()
        grant = s.answers("acquire", name="x/0")[3]
        s.words.append(["l", str(int(grant[1]) + 1), grant[2], "1"])
        self.assert_found(s, "V4")

    def test_an_index_that_goes_back_is_found(self):
        s = self.spoilt()
        s.answers("describe")[-1][4] = "1"
        self.assert_found(s, "L13", "told before it was asked")

    def test_indices_against_the_order_of_holders_are_found(self):
        s = self.spoilt()
        shown = next(w for w in s.answers("describe", name="x/0") if "=" in w[5])[5].partition("=")[2]
        grant = next(w[2] for w in s.answers("acquire", name="x/0") if w[4] == shown)
        next(w for w in s.answers("release", name="x/0") if s.asked[w[2]][6] == grant)[4] = "1"
        self.assert_found(s, "L13", "ended at 1")
        s = self.spoilt()
        s.answers("acquire", name="x/0")[-1][5] = "1"
        self.assert_found(s, "L13", "came at 1")

    def test_an_unanswered_request_explains_what_is_seen(self):
        s = self.spoilt()
        grant = s.answers("acquire", name="x/0")[3]
        s.words = [w for w in s.words if w is not grant and not (w[0] == "v" and w[2] == grant[2]) and
                   not (w[2] in [r for r, a in s.asked.items() if a[4] == "release" and a[6] == grant[2]])]
        self.assertEqual([f for f in s.faults() if "nobody has" in f], [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
