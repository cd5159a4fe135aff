"""What clients asked, heard and believed, and whether a lock service can have done that.

A history is text, a line for each event. Times are nanoseconds on CLOCK_MONOTONIC_RAW, which all processes share.

    i TIME OP CLIENT acquire NAME MODE LIMIT WAIT_MS    asked
    i TIME OP CLIENT release NAME ACQUIRE_OP
    i TIME OP CLIENT describe NAME
    r TIME OP ok TOKEN [INDEX]                          heard: granted; the log's INDEX, where the client sees it
    r TIME OP ok [INDEX]                                released
    r TIME OP ok INDEX holders[=T,..] waiters[=C,..]    described; clients in their order in the queue
    r TIME OP no TOKEN                                  not granted, and never will be; the holder's token, 0: untold
    r TIME OP fail REASON                               nothing was done
    r TIME OP unknown REASON                            it may have been done, now or later
    v TIME OP                                           at that time the client believed in this grant
    l TIME OP CAUSE                                     the client was told that this grant is lost
    e TIME OP                                           the client ended then, with this grant
    # anything

The checker knows nothing of sessions, nodes and terms. An interval in which a grant *surely* held goes from its answer
to the last sign that its client believed in it, or to the asking of a release that succeeded. An interval in which it
*possibly* held goes from its asking to the answer of its release. What is unknown may have been done or not.

    faults = check(read(lines))      # sentences; none: all is explained

Each rule bears its id of docs/testing.md. history_test.py breaks each on purpose.
"""
import bisect
import collections
import heapq

FOREVER = float("inf")
SECOND = 1e9
LINGERS = 60 * SECOND  # what is unknown or lost may go on holding for so long


class Op:
    """One call. `result` is None when no answer came."""

    def __init__(self, words):
        self.inv, self.id, self.client, self.kind, self.name = int(words[1]), words[2], words[3], words[4], words[5]
        self.ret, self.result = FOREVER, None
        self.token = self.index = self.release = self.lost = None
        self.valid, self.is_left = 0, False
        self.holders, self.waiters = [], []
        if self.kind == "acquire":
            self.mode, self.limit, self.wait_ms = words[6], int(words[7]), int(words[8])
        elif self.kind == "release":
            self.acquire_id = words[6]

    def answer(self, words):
        self.ret, self.result = int(words[1]), words[3]
        more = words[4:]
        if self.kind == "describe" and self.result == "ok":
            self.index = int(more[0])
            self.holders = [int(t) for t in more[1].partition("=")[2].split(",") if t]
            self.waiters = [c for c in more[2].partition("=")[2].split(",") if c]
        elif self.kind == "acquire" and self.result in ("ok", "no"):
            self.token = int(more[0])
            self.index = int(more[1]) if len(more) > 1 else None
        elif self.kind == "release" and self.result == "ok":
            self.index = int(more[0]) if more else None

    # Of a grant:

    def is_released(self):
        return self.release is not None and self.release.result == "ok"

    def surely_until(self):
        return max(self.valid, self.release.inv if self.is_released() else 0)

    def possibly_until(self):
        if self.is_released():
            return self.release.ret
        return self.lost + LINGERS if self.lost is not None else FOREVER

    def goes_with(self, other):
        return self.mode == other.mode and self.mode != "exclusive"

    def __str__(self):
        return f"token {self.token} of {self.client} on {self.name} (op {self.id})"


class Name:
    """The operations on one name."""

    def __init__(self, name):
        self.name = name
        self.acquires, self.releases, self.describes = [], [], []

    def finish(self):
        self.grants = sorted((a for a in self.acquires if a.result == "ok"), key=lambda g: g.token)
        self.by_token = {g.token: g for g in self.grants}
        self.unknown = [a for a in self.acquires if a.result in (None, "unknown")]
        self.describes.sort(key=lambda d: d.inv)


def read(lines):
    """Names by name. Raises ValueError for what is no history."""
    ops, names = {}, {}
    for line in lines:
        words = line.split()
        if not words or words[0] == "#":
            continue
        if words[0] == "i":
            op = ops[words[2]] = Op(words)
            name = names.setdefault(op.name, Name(op.name))
            {"acquire": name.acquires, "release": name.releases, "describe": name.describes}[op.kind].append(op)
        elif words[0] == "r":
            ops[words[2]].answer(words)
        elif words[0] == "v":
            ops[words[2]].valid = max(ops[words[2]].valid, int(words[1]))
        elif words[0] == "l":
            ops[words[2]].lost = int(words[1])
        elif words[0] == "e":
            op = ops[words[2]]
            op.is_left = op.lost is None
            op.lost = op.lost or int(words[1])
        else:
            raise ValueError(line)
    for name in names.values():
        for release in name.releases:
            grant = ops[release.acquire_id]
            if grant.release is None or not grant.is_released():
                grant.release = release
        name.finish()
    return names


