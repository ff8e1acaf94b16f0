#!/usr/bin/env python3
"""All commands that print a figure of a page, and when each was run last.

    bench/figures.py [list]             the commands, their pages, and the date and load
                                        of their last runs (make figures)
    bench/figures.py run NAME...        runs some of them, one after another
    bench/figures.py run --quick        those of half an hour together
    bench/figures.py run --all          every one of them (hours)
    bench/figures.py tables             writes the tables of pages anew

The commands are in figures.toml. What they print goes to target/figures; the date, the
load before and the machine of each run go to figures-runs.json, and the figures into the
tables of pages (figures-tables.md), between <!-- figures: NAME --> and <!-- end -->.
A line of a table whose command was not run here stays as it is.

FALKON is the program [target/release/falkon]; PYTHON an interpreter with the packages
that the commands need [python3].
"""

import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[1]
REGISTRY = ROOT / "bench/figures.toml"
RUNS = ROOT / "bench/figures-runs.json"
TABLES = ROOT / "bench/figures-tables.md"
RESULTS = ROOT / "target/figures"
LAB = ROOT / "target/release/falkon-lab"
UNKNOWN = "–"


def registry():
    return tomllib.loads(REGISTRY.read_text(encoding="utf-8"))["command"]


def last_runs():
    return json.loads(RUNS.read_text(encoding="utf-8")) if RUNS.exists() else {}


def show():
    runs = last_runs()
    print("%-19s %4s  %-10s %5s  %s" % ("", "min", "last run", "load", "command, and pages"))
    for one in registry():
        last = runs.get(one["name"], {})
        print("%-19s %4d  %-10s %5s  %s" % (one["name"], one["minutes"], last.get("date", "never"),
                                           last.get("load", ""), one["command"]))
        print("%43s %s%s" % ("", ", ".join(one["pages"]), "; needs " + one["needs"] if "needs" in one else ""))


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return "%d cores of %s, Linux %s" % (os.cpu_count(), (names or ["?"])[0], platform.release())


def run(one):
    """Runs a command; returns whether it did what it should."""
    falkon = pathlib.Path(os.environ.get("FALKON", ROOT / "target/release/falkon")).resolve()
    if not os.access(falkon, os.X_OK):
        sys.exit(f"there is no {falkon}: run make, or say where it is with FALKON=PROGRAM")
    if "falkon-lab " in one["command"] and not os.access(LAB, os.X_OK):
        sys.exit(f"there is no {LAB}: run make lab")
    RESULTS.mkdir(parents=True, exist_ok=True)
    output = RESULTS / (one["name"] + (".json" if one.get("json") else ".txt"))
    shown = RESULTS / (one["name"] + ".log")
    variables = {
        **os.environ,
        "FALKON": str(falkon),
        "FALKON_BINARY": str(falkon),
        "PATH": f"{falkon.parent}:{LAB.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "python"),
    }
    command = re.sub(r"^python3 ", os.environ.get("PYTHON", "python3") + " ", one["command"])
    stdout = output
    if one.get("json") == "PEERS_JSON":
        output.unlink(missing_ok=True)
        variables["PEERS_JSON"], stdout = str(output), shown
    elif one.get("json"):
        command += " --json"
    before, begun = os.getloadavg()[0], time.monotonic()
    print(f"{one['name']}: {one['command']} (load {before:.1f}, some {one['minutes']} min)", flush=True)
    with open(stdout, "wb") as out, open(shown, "wb") as errors:
        # Both streams go to one file where figures are not the command's output.
        done = subprocess.run(command, shell=True, executable="/bin/bash", cwd=ROOT, env=variables,
                              stdin=subprocess.DEVNULL, stdout=errors if stdout == shown else out, stderr=errors)
    seconds = time.monotonic() - begun
    if done.returncode != 0:
        print(f"    failed after {seconds:.0f} s: exit status {done.returncode}, see {shown}")
        return False
    if '"debug_build":true' in output.read_text(encoding="utf-8"):
        print("    is of a debug build, whose figures mean nothing: not noted")
        return False
    version = subprocess.run([falkon, "--version"], capture_output=True, text=True).stdout.strip()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    runs = last_runs()
    runs[one["name"]] = {"date": datetime.date.today().isoformat(), "load": round(before, 1),
                         "seconds": round(seconds), "program": version, "sources": commit.stdout.strip(),
                         "machine": machine()}
    order = [known["name"] for known in registry()]
    lines = ["%s: %s" % (json.dumps(name), json.dumps(runs[name])) for name in order if name in runs]
    RUNS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"    {seconds:.0f} s, {output.relative_to(ROOT)}")
    return True


