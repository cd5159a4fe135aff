"""Every C file is as clang-format writes it (`make format` rewrites)."""
import os
import subprocess
import tempfile
import unittest

import tree


def complaints(paths):
    if not paths:
        return []
    done = subprocess.run(["clang-format", f"--style=file:{tree.ROOT}/.clang-format", "--dry-run", *paths],
                          cwd=tree.ROOT, capture_output=True, text=True)
    found = {line.split(":")[0] for line in done.stderr.splitlines() if "clang-format-violations" in line}
    return sorted(found) if done.returncode == 0 else [done.stderr]


class Format(unittest.TestCase):
    def test_every_c_file_is_formatted(self):
        paths = tree.tracked(".c", ".h")
        self.assertGreater(len(paths), 50)
        self.assertEqual(complaints(paths), [], "make format")

    def test_it_can_fail(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "a.c")
            for text, expected in (("int f(void){return 0 ;}\n", [path]), ("int x;\n", [])):
                with open(path, "w") as file:
                    file.write(text)
                self.assertEqual(complaints([path]), expected)


if __name__ == "__main__":
    unittest.main(verbosity=2)
