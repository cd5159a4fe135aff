"""The tool against a real cluster of three nodes: what an operator does by hand."""
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import tempfile
import termios
import unittest

from cluster import PATIENCE, TOOL, Cluster, wait_for


class ClusterTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(nodes=3)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__()

    def hold(self, name, *options):
        """A command under the lock that runs until its input ends; once it runs."""
        process = self.cluster.start("run", name, *options, "--", "sh", "-c", "echo $FENCELOCK_TOKEN; read line",
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.token = int(process.stdout.readline())
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        process.communicate("go\n" if process.poll() is None else None, timeout=PATIENCE)
        return process.returncode

    def test_tokens_rise_over_holders(self):
        tokens = [int(self.cluster.tool("run", "rise", "--", "sh", "-c", "echo $FENCELOCK_TOKEN", check=True).stdout)
                  for _ in range(5)]
        self.assertEqual(tokens, sorted(set(tokens)))

    def test_describe_ls_and_sessions_show_the_holder(self):
        holder = self.hold("show/a", "--client-name", "worker-7")
        told = self.cluster.json("describe", "show/a")
        self.assertEqual([(h["client"], h["token"]) for h in told["holders"]], [("worker-7", holder.token)])
        self.assertEqual([item["name"] for item in self.cluster.json("ls", "show/")["names"]], ["show/a"])
        self.assertIn("worker-7", [s["client"] for s in self.cluster.json("sessions")["sessions"]])
        self.assertIn("worker-7", self.cluster.tool("describe", "show/a").stdout)
        self.assertIn("show/a", self.cluster.tool("ls").stdout)

    def test_the_next_in_the_queue_gets_it(self):
        first = self.hold("queue")
        waiter = self.cluster.start("run", "queue", "--wait", "1m", "--", "sh", "-c", "echo $FENCELOCK_TOKEN",
                                    stdout=subprocess.PIPE)
        wait_for(lambda: self.cluster.json("describe", "queue")["waiter_count"] == 1, "a waiter")
        self.end(first)
        self.assertGreater(int(waiter.communicate(timeout=PATIENCE)[0]), first.token)

    def test_shared_and_counted_holders_share(self):
        self.hold("readers", "--shared")
        self.hold("readers", "--shared")
        self.assertEqual(self.cluster.tool("run", "readers", "--", "true").returncode, 75)
        self.hold("permits", "--limit", "2")
        self.hold("permits", "--limit", "2")
        self.assertEqual(self.cluster.tool("run", "permits", "--limit", "2", "--", "true").returncode, 75)
        self.assertEqual(self.cluster.tool("run", "permits", "--limit", "3", "--", "true").returncode, 70)

    def test_an_operator_takes_a_lock_and_the_holder_is_told_who_and_why(self):
        holder = self.hold("forced")
        self.cluster.tool("force-release", "forced", "--token", str(holder.token), "--by", "ops",
                          "--reason", "host gone", check=True)
        self.assertEqual(holder.wait(PATIENCE), 76)
        said = holder.stderr.read()
        self.assertIn("ops", said)
        self.assertIn("host gone", said)

    def test_ending_a_session_frees_its_locks(self):
        holder = self.hold("ended", "--client-name", "ended-by-hand")
        session = next(item["session_id"] for item in self.cluster.json("sessions")["sessions"]
                       if item["client"] == "ended-by-hand")
        self.cluster.tool("end-session", session, check=True)
        self.assertEqual(holder.wait(PATIENCE), 76)
        self.assertFalse(self.cluster.json("describe", "ended")["held"])

    def test_a_command_survives_a_transfer_of_leadership(self):
        holder = self.hold("transfer")
        before = self.cluster.leader()
        self.cluster.tool("transfer-leader", check=True)
        wait_for(lambda: self.cluster.leader() != before, "another leader")
        self.assertEqual(self.end(holder), 0)

    def test_bench_prints_what_it_measured(self):
        told = self.cluster.json("bench", "--seconds", "1", "--clients", "8", "--connections", "2")
        self.assertGreater(told["acquire"]["n"], 0)
        self.assertEqual(told["errors"], 0)
        told = self.cluster.json("bench", "--seconds", "1", "--rate", "200")
        self.assertEqual(told["skipped"], 0)
        self.assertEqual(told["acquire"]["n"], 100)

    def test_top_shows_the_busiest_and_the_most_contended_names(self):
        holder = self.hold("top/hot")
        waiters = [self.cluster.start("run", "top/hot", "--wait", "60s", "--", "true") for _ in range(3)]
        top = self.cluster.start("top", "--json", "--interval", "200ms", stdout=subprocess.PIPE)
        looks = map(json.loads, top.stdout)
        look = next(look for look in looks if look["contended"] and look["contended"][0]["waiters"] == 3)
        self.assertEqual(look["contended"][0]["name"], "top/hot")
        self.assertGreater(look["leader_id"], 0)
        for _ in range(5):
            self.cluster.tool("run", "top/busy", "--", "true", check=True)
        next(look for look in looks if [each for each in look["busiest"] if each["name"] == "top/busy"])
        top.kill()
        top.communicate()
        self.assertIn("NODE  ROLE", self.cluster.tool("top", "--iterations", "1", check=True).stdout)
        self.end(holder)
        self.assertEqual([waiter.wait(60) for waiter in waiters], [0, 0, 0])

    def test_tables_fit_the_terminal_and_are_whole_in_a_pipe(self):
        name = "narrow/" + "x" * 200
        self.hold(name)
        self.assertIn(name, self.cluster.tool("ls", "narrow/", check=True).stdout)
        pid, terminal = pty.fork()
        if pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 72, 0, 0))
            os.execve(TOOL, [TOOL, "ls", "narrow/"], self.cluster.env)
        shown = b""
        try:
            while data := os.read(terminal, 10000):
                shown += data
        except OSError:
            pass  # it has ended
        os.waitpid(pid, 0)
        os.close(terminal)
        lines = shown.decode().splitlines()
        self.assertGreaterEqual(len(lines), 2, shown)
        self.assertTrue(all(len(line) <= 72 for line in lines), lines)
        self.assertIn("\u2026", lines[1])

    def test_a_configuration_file_tells_where_the_cluster_is(self):
        with tempfile.TemporaryDirectory() as directory:
            os.mkdir(os.path.join(directory, "fencelock"))
            path = os.path.join(directory, "fencelock", "client.conf")
            env = {name: value for name, value in os.environ.items() if name != "FENCELOCK_ENDPOINTS"}
            env["XDG_CONFIG_HOME"] = directory

            def ask(text, **more):
                with open(path, "w") as file:
                    file.write(text)
                return subprocess.run([TOOL, "status", "--timeout", "10s"], env=dict(env, **more), capture_output=True, text=True)

            self.assertEqual(ask(f"# ours\nendpoints = {self.cluster.endpoints}\n").returncode, 0)
            self.assertEqual(ask("endpoints = 127.0.0.1:1\n", FENCELOCK_ENDPOINTS=self.cluster.endpoints).returncode, 0)
            for text, said in (("endpoint = x\n", '"endpoint" is not known'), ("nonsense\n", "line 1")):
                refused = ask(text)
                self.assertEqual(refused.returncode, 64)
                self.assertIn(said, refused.stderr)

    def test_watch_tells_grants_and_ends(self):
        watch = self.cluster.start("watch", "--prefix", "watched/", "--json", stdout=subprocess.PIPE)
        self.addCleanup(watch.communicate)
        self.addCleanup(watch.kill)
        events = iter(watch.stdout.readline, "")
        next(event for event in events if json.loads(event)["kind"] == "caught-up")
        self.cluster.tool("run", "watched/a", "--", "true", check=True)
        kinds = [json.loads(next(events))["kind"] for _ in range(2)]
        self.assertEqual(kinds, ["granted", "ended"])


