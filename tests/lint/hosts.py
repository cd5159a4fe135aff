"""No tracked file names a host that packages come from: where this machine gets them is this machine's affair.

The names are not listed here either: they are what apt and npm are configured with where the lint runs."""
import glob
import re
import shutil
import subprocess
import unittest

import tree

URL = re.compile(r"https?://(?:[^/@\s\"']*@)?([A-Za-z0-9.-]+\.[A-Za-z]{2,})")


def hosts_in(text):
    """The hosts of the URLs in a configuration, comments left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(("#", "//"))]
    return {host.lower() for line in lines for host in URL.findall(line)}


def configured_hosts():
    hosts = set()
    for path in glob.glob("/etc/apt/sources.list") + glob.glob("/etc/apt/sources.list.d/*") + \
            glob.glob("/etc/apt/apt.conf.d/*"):
        hosts |= hosts_in(tree.read(path))
    if shutil.which("npm"):
        done = subprocess.run(["npm", "config", "get", "registry"], capture_output=True, text=True)
        hosts |= hosts_in(done.stdout)
    return hosts


def complaints(path, text, hosts):
    lower = text.lower()
    return [f"{path} names {host}" for host in sorted(hosts) if host in lower]


class Hosts(unittest.TestCase):
    def test_no_file_names_a_package_host(self):
        hosts = configured_hosts()
        found = [line for path in tree.tracked() for line in complaints(path, tree.read(path), hosts)]
        self.assertEqual(found, [], "\n".join(found))

    def test_it_can_fail(self):
        text = "# http://no.example\ndeb [signed-by=/k] http://user:secret@Packages.Example/debian stable main\n"
        hosts = hosts_in(text)
        self.assertEqual(hosts, {"packages.example"})
        self.assertEqual(complaints("a", "curl https://PACKAGES.example/x", hosts), ["a names packages.example"])
        self.assertEqual(complaints("a", "curl https://other.example/x", hosts), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
