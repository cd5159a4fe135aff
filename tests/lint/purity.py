"""core/ and node/ ask the system for nothing: no clock, no socket, no libuv, no libraft.

Their archives' undefined symbols are followed through base/ and core/, object by object, so that a clock cannot
hide behind a function of ours."""
import os
import subprocess
import tempfile
import unittest

import tree

BUILD = os.environ.get("FENCELOCK_BUILD", os.path.join(tree.ROOT, "build"))
CC = os.environ.get("FENCELOCK_CC", "cc").split()


def objects(archive):
    """Per object of the archive: the symbols that it defines, and those that it wants."""
    listed = subprocess.run(["nm", "-g", archive], check=True, capture_output=True, text=True).stdout
    found, name = {}, None
    for line in listed.splitlines():
        words = line.split()
        if line.endswith(":"):
            name = line[:-1]
            found[name] = (set(), set())
        elif len(words) == 2 and words[0] in "UwV":
            found[name][1].add(words[1])
        elif len(words) == 3:
            found[name][0].add(words[2])
    return found


def complaints(archive, below, allowed):
    """The symbols that the archive reaches, itself or through the archives below it, and that nobody may."""
    known = [entry for path in below for entry in objects(path).items()]
    definer = {symbol: (name, wants) for name, (defines, wants) in known for symbol in defines}
    found, seen = [], set()
    todo = list(objects(archive).items())
    own = {symbol for _, (defines, _) in todo for symbol in defines}
    while todo:
        name, (_, wants) = todo.pop()
        for symbol in sorted(wants - own - seen):
            seen.add(symbol)
            if symbol in definer:
                other, more = definer[symbol]
                todo.append((f"{name} -> {other}", (set(), more)))
            elif symbol not in allowed:
                found.append(f"{name} wants {symbol}")
    return found


def archive_of(layer):
    return os.path.join(BUILD, "src", layer, f"libfencelock-{layer}.a")


class Purity(unittest.TestCase):
    def setUp(self):
        self.rules = tree.rules()
        self.allowed = set(self.rules["pure"]["symbols"].split())

    def test_the_pure_layers_ask_for_nothing(self):
        pure = [name for name in self.rules.sections() if self.rules[name].getboolean("pure", False)]
        self.assertEqual(pure, ["core", "node"])
        for layer in pure:
            below = [archive_of(name) for name in self.rules[layer]["layers"].split()]
            found = complaints(archive_of(layer), below, self.allowed)
            self.assertEqual(found, [], "\n".join(found))

    def test_it_can_fail(self):
        with tempfile.TemporaryDirectory() as directory:
            def archive(name, text):
                path = os.path.join(directory, name)
                with open(path + ".c", "w") as source:
                    source.write(text)
                subprocess.run([*CC, "-c", path + ".c", "-o", path + ".o"], check=True)
                subprocess.run(["ar", "rcs", path + ".a", path + ".o"], check=True)
                return path + ".a"

            for wanted in ("clock_gettime", "socket", "uv_now", "raft_step", "random", "open"):
                guilty = archive("guilty", f"void {wanted}(void); void f(void); void f(void) {{ {wanted}(); }}\n")
                self.assertEqual(len(complaints(guilty, [], self.allowed)), 1, wanted)
                behind = archive("behind", "void f(void); void g(void); void g(void) { f(); }\n")
                self.assertEqual(len(complaints(behind, [guilty], self.allowed)), 1, f"{wanted} behind f")
            fine = archive("fine", "#include <stdlib.h>\nvoid f(void *p); void f(void *p) { free(p); }\n")
            self.assertEqual(complaints(fine, [], self.allowed), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