class DevTest(unittest.TestCase):
    def test_a_node_that_dies_is_told_and_a_command_survives_its_leader(self):
        with Cluster(nodes=3) as cluster:
            process = cluster.start("run", "L", "--", "sh", "-c", "echo up; read line", stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE)
            self.assertEqual(process.stdout.readline(), "up\n")
            leader = cluster.leader()
            cluster.kill(leader)
            wait_for(lambda: not os.path.exists(os.path.join(cluster.nodes[leader]["dir"], "pid")), "dev to notice")
            wait_for(lambda: cluster.leader() != leader, "another leader")
            self.assertEqual(cluster.tool("run", "M", "--wait", "30s", "--", "true").returncode, 0)
            process.communicate("go\n", timeout=PATIENCE)
            self.assertEqual(process.returncode, 0)

    def test_a_restart_on_the_same_directory_keeps_ports_and_state(self):
        with tempfile.TemporaryDirectory(prefix="fencelock-dev-") as dir:
            with Cluster(nodes=3, dir=dir) as cluster:
                endpoints = cluster.endpoints
                before = int(cluster.tool("run", "L", "--", "sh", "-c", "echo $FENCELOCK_TOKEN", check=True).stdout)
            with Cluster(nodes=3, dir=dir) as cluster:
                self.assertEqual(cluster.endpoints, endpoints)
                after = int(cluster.tool("run", "L", "--wait", "30s", "--", "sh", "-c", "echo $FENCELOCK_TOKEN",
                                         check=True).stdout)
                self.assertGreater(after, before)
            refused = subprocess.run([TOOL, "dev", "--dir", dir, "--nodes", "5"], capture_output=True, text=True)
            self.assertEqual(refused.returncode, 70)
            self.assertIn("--nodes 3", refused.stderr)

    def test_nothing_is_left_when_dev_is_killed(self):
        cluster = Cluster(nodes=1)
        pid = cluster.nodes[1]["pid"]
        cluster.process.send_signal(signal.SIGKILL)
        cluster.process.wait(PATIENCE)
        wait_for(lambda: not os.path.exists(f"/proc/{pid}"), "the node to end with its dev")
        cluster.process.stdout.close()
        subprocess.run(["rm", "-r", cluster.dir], check=True)


if __name__ == "__main__":
    unittest.main()
