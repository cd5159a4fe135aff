"""What every lint asks about the tree."""
import configparser
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def tracked(*suffixes):
    """The tracked files with one of these suffixes (all: none given), as paths from the root."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], check=True, capture_output=True, text=True)
    paths = [path for path in listed.stdout.split("\0") if path and os.path.exists(os.path.join(ROOT, path))]
    return [path for path in paths if not suffixes or path.endswith(suffixes)]


def read(path):
    with open(os.path.join(ROOT, path), errors="replace") as file:
        return file.read()


def rules():
    parser = configparser.ConfigParser()
    parser.read(os.path.join(ROOT, "tests", "lint", "layers.ini"))
    return parser
