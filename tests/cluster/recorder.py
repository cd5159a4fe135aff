"""Runs `load` or strangers.py beside a cluster and collects its history, line by line as it comes (history.py tells the form)."""
import os
import signal
import subprocess
import sys
import threading

from bed import now
from cluster import ROOT, wait_for

LOAD = os.environ.get("FENCELOCK_LOAD", os.path.join(ROOT, "build", "tests", "cluster", "load"))
STRANGERS = (sys.executable, os.path.join(ROOT, "tests", "cluster", "strangers.py"))


class Recorder:
    """One process with many clients. `lines` may be shared by several, whose tags differ."""

    def __init__(self, bed, tag, lines, program=(LOAD,), host=None, on_line=None, **options):
        self.tag, self.lines, self.on_line = tag, lines, on_line
        self.is_ready = self.is_settled = False
        command = [*program, "--endpoints", bed.endpoints(), "--tag", tag]
        for name, value in options.items():
            command += [f"--{name}", str(value)]
        self.process = subprocess.Popen(bed.host_command(host, command) if host else command, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, bufsize=1)
        self.thread = threading.Thread(target=self.collect, daemon=True)
        self.thread.start()

    def collect(self):
        for line in self.process.stdout:
            if line[0] == "#":
                self.is_ready = self.is_ready or line == "# ready\n"
                self.is_settled = line == "# settled\n"
                continue
            if line[-1] != "\n":
                break  # killed while it wrote
            self.lines.append(line)
            if self.on_line:
                self.on_line(line)

    def wait_ready(self):
        wait_for(lambda: self.is_ready, f"all clients of {self.tag} to have their locks", 120)

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)

    def cont(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        """As kill -9 does."""
        self.process.kill()
        self.process.wait()
        self.thread.join()
        self.note_end()
        self.close()

    def note_end(self):
        """What its clients held will end some time later."""
        at = int(now() * 1e9)
        asked, open_grants = {}, set()
        for words in (line.split() for line in list(self.lines)):
            if words[0] == "i" and words[2].startswith(self.tag):
                asked[words[2]] = words
            elif words[0] == "r" and words[3] == "ok" and words[2] in asked and asked[words[2]][4] == "acquire":
                open_grants.add(words[2])
            elif words[0] == "r" and words[3] == "ok" and words[2] in asked and asked[words[2]][4] == "release":
                open_grants.discard(asked[words[2]][6])
        self.lines.extend(f"e {at} {op}\n" for op in open_grants)

    def finish(self):
        """Nothing new begins; what is under way ends; everything is read once more."""
        self.process.stdin.close()
        self.process.wait(180)
        self.thread.join()
        self.process.stdout.close()
        self.note_end()
        if not self.is_settled:
            raise AssertionError(f"the clients of {self.tag} ended by themselves: {self.process.returncode}")

    def close(self):
        if self.process.poll() is None:
            self.cont()
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except BrokenPipeError:
                pass
