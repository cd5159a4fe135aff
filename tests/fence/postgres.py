"""A PostgreSQL server of a test's own: in a temporary directory, reached by a Unix socket there, gone after."""
import glob
import os
import shutil
import subprocess
import tempfile


def bin_dir():
    """The newest server that Debian's packages installed, or None."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))
    return os.path.dirname(found[-1]) if found else None


class Postgres:
    """with Postgres() as server: server.psql("SELECT 1")"""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="fl-pg-")
        self.user = "postgres" if os.getuid() == 0 else None
        if self.user:
            shutil.chown(self.dir, self.user)
        self.data = os.path.join(self.dir, "data")

    def command(self, *args):
        prefix = ["runuser", "-u", self.user, "--"] if self.user else []
        return prefix + list(args)

    def server(self, program, *args):
        subprocess.run(self.command(os.path.join(bin_dir(), program), *args), check=True, cwd=self.dir,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def __enter__(self):
        self.server("initdb", "-D", self.data, "-A", "trust", "-U", "fencelock", "--no-sync")
        options = f"-c listen_addresses='' -c unix_socket_directories='{self.dir}' -c fsync=off"
        self.server("pg_ctl", "-D", self.data, "-o", options, "-w", "-l", os.path.join(self.dir, "log"), "start")
        return self

    def __exit__(self, *_):
        if os.path.exists(os.path.join(self.data, "postmaster.pid")):
            self.server("pg_ctl", "-D", self.data, "-m", "immediate", "-w", "stop")
        shutil.rmtree(self.dir)

    def psql_command(self, stop_on_error=True):
        return [os.path.join(bin_dir(), "psql"), "-h", self.dir, "-U", "fencelock", "-d", "postgres", "-X", "-q",
                "-A", "-t", "-v", f"ON_ERROR_STOP={int(stop_on_error)}", "-v", "VERBOSITY=verbose"]

    def psql(self, sql, check=True):
        return subprocess.run(self.psql_command() + ["-c", sql], check=check, capture_output=True, text=True)

    def load(self, path):
        subprocess.run(self.psql_command() + ["-f", path], check=True, capture_output=True, text=True)

    def session(self):
        return Session(self)


class Session:
    """One open connection, to hold a transaction open while another one waits."""

    def __init__(self, server):
        self.process = subprocess.Popen(server.psql_command(stop_on_error=False), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, bufsize=1)
        self.marks = 0

    def send(self, sql):
        """Begins statements; their output comes with wait()."""
        self.marks += 1
        self.process.stdin.write(f"{sql}\n\\echo mark-{self.marks}\n")
        self.process.stdin.flush()

    def wait(self):
        lines = []
        while True:
            line = self.process.stdout.readline()
            if not line:
                raise AssertionError("psql ended: " + "".join(lines))
            if line.strip() == f"mark-{self.marks}":
                return "".join(lines)
            lines.append(line)

    def run(self, sql):
        self.send(sql)
        return self.wait()

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()