def flat(value, name=""):
    """The numbers in JSON, by name: those of all rounds."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return
    if isinstance(value, (int, float)):
        yield name, [value]
    elif isinstance(value, list) and value and all(isinstance(one, (int, float)) for one in value):
        yield name, value
    elif isinstance(value, dict):
        own = value.get("name")
        for key, inner in value.items():
            if own and key in ("rounds", "seconds"):
                yield from flat(inner, own)
            elif key == "rows":
                for row in inner:
                    yield from flat(row)
            else:
                yield from flat(inner, ", ".join(filter(None, (name, own, key))))


def figures_of(name):
    """The output of a command's last run here; empty if there was none."""
    path = RESULTS / (name + ".json")
    if not path.exists():
        return {}
    text = path.read_text(encoding="utf-8")
    try:
        values = [json.loads(text)]
    except ValueError:
        values = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return {key: rounds for value in values for key, rounds in flat(value)}


def number(value):
    """Three digits that count, grouped; small counts as they are."""
    if isinstance(value, int) and value < 1000:
        return str(value)
    if value == 0 or abs(value) >= 1000:
        digits = len(str(int(abs(value)))) - 3
        return f"{round(value, -max(digits, 0)):,.0f}"
    decimals = max(0, 2 - int(f"{value:e}".partition("e")[2]))
    return f"{value:.{min(decimals, 6)}f}"


class Missing(Exception):
    """A figure that no run here has printed."""


class Figures:
    """Fills in templates: {COMMAND::ROW} is the median of the rounds with its spread,
    {COMMAND::ROW::m} the median alone, {COMMAND::ROW::x0.001} in other units,
    {COMMAND::ROW::/ROW} the median of the ratios of two rows, and {COMMAND::load} the load."""

    def __init__(self):
        self.known, self.runs = {}, last_runs()

    def rounds(self, command, row):
        if command not in self.known:
            self.known[command] = figures_of(command)
        if row not in self.known[command]:
            raise Missing(f"{command}: {row}")
        return self.known[command][row]

    def cell(self, found):
        command, row, *options = found[1].split("::")
        if row == "load":
            if command not in self.runs:
                raise Missing(command)
            return str(self.runs[command]["load"])
        rounds = self.rounds(command, row)
        for option in options:
            if option[0] == "x":
                rounds = [one * float(option[1:]) for one in rounds]
            elif option[0] == "/":
                rounds = [one / other for one, other in zip(rounds, self.rounds(command, option[1:]))]
        median = number(statistics.median(rounds))
        spread = [number(one) for one in (min(rounds), max(rounds))]
        if "m" in options or len(rounds) == 1:
            return median
        return f"{median} ({spread[0]} to {spread[1]})"

    def line(self, template, old):
        """A line of a table; the one that is there where a figure is missing."""
        try:
            return re.sub(r"\{([^{}]*::[^{}]*)\}", self.cell, template)
        except Missing as missing:
            head = template.split("|")[1:2]
            if old and old.split("|")[1:2] == head:
                return old
            print(f"    nothing has printed {missing}")
            return re.sub(r"\{[^{}]*::[^{}]*\}", UNKNOWN, template)


def templates():
    """The tables: name, page and lines."""
    text = TABLES.read_text(encoding="utf-8")
    for found in re.finditer(r"^<!-- figures: (\S+) in (\S+) -->\n(.*?)^<!-- end -->", text, re.M | re.S):
        yield found[1], ROOT / found[2], found[3].splitlines()


def write_tables():
    figures = Figures()
    for name, page, lines in templates():
        text = page.read_text(encoding="utf-8")
        head, tail = f"<!-- figures: {name} -->\n", "<!-- end -->"
        before, there, rest = text.partition(head)
        old, ended, after = rest.partition(tail)
        if not there or not ended:
            sys.exit(f"{page} has no {head.strip()} with an {tail} after it")
        # A table that has other lines than its template is one of another time.
        old = old.splitlines()
        old = old if len(old) == len(lines) else [None] * len(lines)
        new = [figures.line(*pair) for pair in zip(lines, old)]
        page.write_text(before + head + "\n".join(new) + "\n" + tail + after, encoding="utf-8")


def main(arguments):
    if arguments in ([], ["list"]):
        show()
    elif arguments == ["tables"]:
        write_tables()
    elif arguments[0] == "run" and len(arguments) > 1:
        known = {one["name"]: one for one in registry()}
        chosen = arguments[1:]
        if chosen == ["--all"]:
            chosen = list(known)
        elif chosen == ["--quick"]:
            chosen = [name for name, one in known.items() if one.get("quick")]
        unknown = [name for name in chosen if name not in known]
        if unknown:
            sys.exit(f"there is no {unknown[0]}; make figures lists what there is")
        ran = [run(known[name]) for name in chosen]
        write_tables()
        return 0 if all(ran) else 1
    else:
        sys.stderr.write(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
