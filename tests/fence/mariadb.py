"""A MariaDB server of a test's own: in a temporary directory, reached by a Unix socket there, gone after."""
import os
import shutil
import subprocess
import tempfile
import time

SERVER = shutil.which("mariadbd", path=os.environ["PATH"] + ":/usr/sbin:/usr/libexec")
PATIENCE_S = 120


class MariaDB:
    """with MariaDB() as server: server.sql("SELECT 1")"""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="fl-my-")
        self.user = "mysql" if os.getuid() == 0 else None
        if self.user:
            shutil.chown(self.dir, self.user)
        self.data = os.path.join(self.dir, "data")
        self.socket = os.path.join(self.dir, "socket")

    def __enter__(self):
        user = [f"--user={self.user}"] if self.user else []
        subprocess.run(["mariadb-install-db", "--no-defaults", *user, f"--datadir={self.data}",
                        "--auth-root-authentication-method=normal", "--skip-test-db"], check=True,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        with open(os.path.join(self.dir, "log"), "w") as log:
            self.process = subprocess.Popen(
                [SERVER, "--no-defaults", *user, f"--datadir={self.data}", f"--socket={self.socket}", "--skip-networking",
                 "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=16M",
                 f"--pid-file={self.dir}/pid"], stdout=log, stderr=log)
        end = time.monotonic() + PATIENCE_S
        while self.sql("SELECT 1", check=False, database="mysql").returncode != 0:
            if self.process.poll() is not None or time.monotonic() > end:
                with open(os.path.join(self.dir, "log")) as log:
                    raise AssertionError("MariaDB does not start: " + log.read()[-2000:])
            time.sleep(0.05)
        self.sql("CREATE DATABASE payouts", database="mysql")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.dir)

    def command(self, user="root", database="payouts"):
        return ["mariadb", "--no-defaults", f"--socket={self.socket}", f"--user={user}", "--batch", "--skip-column-names",
                database]

    def sql(self, text, check=True, user="root", database="payouts"):
        """One connection; it stops at the first error, and its transaction is rolled back."""
        return subprocess.run(self.command(user, database), input=text, check=check, capture_output=True, text=True)

    def load(self, path):
        with open(path) as file:
            self.sql(file.read())

    def session(self):
        return Session(self)


class Session:
    """One open connection, to hold a transaction open while another one waits. It goes on after an error."""

    def __init__(self, server):
        self.process = subprocess.Popen([*server.command(), "--force", "--unbuffered"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1)
        self.marks = 0

    def send(self, text):
        """Begins statements; their output comes with wait()."""
        self.marks += 1
        self.process.stdin.write(f"{text}\nSELECT 'mark-{self.marks}';\n")
        self.process.stdin.flush()

    def wait(self):
        lines = []
        for line in self.process.stdout:
            if line.strip() == f"mark-{self.marks}":
                return "".join(lines)
            lines.append(line)
        raise AssertionError("the client ended: " + "".join(lines))

    def run(self, text):
        self.send(text)
        return self.wait()

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
