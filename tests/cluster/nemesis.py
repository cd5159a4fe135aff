"""What goes wrong, at random: each fault begins, lasts, and ends. All chance comes from one seed."""
import collections
import random
import time


# Pairs of places that do not see each other. The leader is on place 1 as often as not.
SHAPES = {
    "2|3": [(1, 3), (1, 4), (1, 5), (2, 3), (2, 4), (2, 5)],
    "1|4": [(1, 2), (1, 3), (1, 4), (1, 5)],
    "2|2|1": [(1, 3), (1, 4), (1, 5), (2, 3), (2, 4), (2, 5), (3, 5), (4, 5)],
    "bridge": [(1, 4), (1, 5), (2, 4), (2, 5)],
    "ring": [(1, 3), (1, 4), (2, 4), (2, 5), (3, 5)],
    "sees one": [(1, 3), (1, 4), (1, 5)],
    "one pair": [(1, 2)],
}


class Nemesis:
    def __init__(self, bed, seed, start_clients, strangers):
        """`start_clients(tag)` gives a Recorder on the first host behind the nodes; `strangers` is one on another host,
        which is left to run."""
        self.bed, self.random, self.start_clients = bed, random.Random(seed), start_clients
        self.done = collections.Counter()
        self.tags = iter("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
        self.strangers = strangers
        self.clients = [start_clients(next(self.tags)) for _ in range(2)]
        self.faults = [self.kill_one, self.kill_two, self.kill_all, self.stop_one, self.stop_two, self.stop_all,
                       self.part, self.part_with_clients, self.one_way, self.bad_network, self.stop_clients, self.kill_clients, self.cut_clients]
        bed.clock_offset = lambda: self.random.randrange(10 ** 6)

    def victims(self, n):
        """Nodes; the leader is among them as often as not."""
        nodes = self.random.sample(sorted(self.bed.nodes), n)
        if self.random.random() < 0.6:
            leader = self.bed.leader(patience=30)
            nodes = [leader] + [i for i in nodes if i != leader][:n - 1]
        return nodes

    # Each begins a fault and returns what ends it.

    def check_alive(self):
        """Nodes die by our hand only."""
        for i in self.bed.nodes:
            if i not in self.bed.alive():
                raise AssertionError(f"node {i} has died by itself: {self.bed.log(i)[-3000:]}")

    def kill(self, ids):
        self.bed.kill(*ids)

        def end():
            for i in ids:
                self.bed.start(i)
        return end

    def kill_one(self):
        return self.kill(self.victims(1))

    def kill_two(self):
        return self.kill(self.victims(2))

    def kill_all(self):
        return self.kill(list(self.bed.nodes))

    def stop_nodes(self, ids):
        for i in ids:
            self.bed.stop(i)
        return lambda: [self.bed.cont(i) for i in ids]

    def stop_one(self):
        return self.stop_nodes(self.victims(1))

    def stop_two(self):
        return self.stop_nodes(self.victims(2))

    def stop_all(self):
        return self.stop_nodes(list(self.bed.nodes))

    def part_with_clients(self):
        """The leader and clients on one side: what it still tells them must not outlive what the others wait for."""
        leader = self.bed.leader(patience=30)
        for i in self.bed.nodes:
            if i != leader:
                self.bed.cut(leader, i)
                self.bed.cut(len(self.bed.nodes) + 1, i)
        time.sleep(self.random.uniform(3, 5))  # the others' grace is a TTL
        return self.bed.heal

    def part(self):
        shape = self.random.choice(sorted(SHAPES))
        first = self.victims(1)
        rest = [i for i in self.bed.nodes if i not in first]
        self.random.shuffle(rest)
        node = dict(enumerate(first + rest, 1))
        for a, b in SHAPES[shape]:
            self.bed.cut(node[a], node[b])
        self.done[shape] += 1
        return self.bed.heal

    def one_way(self):
        victim, = self.victims(1)
        way = self.random.choice(["cut * {}", "cut {} *"]).format(victim)
        self.bed.net(way)
        return self.bed.heal

    def bad_network(self):
        self.bed.net("set * * delay=0-20 loss=30 dup=20 reorder=50")
        return self.bed.heal

    def stop_clients(self):
        clients = self.random.choice(self.clients)
        clients.stop()
        return clients.cont

    def kill_clients(self):
        try:
            tag = next(self.tags)
        except StopIteration:
            return self.stop_clients()
        self.clients.pop(self.random.randrange(len(self.clients))).kill()
        return lambda: self.clients.append(self.start_clients(tag))

    def cut_clients(self):
        host = len(self.bed.nodes) + 1
        for i in self.random.sample(sorted(self.bed.nodes), self.random.randrange(1, 6)):
            for way in self.random.choice([[(host, i)], [(i, host)], [(host, i), (i, host)]]):
                self.bed.net("cut {} {}".format(*way))
        return self.bed.heal

    def strike(self):
        """One fault or two, for a while; then a little peace."""
        self.check_alive()
        faults = self.random.sample(self.faults, self.random.choice([1, 1, 2]))
        of_nodes = {self.kill_one, self.kill_two, self.kill_all, self.stop_one, self.stop_two, self.stop_all}
        if len(of_nodes.intersection(faults)) == 2 or {self.kill_all, self.stop_all}.intersection(faults):
            faults = faults[:1]  # a node cannot be killed twice, and somebody must lead to be found
        ends = []
        for fault in faults:
            ends.append(fault())
            self.done[fault.__name__] += 1
        time.sleep(self.random.choice([0.3, 1, 2, 4]) * self.random.uniform(0.5, 1.5))
        for end in ends:
            end()
        time.sleep(self.random.uniform(0.1, 1.5))

    def finish(self):
        """Everything is mended, and the clients read everything once more."""
        self.bed.heal()
        self.check_alive()
        self.bed.leader()
        for clients in self.everybody():
            clients.finish()

    def everybody(self):
        return [*self.clients, self.strangers]


