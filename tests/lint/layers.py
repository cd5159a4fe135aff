"""Every folder of src/ includes only what layers.ini lets it include."""
import os
import re
import unittest

import tree

INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.MULTILINE)
# What a layer reaches outside of src/ is a library's or ours by generation; all else in <> is libc's.
LIBRARIES = {"uv.h", "raft.h", "raft", "nghttp2", "openssl", "protobuf-c", "ini.h", "jansson.h", "microhttpd.h",
             "hiredis", "fencelock", "nmmintrin.h", "immintrin.h", "sqlite3.h", "libpq-fe.h"}


def complaints(path, text, rules):
    """What is wrong with the includes of src/LAYER/..., one sentence each."""
    layer = path.split("/")[1]
    if layer not in rules:
        return [f"{path}: layers.ini has no line for {layer}/"]
    may = rules[layer]["layers"].split()
    libraries = rules[layer]["libraries"].split()
    pure = rules[layer].getboolean("pure", False)
    found = []
    for quote, header in INCLUDE.findall(text):
        head = header.split("/")[0]
        if quote == '"':
            if header.endswith(".pb-c.h"):
                fine = "generated" in libraries
            else:
                fine = head == layer or head in may
        elif head in LIBRARIES:
            fine = head in libraries
        else:
            fine = not pure or header in rules["pure"]["headers"].split()
        if not fine:
            found.append(f"{path}: {layer}/ may not include {header}")
    return found


class Layers(unittest.TestCase):
    def test_every_include_stays_in_its_layers(self):
        rules = tree.rules()
        paths = [path for path in tree.tracked(".c", ".h") if path.startswith("src/")]
        self.assertGreater(len(paths), 50)
        found = [line for path in paths for line in complaints(path, tree.read(path), rules)]
        self.assertEqual(found, [], "\n".join(found))

    def test_the_rules_have_no_cycle(self):
        rules = tree.rules()
        below = {name: rules[name]["layers"].split() for name in rules.sections() if name != "pure"}

        def reach(name, path):
            self.assertNotIn(name, path, f"{name} uses itself through {path}")
            for other in below[name]:
                reach(other, path + [name])

        for name in below:
            reach(name, [])

    def test_it_can_fail(self):
        rules = tree.rules()
        bad = {
            "src/core/a.c": ['#include "net/loop.h"', '#include <time.h>', "#include <uv.h>", "#  include <sys/socket.h>"],
            "src/node/a.c": ['#include "raft/engine.h"', "#include <raft.h>", "#include <pthread.h>"],
            "src/net/a.h": ['#include "rpc/server.h"', '#include "lock.pb-c.h"'],
            "src/cli/a.c": ['#include "client/client.h"', "#include <uv.h>"],
            "src/attic/a.c": [""],
        }
        for path, lines in bad.items():
            for line in lines:
                self.assertEqual(len(complaints(path, line + "\n", rules)), 1, f"{path}: {line}")
        self.assertEqual(complaints("src/core/a.c", '#include "base/buf.h"\n#include <stdint.h>\n', rules), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
