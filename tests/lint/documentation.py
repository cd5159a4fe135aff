"""The documentation's links lead somewhere, and docs/testing.md explains the ids that the tree names."""
import os
import re
import unittest

import tree

LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
# R, L, T, F, V: properties; C: failures. Two digits and a capital between other letters are something else.
ID = re.compile(r"(?<![\w-])(?:[RLTFV]\d{1,2}|C\d{2})(?![\w.-])")


def broken_links(path, text):
    base = os.path.dirname(path)
    return [f"{path}: {target}" for target in LINK.findall(text)
            if "://" not in target and not os.path.exists(os.path.join(tree.ROOT, base, target))]


def explained(text):
    return set(re.findall(r"^\| ([A-Z]\d{1,2}) \|", text, re.MULTILINE))


def named(text):
    return set(ID.findall(text))


def untrue_rows(text, tests, bugs):
    """What the table of failures names and the tree has not: `file.c:test` under tests/, `LAYER_BUG`."""
    found = []
    for row in re.findall(r"^\| C\d\d \|.*$", text, re.MULTILINE):
        for thing in re.findall(r"`([^`]+)`", row):
            file, _, test = thing.partition(":")
            if file not in bugs and test not in tests.get(file, ()) and not (file in tests and test == ""):
                found.append(f"{row[2:5]}: {thing}")
    return found


class Documentation(unittest.TestCase):
    def test_links_lead_somewhere(self):
        found = [line for path in tree.tracked(".md") for line in broken_links(path, tree.read(path))]
        self.assertEqual(found, [], "\n".join(found))

    def test_every_id_is_explained(self):
        known = explained(tree.read("docs/testing.md"))
        self.assertGreater(len(known), 50)
        found = [f"{path}: {id}" for path in tree.tracked(".c", ".h", ".py", ".proto", ".sql", ".md")
                 if path != "tests/lint/documentation.py" for id in sorted(named(tree.read(path)) - known)]
        self.assertEqual(found, [], "\n".join(found))

    def test_what_the_failures_name_is_there(self):
        tests = {os.path.basename(path): set(re.findall(r"\w+", tree.read(path)))
                 for path in tree.tracked(".c", ".py") if path.startswith("tests/")}
        bugs = set(re.findall(r"X\((\w+),", tree.read("src/base/bugs.h")))
        found = untrue_rows(tree.read("docs/testing.md"), tests, bugs)
        self.assertEqual(found, [], "\n".join(found))

    def test_it_can_fail(self):
        self.assertEqual(untrue_rows("| C01 | x | `a.c:b`, `a.c`, `a.c:z`, `n.c` | `CORE_X`, `CORE_Y` |",
                                     {"a.c": {"b"}}, {"CORE_X"}), ["C01: a.c:z", "C01: n.c", "C01: CORE_Y"])
        self.assertEqual(broken_links("docs/a.md", "[x](no-such.md) [y](http://else.where/) [z](testing.md#r)"),
                         ["docs/a.md: no-such.md"])
        self.assertEqual(named("/* T2, C03 (L10): not C0, UTF8, FL_E_R1 or x-T1 */"), {"T2", "C03", "L10"})
        self.assertEqual(explained("| T2 | a |\n| C03 | b |\nT3\n"), {"T2", "C03"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
