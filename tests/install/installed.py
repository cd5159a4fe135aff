"""libfencelock as a distribution would have it: installed into a folder, found by pkg-config, linked shared and static,
used by a newcomer's program under valgrind. Usage: installed.py BUILD_DIR"""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(TOP, "tests", "cluster"))
from cluster import Cluster  # noqa: E402

BUILD = sys.argv.pop(1)
PROGRAM = r"""
#include <inttypes.h>
#include <stdio.h>
#include <fencelock/fencelock.h>
int main(void)
{
    struct fl_client *client = NULL;
    struct fl_lock *lock = NULL;
    int r = fl_client_new(NULL, NULL, &client, NULL);
    if (r == 0 && (r = fl_acquire(client, "newcomer", NULL, &lock, NULL)) == 0)
        printf("token %" PRIu64 "\n", fl_lock_token(lock));
    fl_lock_free(lock);
    fl_client_free(client);
    return r != 0;
}
"""


def output_of(*command, **more):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300, **more).stdout


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="fencelock-install-")
        output_of("meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", cls.dir)
        options = output_of("meson", "introspect", BUILD, "--buildoptions")
        cls.prefix = cls.dir + re.search(r'"name": "prefix", "value": "([^"]*)"', options).group(1)
        cls.libdir = os.path.join(cls.prefix, re.search(r'"name": "libdir", "value": "([^"]*)"', options).group(1))
        cls.source = os.path.join(cls.dir, "newcomer.c")
        with open(cls.source, "w") as file:
            file.write(PROGRAM)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.dir)

    def flags(self, *more):
        """What pkg-config says, with the folder that stands for the root before every path of ours."""
        env = dict(os.environ, PKG_CONFIG_PATH=os.path.join(self.libdir, "pkgconfig"))
        said = output_of("pkg-config", f"--define-variable=prefix={self.prefix}", "--cflags", "--libs", *more, "fencelock",
                         env=env)
        return shlex.split(said)

    def compile(self, name, flags, source=None):
        program = os.path.join(self.dir, name)
        output_of("cc", "-Wall", "-Wextra", "-Werror", source or self.source, "-o", program, *flags)
        return program

    def run_under_valgrind(self, program, cluster):
        done = subprocess.run(["valgrind", "-q", "--leak-check=full", "--show-leak-kinds=definite,indirect,possible",
                               "--errors-for-leak-kinds=definite,indirect,possible", "--error-exitcode=9", program],
                              env=dict(cluster.env, LD_LIBRARY_PATH=self.libdir), capture_output=True, text=True,
                              timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^token \d+\n$")

    def test_a_newcomers_program_runs_without_a_leak_shared_and_static(self):
        shared = self.compile("shared", self.flags())
        static = self.compile("static", [flag.replace("-lfencelock", "-l:libfencelock.a")
                                         for flag in self.flags("--static")])
        self.assertIn("libfencelock.so.0", output_of("ldd", shared, env=dict(os.environ, LD_LIBRARY_PATH=self.libdir)))
        self.assertNotIn("libfencelock", output_of("ldd", static))
        with Cluster(nodes=1) as cluster:
            for program in (shared, static):
                self.run_under_valgrind(program, cluster)

    def test_each_public_header_stands_alone(self):
        headers = sorted(os.listdir(os.path.join(self.prefix, "include", "fencelock")))
        self.assertEqual(headers, ["admin.h", "election.h", "fence_postgresql.h", "fence_sqlite.h", "fencelock.h"])
        for language in ("c99", "c++11"):
            for header in headers:
                source = os.path.join(self.dir, f"{header}.{'c' if language == 'c99' else 'cc'}")
                with open(source, "w") as file:
                    file.write(f"#include <fencelock/{header}>\n")
                output_of("cc", f"-std={language}", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only",
                          f"-I{self.prefix}/include", *shlex.split(output_of("pkg-config", "--cflags", "libpq")), source)

    def test_what_the_headers_promise_is_exported_and_nothing_else(self):
        promised = set()
        folder = os.path.join(self.prefix, "include", "fencelock")
        for header in os.listdir(folder):
            with open(os.path.join(folder, header)) as file:
                promised |= set(re.findall(r"^FL_API\s[^(;]*?\b(fl_\w+)\(", file.read(), re.MULTILINE))
        library = os.path.join(self.libdir, "libfencelock.so")
        exported = dict(re.findall(r" T (\w+)@@(\w+\.?\w*)", output_of("nm", "-D", "--defined-only", "--with-symbol-versions",
                                                                     library)))
        self.assertGreater(len(promised), 30)
        self.assertEqual(set(exported), promised)
        self.assertEqual(set(exported.values()), {"FENCELOCK_0.1"})

    def commands(self):
        said = output_of(os.path.join(self.prefix, "bin", "fencelock"), "--help")
        return re.findall(r"^  ([a-z][a-z-]+) {2,}", said, re.MULTILINE)

    def test_each_command_has_its_page_with_every_option(self):
        pages = {}
        for folder, _, files in os.walk(os.path.join(self.prefix, "share", "man")):
            for name in files:
                with open(os.path.join(folder, name)) as file:
                    pages[name] = file.read().replace("\\-", "-")
        self.assertGreater(len(self.commands()), 10)
        self.assertEqual(set(pages), {"fencelock.1", "fencelockd.8"} | {f"fencelock-{name}.1" for name in self.commands()})
        for name in self.commands():
            said = output_of(os.path.join(self.prefix, "bin", "fencelock"), name, "--help")
            for option in re.findall(r"^  (--[a-z-]+)", said, re.MULTILINE):
                self.assertIn(f".B {option}", pages[f"fencelock-{name}.1"])
            self.assertIn(f"fencelock-{name}", pages["fencelock.1"])

    def complete(self, env, *words):
        """What bash would offer for the last word."""
        script = """. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _fencelock; printf '%s\\n' "${COMPREPLY[@]}" """
        file = os.path.join(self.prefix, "share", "bash-completion", "completions", "fencelock")
        return output_of("bash", "-c", script, "bash", file, *words, env=env).split()

    def test_bash_completes_commands_options_and_names(self):
        with Cluster(nodes=1) as cluster:
            env = dict(cluster.env, PATH=os.path.join(self.prefix, "bin") + ":" + os.environ["PATH"])
            self.assertEqual(set(self.complete(env, "fencelock", "")) - {"--help", "--version"}, set(self.commands()))
            self.assertEqual(self.complete(env, "fencelock", "force"), ["force-release"])
            self.assertEqual(self.complete(env, "fencelock", "run", "x", "--sh"), ["--shared"])
            self.assertIn("cat", self.complete(env, "fencelock", "run", "x", "--", "ca"))
            holder = cluster.start("run", "payout/INV-1", "--", "sh", "-c", "echo held; read _", stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE)
            self.assertEqual(holder.stdout.readline(), "held\n")
            self.assertEqual(self.complete(env, "fencelock", "describe", "pay"), ["payout/INV-1"])
            holder.communicate()

    def test_the_programs_are_installed(self):
        for program in ("fencelock", "fencelockd"):
            self.assertIn("0.1.0", output_of(os.path.join(self.prefix, "bin", program), "--version"))


unittest.main(verbosity=2)
