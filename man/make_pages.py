"""Manual pages from what --help says, so that the two never differ.
Usage: make_pages.py TOOL DAEMON VERSION OUT_DIR"""
import os
import re
import subprocess
import sys

TOOL, DAEMON, VERSION, OUT = sys.argv[1:5]
OPTION = re.compile(r"^  (--\S+(?: \S+)?)\s{2,}(\S.*)$")


def said(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


def blocks(lines):
    """Runs of lines between blank ones."""
    block = []
    for line in [*lines, ""]:
        if line.strip():
            block.append(line)
        elif block:
            yield block
            block = []


def literal(lines):
    return [".PP", ".nf", ".RS 4", *map(roff, lines), ".RE", ".fi"]


def options(lines):
    out = []
    for line in lines:
        match = OPTION.match(line)
        if match:
            out += [".TP", ".B " + roff(match.group(1)), roff(match.group(2))]
        else:
            out.append(roff(line.strip()))
    return out


def body(lines):
    """A block is options, something to be kept as it is, or a paragraph."""
    out = []
    for block in blocks(lines):
        if OPTION.match(block[0]):
            out += [".SH OPTIONS", *options(block)]
        elif re.match(r"Examples?:$", block[0]):
            out += [".SH EXAMPLES", *literal(line[2:] if line.startswith("  ") else line for line in block[1:])]
        elif any(line.startswith("  ") for line in block):
            first = next(i for i, line in enumerate(block) if line.startswith("  "))
            out += [".PP", *map(roff, block[:first]), *literal(line[2:] for line in block[first:])]
        else:
            heading = '.SH "EXIT STATUS"' if block[0].startswith("Exit codes") else ".PP"
            out += [heading, *map(roff, block)]
    return out


def write(name, section, summary, synopsis, rest, see):
    page = [f'.TH {name.upper()} {section} "" "Fencelock {VERSION}" "Fencelock"',
            ".SH NAME", f"{roff(name)} \\- {roff(summary)}",
            ".SH SYNOPSIS", ".nf", *map(roff, synopsis), ".fi",
            ".SH DESCRIPTION", *rest,
            ".SH SEE ALSO", ", ".join(f".BR {roff(other)} ({number})" if i == 0 else f"{roff(other)}({number})"
                                      for i, (other, number) in enumerate(see))]
    with open(os.path.join(OUT, f"{name}.{section}"), "w") as file:
        file.write("\n".join(page) + "\n")


def commands():
    return re.findall(r"^  ([a-z][a-z-]+) +(\S.*)$", "\n".join(said(TOOL, "--help")).split("COMMAND [OPTIONS]")[1]
                      .split("Each has")[0], re.MULTILINE)


def main():
    names = commands()
    for name, summary in names:
        lines = said(TOOL, name, "--help")
        end = lines.index("")
        write(f"fencelock-{name}", 1, summary, lines[:end], body(lines[end:]), [("fencelock", 1)])
    general = said(TOOL, "--help")
    listed = [part for name, summary in names for part in (".TP", f".BR {roff('fencelock-' + name)} (1)", roff(summary))]
    tail = general[next(i for i, line in enumerate(general) if line.startswith("Each has")):]
    write("fencelock", 1, "locks with fencing tokens", ["fencelock COMMAND [OPTIONS]"],
          ["The command\\-line tool of a Fencelock cluster.", *listed, *body(tail)],
          [(f"fencelock-{name}", 1) for name, _ in names] + [("fencelockd", 8)])
    daemon = said(DAEMON, "--help")
    end = daemon.index("")
    write("fencelockd", 8, "one node of a Fencelock cluster, or a gateway", [daemon[0].removeprefix("Usage: ")],
          body(daemon[end:]), [("fencelock", 1)])


main()