# --- The rules. Each takes a Name and yields sentences. ---

def tokens_are_new_and_rise(name):
    """L1, L2."""
    for a, b in zip(name.grants, name.grants[1:]):
        if a.token == b.token:
            yield f"L2: {a} was given to {b.client} again (op {b.id})"
    told = sorted(name.grants, key=lambda g: g.ret)
    at, highest = 0, None
    for grant in sorted(name.grants, key=lambda g: g.inv):
        while at < len(told) and told[at].ret < grant.inv:
            if highest is None or told[at].token > highest.token:
                highest = told[at]
            at += 1
        if highest is not None and highest.token > grant.token:
            yield f"L1: {grant} was asked for after {highest} had been told"


def nobody_holds_beside_another(name):
    """L3, T1: over the intervals in which grants surely held."""
    holding = []  # heap by the end
    for grant in sorted((g for g in name.grants if g.surely_until() > g.ret), key=lambda g: g.ret):
        while holding and holding[0][0] <= grant.ret:
            heapq.heappop(holding)
        for end, _, other in holding:
            if not grant.goes_with(other):
                yield f"L3: {other} was believed for {(end - grant.ret) / 1e6:.1f} ms after {grant} was told"
        heapq.heappush(holding, (grant.surely_until(), grant.token, grant))
        if grant.mode == "counted" and len(holding) > grant.limit:
            yield f"L3: {grant} is one permit too many"


def grants_end_before_others_begin(name):
    """L3, in the order of tokens: nothing is granted while something before it has no reason to have ended."""
    held = []
    for grant in name.grants:
        held = [g for g in held if g.lost is None and (g.release is None or g.release.inv > grant.ret)]
        for other in held:
            if not grant.goes_with(other):
                yield f"L3: {grant} was granted although nothing had ended {other}"
        if grant.mode == "counted" and len(held) >= grant.limit:
            yield f"L3: {grant} is one permit too many: nothing had ended {held[0]} and others"
        held.append(grant)


def refusals_name_a_holder(name):
    """L12: who is refused was in somebody's way."""
    for no in (a for a in name.acquires if a.result == "no"):
        holder = name.by_token.get(no.token)
        if holder is not None and (holder.inv > no.ret or holder.possibly_until() < no.inv):
            yield f"L12: op {no.id} of {no.client} was refused for {holder}, which did not hold then"
        elif holder is None and no.token and not name.unknown:
            yield f"L12: op {no.id} of {no.client} was refused for token {no.token} on {name.name}, which nobody has"
        elif not any(a is not no and a.inv < no.ret and (a.possibly_until() if a.result == "ok" else a.ret) > no.inv
                     for a in name.acquires if a.result != "fail") and \
                not any(u.inv < no.ret for u in name.unknown):
            yield f"L12: op {no.id} of {no.client} was refused although {name.name} was free"


def reads_show_what_holds(name):
    """L13, L15: what surely holds is shown, and what has surely ended is not."""
    granted = sorted((g for g in name.grants if g.surely_until() > g.ret), key=lambda g: g.ret)
    told = sorted(name.grants, key=lambda g: g.ret)
    at, told_at, holding, newest = 0, 0, [], None
    for read_op in (d for d in name.describes if d.result == "ok"):
        while at < len(granted) and granted[at].ret <= read_op.inv:
            heapq.heappush(holding, (granted[at].surely_until(), granted[at].token))
            at += 1
        while holding and holding[0][0] < read_op.inv:
            heapq.heappop(holding)
        for end, token in holding:
            if end >= read_op.ret and token not in read_op.holders:
                yield f"L13: {name.by_token[token]} was held and told, and read {read_op.id} does not show it"
        while told_at < len(told) and told[told_at].ret < read_op.inv:
            if newest is None or told[told_at].token > newest.token:
                newest = told[told_at]
            told_at += 1
        for token in read_op.holders:
            shown = name.by_token.get(token)
            if shown is None and not name.unknown:
                yield f"L13: read {read_op.id} shows token {token} on {name.name}, which nobody has"
            elif shown is not None and shown.inv > read_op.ret:
                yield f"L13: read {read_op.id} shows {shown}, which was asked for later"
            elif shown is not None and shown.is_released() and shown.release.ret < read_op.inv:
                yield f"L15: read {read_op.id} shows {shown}, which had been released"
            elif newest is not None and token < newest.token and \
                    (newest.mode == "exclusive" or shown is not None and shown.mode == "exclusive"):
                yield f"L15: read {read_op.id} shows token {token} on {name.name} after {newest} was told"


