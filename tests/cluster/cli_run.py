"""`fencelock run`, `acquire` and `release` against a server that can be made to misbehave (fakelock.py).
Each test's name is the promise. No daemon is needed."""
import os
import pathlib
import pty
import signal
import subprocess
import tempfile
import time
import unittest

from cluster import PATIENCE, TOOL, wait_for, within
from fakelock import FakeLock


# Where the tests were started in the background these are ignored, and what they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
for ignored in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(ignored, signal.SIG_DFL)


class RunTest(unittest.TestCase):
    def setUp(self):
        self.fake = FakeLock()
        self.env = dict(os.environ, FENCELOCK_ENDPOINTS=self.fake.endpoint)
        self.processes = []
        self.dir = tempfile.TemporaryDirectory(prefix="fencelock-run-")

    def tearDown(self):
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.communicate(timeout=PATIENCE)
        self.fake.is_silent = False
        self.fake.stop()
        self.dir.cleanup()

    def path(self, name):
        return os.path.join(self.dir.name, name)

    def tool(self, *args, **more):
        return subprocess.run([TOOL, *args], env=self.env, capture_output=True, text=True, timeout=PATIENCE, **more)

    def start(self, *args, **more):
        process = subprocess.Popen([TOOL, *args], env=self.env, text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, **more)
        self.processes.append(process)
        return process

    def shell(self, script):
        """A run of a shell script with a short ttl, once it has said "up"."""
        process = self.start("run", "L", "--ttl", "1s", "--", "sh", "-c", script)
        self.expect_line(process, "up\n")
        return process

    def expect_line(self, process, line):
        said = within(process.stdout.readline, f"the line {line!r} of the command")
        self.assertEqual(said, line, "" if said else self.rest(process.stderr))

    def lives(self, group):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        return True

    def rest(self, stream):
        return within(stream.read, "the end of what the tool and its command say")

    def expect_gone(self, process):
        """All that held the command's output is gone."""
        within(process.stdout.read, "the end of all that the command started")

    # Exit codes and environment (C16, C18).

    def test_the_exit_code_is_the_commands_own(self):
        for code in (0, 1, 2, 42, 64, 255):
            self.assertEqual(self.tool("run", "L", "--", "sh", "-c", f"exit {code}").returncode, code)
        self.assertEqual(self.tool("run", "L", "--", "sh", "-c", "kill -9 $$").returncode, 128 + 9)
        self.assertEqual(self.tool("run", "L", "--", "/no/such/command").returncode, 127)
        self.assertEqual(self.tool("run", "L", "--", "/etc/passwd").returncode, 126)
        self.assertEqual(self.fake.holders("L"), [])

    def test_codes_of_its_own_are_distinct(self):
        self.assertEqual(self.tool("run", "L").returncode, 64)
        self.assertEqual(self.tool("run", "L", "--no-such", "--", "true").returncode, 64)
        self.assertEqual(self.tool("run", "L", "--endpoints", "127.0.0.1:1", "--timeout", "300ms", "--", "true").returncode, 69)
        holder = self.shell("echo up; sleep 600")
        held = self.tool("run", "L", "--client-name", "second", "--", "true")
        self.assertEqual(held.returncode, 75)
        self.assertIn("is held by", held.stderr)
        self.assertEqual(self.tool("run", "L", "--wait", "200ms", "--", "true").returncode, 75)
        self.assertEqual(self.tool("run", "L", "--conflict-exit-code", "9", "--", "true").returncode, 9)
        self.assertEqual(self.tool("run", "L", "--endpoints", "127.0.0.1:1", "--timeout", "300ms",
                                   "--unreachable-exit-code", "8", "--", "true").returncode, 8)
        holder.terminate()
        self.assertEqual(holder.wait(PATIENCE), 128 + signal.SIGTERM)
        loser = self.start("run", "L", "--lost-exit-code", "7", "--", "sh", "-c", "echo up; exec sleep 600")
        self.expect_line(loser, "up\n")
        self.fake.lose("L", "ops", "stuck")
        self.assertEqual(loser.wait(PATIENCE), 7)

    def test_streams_and_arguments_are_the_commands(self):
        done = self.tool("run", "L", "--", "sh", "-c", "cat; echo $FENCELOCK_NAME $FENCELOCK_TOKEN; echo $1", "sh",
                         "--json", input="in\n")
        self.assertEqual(done.stdout, "in\nL 1\n--json\n")
        self.assertEqual(done.stderr, "")

    def test_no_descriptor_of_ours_leaks(self):
        plain = subprocess.run(["ls", "/proc/self/fd"], capture_output=True, text=True, timeout=PATIENCE).stdout
        self.assertEqual(self.tool("run", "L", "--", "ls", "/proc/self/fd").stdout, plain)

    # Signals (C15).

    def test_signals_are_passed_on_and_the_lock_is_released_after_the_command(self):
        process = self.shell("trap 'echo usr1' USR1; trap 'echo hup' HUP; trap 'sleep 0.3; exit 7' TERM; echo up;"
                             "while :; do sleep 0.02; done")
        for number, said in ((signal.SIGUSR1, "usr1\n"), (signal.SIGHUP, "hup\n")):
            process.send_signal(number)
            self.expect_line(process, said)
        process.terminate()
        self.assertEqual(process.wait(PATIENCE), 7)
        self.assertEqual(self.fake.holders("L"), [])

    def test_every_signal_that_is_not_about_the_tool_itself_reaches_the_command(self):
        own = {signal.SIGCHLD, signal.SIGTTOU, signal.SIGTTIN, signal.SIGPIPE, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE,
               signal.SIGILL, signal.SIGTRAP, signal.SIGSYS, signal.SIGABRT, signal.SIGKILL, signal.SIGSTOP}
        passed = sorted(int(number) for number in signal.valid_signals() - own)
        listen = f"""import signal
signals = {passed}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
print("up", flush=True)
while True:
    print(int(signal.sigwait(signals)), flush=True)"""
        process = self.start("run", "L", "--", "/usr/bin/python3", "-c", listen)
        self.expect_line(process, "up\n")
        for number in passed:
            process.send_signal(number)
            self.expect_line(process, f"{number}\n")
        self.assertGreater(len(passed), 40)

    @unittest.skipUnless(os.geteuid() == 0, "needs root for a process namespace")
    def test_it_works_as_the_first_process_of_a_container(self):
        contained = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", TOOL, "run", "L", "--"]
        # A daemon that left its parent is reaped when it ends, and the command's own code comes back.
        script = "(setsid sleep 0.05 & ) ; sleep 0.5; grep -l '^State:.Z' /proc/[0-9]*/status; exit 7"
        done = subprocess.run([*contained, "sh", "-c", script], env=self.env, capture_output=True, text=True,
                              timeout=PATIENCE)
        self.assertEqual((done.returncode, done.stdout), (7, ""), done.stderr)
        process = subprocess.Popen([*contained, "sh", "-c", "trap 'exit 9' TERM; echo up; while :; do sleep 0.02; done"],
                                   env=self.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.processes.append(process)
        self.expect_line(process, "up\n")
        with open(f"/proc/{process.pid}/task/{process.pid}/children") as children:
            os.kill(int(children.read()), signal.SIGTERM)  # to the tool, number one in there
        self.assertEqual(process.wait(PATIENCE), 9)
        self.assertEqual(self.fake.holders("L"), [])

    def test_a_signal_while_waiting_leaves_the_queue(self):
        holder = self.shell("echo up; sleep 600")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            waiter = self.start("run", "L", "--wait", "1m", "--", "echo", "never")
            wait_for(lambda: self.fake.waiters("L") == 1, "a waiter")
            waiter.send_signal(number)
            self.assertEqual(waiter.wait(PATIENCE), 128 + number)
            self.assertEqual(self.rest(waiter.stdout), "")
            wait_for(lambda: self.fake.waiters("L") == 0, "an empty queue")
        holder.terminate()

    # Losing the lock (C11, C14).

    def test_a_silent_server_ends_the_command_before_the_lease(self):
        script = "trap '' TERM; echo up; sleep 600 & setsid sleep 600 & while :; do sleep 0.02; done"
        process = self.shell(script)
        self.fake.is_silent = True
        self.expect_gone(process)
        self.assertEqual(len(self.fake.holders("L")), 1)  # the server had not ended the session yet
        self.assertEqual(process.wait(PATIENCE), 76)
        self.assertIn("lease", self.rest(process.stderr))

    def test_a_stopped_tool_does_not_keep_the_command_alive(self):
        process = self.shell("echo up; echo $$; sleep 600 & while :; do sleep 0.02; done")
        group = int(within(process.stdout.readline, "the group's number"))
        process.send_signal(signal.SIGSTOP)
        wait_for(lambda: not self.lives(group), "the command's group to be dead")
        self.assertEqual(len(self.fake.holders("L")), 1)
        process.send_signal(signal.SIGCONT)
        self.assertEqual(process.wait(PATIENCE), 76)

    def test_a_killed_tool_takes_the_command_along_and_the_lock_is_free_at_once(self):
        process = self.start("run", "L", "--ttl", "1h", "--", "sh", "-c",
                             "trap '' TERM INT HUP; echo up; setsid sleep 600 & sleep 600")
        self.expect_line(process, "up\n")
        process.kill()
        self.expect_gone(process)
        wait_for(lambda: self.fake.holders("L") == [], "the lock to be free, long before its ttl")

    def test_an_operator_takes_the_lock_and_the_command_ends(self):
        process = self.shell("echo up; sleep 600")
        self.assertEqual(self.tool("force-release", "L", "--token", "99", "--reason", "x").returncode, 76)
        done = self.tool("force-release", "L", "--token", "1", "--reason", "stuck", "--by", "ops")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(process.wait(PATIENCE), 76)
        self.assertIn("ops", self.rest(process.stderr))

    def test_a_session_that_the_server_forgot_ends_the_command(self):
        process = self.shell("echo up; sleep 600")
        self.fake.end_sessions(tell=False)
        self.assertEqual(process.wait(PATIENCE), 76)

    def test_a_broken_stream_is_resumed_and_nothing_is_lost(self):
        process = self.shell("echo up; read line; echo $line")
        process.terminate()
        process.wait(PATIENCE)
        process = self.start("run", "L", "--ttl", "2s", "--", "sh", "-c", "echo up; sleep 3; echo done")
        self.expect_line(process, "up\n")
        for _ in range(3):
            self.fake.drop_streams()
            resumed = self.fake.resumed
            wait_for(lambda: self.fake.resumed > resumed, "a resume")
        self.assertEqual(process.wait(PATIENCE), 0)
        self.assertEqual(self.rest(process.stdout), "done\n")
        self.assertEqual(self.fake.opened, 2)

    def test_heartbeats_keep_it_for_many_ttls(self):
        done = self.tool("run", "L", "--ttl", "2s", "--", "sleep", "7")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(self.fake.opened, 1)
        self.assertLessEqual(self.fake.heartbeats, 13)  # C26: a third of the ttl, never faster

    # The terminal.

    def test_the_terminal_is_the_commands_and_comes_back(self):
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(TOOL, [TOOL, "run", "L", "--", "sh", "-c", "read line; echo got $line; exec sleep 600"], self.env)
        os.write(terminal, b"hello\n")
        seen = b""
        while b"got hello" not in seen:
            seen += within(lambda: os.read(terminal, 1000), f"the command's words on its terminal, after {seen}")
        os.write(terminal, b"\x03")
        _, status = within(lambda: os.waitpid(pid, 0), f"the end after ^C of tool {pid}")
        self.assertEqual(os.waitstatus_to_exitcode(status), 128 + signal.SIGINT)
        os.close(terminal)

    # acquire and release (C64).

    def test_acquire_leaves_a_keeper_and_release_ends_it(self):
        file = self.path("db.lock")
        done = self.tool("acquire", "it's", "--ttl", "2s", "--hold-session", file)
        self.assertEqual((done.returncode, done.stdout), (0, "token 1\n"))
        time.sleep(3.5)  # more than a ttl
        self.assertEqual(self.fake.holders("it's"), [1])
        told = subprocess.run(["sh", "-c", f". {file}; echo $FENCELOCK_TOKEN $FENCELOCK_NAME"], capture_output=True, text=True,
                              timeout=PATIENCE)
        self.assertEqual(told.stdout, "1 it's\n")
        again = self.tool("acquire", "it's", "--hold-session", file)
        self.assertEqual(again.returncode, 70)
        self.assertEqual(self.tool("release", file).returncode, 0)
        self.assertEqual(self.fake.holders("it's"), [])
        self.assertFalse(os.path.exists(file))

    def test_a_keeper_that_lost_the_lock_says_so(self):
        file = self.path("db.lock")
        self.assertEqual(self.tool("acquire", "L", "--hold-session", file).returncode, 0)
        self.fake.lose("L", "ops", "stuck")
        wait_for(lambda: "FENCELOCK_LOST" in pathlib.Path(file).read_text(), "the loss in the file")
        done = self.tool("release", file)
        self.assertEqual(done.returncode, 76)
        self.assertIn("operator", done.stderr)

    def test_acquire_says_who_holds_it(self):
        holder = self.shell("echo up; sleep 600")
        done = self.tool("acquire", "L", "--hold-session", self.path("x"))
        self.assertEqual(done.returncode, 75)
        self.assertIn("is held by", done.stderr)
        self.assertFalse(os.path.exists(self.path("x")))
        holder.terminate()

    def test_a_limit_is_said_with_its_reason(self):
        self.fake.refuses = True
        done = self.tool("run", "L", "--json", "--", "true")
        self.assertEqual(done.returncode, 70)
        self.assertIn('"reason":"RATE_LIMITED"', done.stdout)


if __name__ == "__main__":
    unittest.main()