def first_come_first_served(name):
    """L7: a read that shows a queue is a witness of its order."""
    by_client = collections.defaultdict(list)
    for acquire in name.acquires:
        by_client[acquire.client].append(acquire)
    seen_at = {}  # when a waiter was surely in the queue
    for read_op in (d for d in name.describes if d.result == "ok" and d.waiters):
        queue = []
        for client in read_op.waiters:
            # What is unknown may stand in the queue still, and it may be that one who is shown.
            asked = [a for a in by_client[client] if a.inv < read_op.ret and
                     (a.ret > read_op.inv or a.result in (None, "unknown"))]
            if len(asked) == 1 and asked[0].result == "ok":
                queue.append(asked[0])
        for a, b in zip(queue, queue[1:]):
            if a.token > b.token:
                yield f"L7: read {read_op.id} shows {a} before {b}"
        for waiter in queue:
            seen_at[waiter] = min(read_op.ret, seen_at.get(waiter, FOREVER))
    late = sorted(name.grants, key=lambda g: g.inv)
    least, lowest = [None] * len(late), None
    for i in range(len(late) - 1, -1, -1):
        lowest = late[i] if lowest is None or late[i].token < lowest.token else lowest
        least[i] = lowest
    asked_at = [g.inv for g in late]
    for waiter, when in seen_at.items():
        i = bisect.bisect_right(asked_at, when)
        if i < len(late) and least[i].token < waiter.token:
            yield f"L7: {least[i]} was asked for when {waiter} stood in the queue already"


def releases_do_what_they_say(name):
    """L4, L5."""
    told = sorted(name.grants, key=lambda g: g.ret)
    for grant in name.grants:
        release = grant.release
        if release is None:
            continue
        if release.result == "ok":
            for other in told:
                if other.ret >= release.inv:
                    break
                if other.token > grant.token and not other.goes_with(grant):
                    yield f"L4: {grant} was released (op {release.id}) after {other} had been told"
                    break
        elif release.result == "fail" and grant.lost is None and release.ret - release.inv < SECOND and \
                release.inv - grant.valid < 0.1 * SECOND:
            yield f"V4: {grant} was believed and healthy, and its release (op {release.id}) was refused"


def the_log_tells_the_same(name):
    """L13, by the log's own indices, where clients see them. The index of an answer is that of the entry that gave it:
    for a repeated request, later than what it tells of."""
    seen = [g for g in name.grants if g.index is not None]
    for read_op in (d for d in name.describes if d.result == "ok"):
        for grant in (name.by_token.get(t) for t in read_op.holders):
            if grant is None:
                continue
            if grant.is_released() and grant.release.index is not None and grant.release.index <= read_op.index:
                yield f"L13: read {read_op.id} at {read_op.index} shows {grant}, ended at {grant.release.index}"
            for later in seen[bisect.bisect_right(seen, grant.token, key=lambda g: g.token):]:
                if later.index <= read_op.index and not later.goes_with(grant):
                    yield f"L13: read {read_op.id} at {read_op.index} shows {grant}, and {later} came at {later.index}"


RULES = [tokens_are_new_and_rise, nobody_holds_beside_another, grants_end_before_others_begin, refusals_name_a_holder,
         reads_show_what_holds, first_come_first_served, releases_do_what_they_say, the_log_tells_the_same]


def indices_follow_time(names):
    """L13, over all names of one group: nothing is decided at a lower index than what was told before it was asked."""
    ops = [op for name in names.values() for op in name.grants + name.describes +
           [r for r in name.releases if r.result == "ok"] if op.index is not None and op.result == "ok"]
    told = sorted(ops, key=lambda op: op.ret)
    at, highest = 0, None
    for op in sorted(ops, key=lambda op: op.inv):
        while at < len(told) and told[at].ret < op.inv:
            if highest is None or told[at].index > highest.index:
                highest = told[at]
            at += 1
        if highest is not None and op.index < highest.index:
            yield f"L13: op {op.id} ({op.kind} {op.name}) is at index {op.index}; op {highest.id}, told before it was " \
                  f"asked, at {highest.index}"


def nothing_is_lost(names):
    """V4: for runs in which every client could reach the cluster in time."""
    for name in names.values():
        for grant in name.acquires:
            if grant.lost is not None and not grant.is_left:
                yield f"V4: {grant} was lost"


def check(names, lossless=False):
    faults = [fault for name in names.values() for rule in RULES for fault in rule(name)]
    faults += indices_follow_time(names)
    if lossless:
        faults += nothing_is_lost(names)
    return faults


def summary(names):
    acquires = [a for name in names.values() for a in name.acquires]
    count = collections.Counter(a.result or "unanswered" for a in acquires)
    reads = sum(len(name.describes) for name in names.values())
    lost = sum(a.lost is not None and not a.is_left for a in acquires)
    return f"{count['ok']} grants, {count['no']} refusals, {count['unknown'] + count['unanswered']} unknown, " \
           f"{reads} reads, {lost} lost"
