#!/usr/bin/env python3
"""How many small defects, planted one by one, the tests find.

    tests/mutants.py [--seed N] [--core 210] [--wire 30] [--journal 30] [--keys 30]
                     [--again FILE] [--match WORD ...] [--jobs 2] [--json FILE] [--list]

Draws a sample of mutants (an operator exchanged, a function's body replaced by a
constant, a match arm or guard removed) of four parts, and runs the tests of the
part on each. A mutant that no test fails on has survived: either the tests have
a hole there, or the change makes no difference. One build has all mutants of a
part that compile beside one another.

The Rust mutants are cargo-mutants', those of the Python package's keys are
cosmic-ray's; both are installed below target/ where they are missing. Left out:
what is written for people (`Debug`, `Display`) and the checkers that tests alone
call. FALKON is the program that the Python tests run [target/debug/falkon]; they
need the environment that tests/python.sh makes.

A mutant has the name of its file and of what is changed in which function, not of a
line: a seed draws the same sample as long as these functions stay as they are, and
--again judges those that a file names (a line each, as --list prints them).
"""

import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOLS = ROOT / "target/mutants"
PYTHON_TESTS = ROOT / "target/python-tests/bin/python"
EXCLUDE = ["--exclude-re", r"impl (fmt::)?(Debug|Display) for", "--exclude", "**/check.rs", "--exclude", "**/check/**"]
KILLED_MIN = 0.95
# Tests that take longer than so many times what they take as they are have found it.
SLOWER_MAX = 5
KEYS = ["_keys.py", "_sources.py", "_unchanged.py"]
KEYS_TESTS = ["test_sources", "test_changes", "test_programs", "test_run"]
KEYS_SECONDS_MAX = 600

# Tests that count the instructions of unoptimised programs.
SKIP = ["--skip=a_task_takes_no_more_instructions", "--skip=no_request_costs_more"]
# A mutant that is built alone has no time of its own to compare with.
ALONE_SECONDS_MAX = 300

# What is mutated, what judges it, and the library that it is in.
PARTS = {
    "core": (["--package", "falkon-core"], [], "crates/core/src/lib.rs"),
    "wire": (["--package", "falkon-wire"], [], "crates/wire/src/lib.rs"),
    "journal": (
        ["--package", "falkon-dispatcher", "--file", "crates/dispatcher/src/journal*", "--file", "crates/dispatcher/src/pages.rs"],
        ["--lib", "--test", "journal", "--test", "journal_crash", "--test", "pages"],
        "crates/dispatcher/src/lib.rs",
    ),
}

# What the sources of a part gain: the number of the mutant that a run is about.
PLANTED = """
#[doc(hidden)]
pub mod planted {
    static NUMBER: std::sync::LazyLock<u32> =
        std::sync::LazyLock::new(|| std::env::var("FALKON_MUTANT").map_or(0, |it| it.parse().unwrap()));
    pub fn number() -> u32 {
        *NUMBER
    }
}
"""


def run(words, **options):
    return subprocess.run([str(word) for word in words], cwd=ROOT, text=True, **options)


def revision():
    """The commit that is judged, which has all that the sources here have."""
    if run(["git", "status", "--porcelain", "crates", "python"], check=True, stdout=subprocess.PIPE).stdout:
        sys.exit("what is not committed would not be judged: commit it first")
    return run(["git", "rev-parse", "HEAD"], check=True, stdout=subprocess.PIPE).stdout.strip()


def cargo_mutants():
    """The program, installed where there is none."""
    found = shutil.which("cargo-mutants") or TOOLS / "bin/cargo-mutants"
    if not pathlib.Path(found).exists():
        print("installing cargo-mutants", flush=True)
        run(["cargo", "install", "--quiet", "--locked", "--root", TOOLS, "cargo-mutants"], check=True)
    return found


def cosmic_ray():
    home = TOOLS / "cosmic-ray"
    if not (home / "bin/cosmic-ray").exists():
        print("installing cosmic-ray", flush=True)
        run([PYTHON_TESTS, "-m", "venv", home], check=True)
        run([home / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "cosmic-ray"], check=True)
    return home / "bin/cosmic-ray"


def named(described):
    """A name for each of these descriptions, in the order of the source: those that are
    the same are numbered from the second on."""
    seen, names = collections.Counter(), []
    for description in described:
        seen[description] += 1
        names.append(description if seen[description] == 1 else f"{description} #{seen[description]}")
    return names


def drawn(count, seed, names):
    """A sample, in the order of the source. Which mutants there are besides makes no
    difference to whether one goes before another."""
    rank = {name: hashlib.sha256(f"{seed} {name}".encode()).digest() for name in names}
    chosen = set(sorted(names, key=rank.get)[:count])
    return [name for name in names if name in chosen]


class Planted:
    """Mutants of Rust sources, all in one build, each behind a number.

    A function that has mutants becomes a `match` on FALKON_MUTANT: an arm with the
    body of each, and the function as it is for every other number.
    """

    def __init__(self, tree, mutants):
        self.tree, self.alone = tree, []
        # Of each file the functions by their lines, and of each its mutants by number.
        self.files = collections.defaultdict(lambda: collections.defaultdict(dict))
        for number, mutant in mutants.items():
            span = mutant["function"] and mutant["function"]["span"]
            if span:
                self.files[mutant["file"]][span["start"]["line"], span["end"]["line"]][number] = mutant
            else:
                self.alone.append(number)

    def write(self):
        """Writes the sources, and notes which lines are whose."""
        self.arms, self.functions = [], []
        for file, functions in self.files.items():
            original = (ROOT / file).read_text().splitlines(keepends=True)
            lines, done = [], 0
            for (first, last), mutants in sorted(functions.items()):
                lines += original[done : first - 1]
                lines += self.function(file, original, (first, last), mutants, len(lines))
                done = last
            (self.tree / file).write_text("".join(lines + original[done:]))

    def function(self, file, original, span, mutants, above):
        """The lines of one function with its mutants; `above` lines stand before it."""
        first, last = span
        plain = "".join(original[first - 1 : last])
        opening = body_of(plain)
        if opening is None:
            self.leave(mutants)
        if not mutants:
            return plain.splitlines(keepends=True)
        text = plain[:opening] + "{ match crate::planted::number() {\n"
        for number, mutant in mutants.items():
            changed = changed_lines(original, mutant["diff"], span)
            before = above + text.count("\n")
            text += f"{number} => {changed[body_of(changed):].rstrip()}\n"
            self.arms.append((file, before + 1, above + text.count("\n"), [number]))
        text += f"_ => {plain[opening:].rstrip()}\n}} }}\n"
        self.functions.append((file, above + 1, above + text.count("\n"), list(mutants)))
        return text.splitlines(keepends=True)

    def leave(self, numbers):
        """Takes these out: each is built alone."""
        numbers = set(numbers)
        self.alone += numbers
        for functions in self.files.values():
            for mutants in functions.values():
                for number in numbers & set(mutants):
                    del mutants[number]

    def blamed(self, spans):
        """The mutants that errors at these places are about."""
        for places in (self.arms, self.functions):
            found = {n for file, line in spans for at, a, b, ns in places if at == file and a <= line <= b for n in ns}
            if found:
                return found
        return set()


def body_of(text):
    """Where the body of the function begins that the text holds; None if it cannot have arms."""
    scanner = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|\bfn\b|\bconst\b|[(){}\[\]]', re.S)
    depth, named = 0, False
    for found in scanner.finditer(text):
        word = found.group()
        if word == "fn":
            named = True
        elif word == "const" and not named and depth == 0:
            return None
        elif word in ("(", "["):
            depth += 1
        elif word in (")", "]"):
            depth -= 1
        elif word == "{" and named and depth == 0:
            return found.start()
    return None


def changed_lines(original, diff, span):
    """The lines of the file that the span names, once the diff is applied."""
    first, last = span
    lines, at = [], 1
    for line in diff.splitlines(keepends=True)[2:]:
        if line.startswith("@@"):
            until = int(re.match(r"@@ -(\d+)", line).group(1))
            lines += [(n, original[n - 1]) for n in range(at, until)]
            at = until
        elif line.startswith("+"):
            lines.append((at, line[1:]))
        elif line.startswith("-"):
            at += 1
        else:
            lines.append((at, original[at - 1]))
            at += 1
    lines += [(n, original[n - 1]) for n in range(at, len(original) + 1)]
    return "".join(text for n, text in lines if first <= n <= last)


class Rust:
    """Mutants of one part that is written in Rust."""

    def __init__(self, part, options):
        self.part, self.options = part, options
        self.selection, self.judges, self.library = PARTS[part]
        self.package = self.selection[self.selection.index("--package") + 1]
        self.tree = TOOLS / "tree"
        if not self.tree.exists():
            run(["git", "worktree", "add", "--quiet", "--detach", self.tree, "HEAD"], check=True)
        run(["git", "-C", self.tree, "checkout", "--quiet", "--detach", "--force", revision()], check=True)
        self.environment = os.environ | {
            "CARGO_TARGET_DIR": str(options.target.resolve()),
            "RUSTFLAGS": "--cap-lints=warn",
            "CARGO_MANIFEST_DIR": str(self.tree / "crates" / self.package.removeprefix("falkon-")),
            # Tests are built once and run hundreds of times.
            "CARGO_PROFILE_DEV_OPT_LEVEL": "1",
        }

    def names(self):
        words = [cargo_mutants(), "mutants", "--list", "--json", "--diff", *self.selection, *EXCLUDE]
        found = json.loads(run(words, check=True, stdout=subprocess.PIPE).stdout)
        # A name as cargo-mutants has it is FILE:LINE:COLUMN: DESCRIPTION.
        described = [re.sub(r":\d+:\d+: ", ": ", mutant["name"], count=1) for mutant in found]
        self.mutants = dict(zip(named(described), found))
        return list(self.mutants)

    def judge(self, names):
        """What became of each: a list of (name, outcome)."""
        numbered = {number: self.mutants[name] for number, name in enumerate(names, 1)}
        planted = Planted(self.tree, numbered)
        programs = self.build_all(planted)
        outcomes = {}
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            programs = self.baseline(pool, programs)
            together = [number for number in numbered if number not in planted.alone]
            for number, outcome in zip(together, pool.map(lambda n: self.tried(programs, n, numbered), together)):
                outcomes[number] = outcome
        for number in sorted(planted.alone):
            outcomes[number] = self.tried_alone(numbered[number])
        self.clean()
        return [(name, outcomes[number]) for number, name in enumerate(names, 1)]

    def clean(self):
        run(["git", "-C", self.tree, "checkout", "--quiet", "."], check=True)

    def build_all(self, planted):
        """The programs of the tests, once all mutants that do not compile are taken out."""
        while True:
            self.clean()
            planted.write()
            with (self.tree / self.library).open("a") as library:
                library.write(PLANTED)
            programs, spans = self.build("test", "--no-run", *self.judges)
            if programs is not None:
                return programs
            blamed = planted.blamed(spans)
            if not blamed:
                sys.exit(f"{self.part} cannot be built, and no mutant is to blame: {spans}")
            planted.leave(blamed)

    def build(self, *words):
        """What cargo made, or the places of its errors: (programs, spans)."""
        words = ["cargo", *words, "--quiet", "--locked", "--package", self.package, "--message-format=json"]
        built = subprocess.run(
            words, cwd=self.tree, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        programs, spans = [], set()
        for line in built.stdout.splitlines():
            message = json.loads(line)
            if message["reason"] == "compiler-artifact" and message["executable"] and message["profile"]["test"]:
                programs.append(message["executable"])
            if message["reason"] == "compiler-message" and message["message"]["level"] == "error":
                # A place within a macro is that of its use.
                for span in message["message"]["spans"]:
                    while span["expansion"]:
                        span = span["expansion"]["span"]
                    spans.add((os.path.normpath(span["file_name"]), span["line_start"]))
        if built.returncode and not spans:
            sys.exit(f"cargo failed:\n{built.stderr}")
        return (None if built.returncode else programs), spans

    def baseline(self, pool, programs):
        """The programs with what each takes as it is, the quickest first."""
        taken = []
        for program, (failed, seconds) in zip(programs, pool.map(lambda p: self.failed(p, 0, None), programs)):
            if failed:
                sys.exit(f"tests of {self.part} fail as it is: {failed}")
            taken.append((seconds, program))
        print(f"{self.part}: {len(taken)} programs of tests, {sum(s for s, _ in taken):.0f} s", flush=True)
        return sorted(taken)

    def tried(self, programs, number, numbered):
        outcome = "survived"
        for seconds, program in programs:
            failed, _ = self.failed(program, number, seconds * SLOWER_MAX + 10)
            if failed:
                outcome = "killed"
                break
        else:
            failed = ""
        print(f"{outcome:9} {numbered[number]['name']}  {failed}", flush=True)
        return outcome

    def tried_alone(self, mutant):
        """One that cannot be planted beside others, by a build of its own."""
        self.clean()
        diff = mutant["diff"].splitlines(keepends=True)
        diff[:2] = [f"--- a/{mutant['file']}\n", f"+++ b/{mutant['file']}\n"]
        run(["git", "-C", self.tree, "apply", "-"], input="".join(diff), check=True)
        checked, _ = self.build("check", "--lib")
        programs = checked is not None and self.build("test", "--no-run", *self.judges)[0]
        if not programs:
            print(f"unviable  {mutant['name']}", flush=True)
            return "unviable"
        return self.tried([(ALONE_SECONDS_MAX, program) for program in programs], 0, {0: mutant})

    def failed(self, program, number, limit_seconds):
        """Which test of the program failed first, "" if none did; and the seconds."""
        started = time.monotonic()
        process = subprocess.Popen(
            [program, "--test-threads=1", *SKIP],
            cwd=self.environment["CARGO_MANIFEST_DIR"],
            env=self.environment | {"FALKON_MUTANT": str(number)},
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        late = threading.Timer(limit_seconds, os.killpg, (process.pid, signal.SIGKILL)) if limit_seconds else None
        if late:
            late.start()
        found = ""
        for line in process.stdout:
            if line.startswith("test ") and line.rstrip().endswith("FAILED"):
                found = line.split()[1]
                break
        try:
            os.killpg(process.pid, signal.SIGKILL) if found else None
        except ProcessLookupError:
            pass
        process.stdout.close() if found else None
        code = process.wait()
        if late:
            late.cancel()
        if code and not found:
            found = f"{pathlib.Path(program).name.rsplit('-', 1)[0]} ended with {code}"
        return found, time.monotonic() - started


class Keys:
    """Mutants of the Python package's keys."""

    part = "keys"

    def __init__(self, options):
        self.program = cosmic_ray()
        self.home = pathlib.Path(options.folder) / "keys"
        shutil.copytree(ROOT / "python", self.home / "python")
        self.session = self.home / "session.sqlite"
        tests = " ".join(KEYS_TESTS)
        (self.home / "keys.toml").write_text(
            "[cosmic-ray]\n"
            f"module-path = {json.dumps([f'python/falkon/{name}' for name in KEYS])}\n"
            f"timeout = {KEYS_SECONDS_MAX}.0\n"
            "excluded-modules = []\n"
            f'test-command = "{PYTHON_TESTS} -W ignore -m unittest -f {tests}"\n'
            '[cosmic-ray.distributor]\nname = "local"\n'
        )
        falkon = os.environ.get("FALKON", ROOT / "target/debug/falkon")
        python = self.home / "python"
        self.environment = os.environ | {
            "FALKON_BINARY": str(pathlib.Path(falkon).resolve()),
            "PYTHONPATH": f"{python}:{python / 'tests'}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def cosmic_ray(self, *words, **options):
        words = [str(self.program), *map(str, words)]
        return subprocess.run(words, cwd=self.home, env=self.environment, text=True, check=True, **options)

    def rows(self):
        with sqlite3.connect(self.session) as session:
            return session.execute(
                "select job_id, module_path, operator_name, definition_name from mutation_specs"
                " order by module_path, start_pos_row, start_pos_col, operator_name, occurrence"
            ).fetchall()

    def names(self):
        self.cosmic_ray("init", "keys.toml", self.session)
        rows = self.rows()
        described = [f"{path}: {operator.removeprefix('core/')} in {where or 'the module'}" for _, path, operator, where in rows]
        self.jobs = {name: job for name, (job, *_) in zip(named(described), rows)}
        return list(self.jobs)

    def judge(self, names):
        self.cosmic_ray("baseline", "keys.toml")
        kept = {self.jobs[name] for name in names}
        with sqlite3.connect(self.session) as session:
            for job in set(self.jobs.values()) - kept:
                session.execute("delete from mutation_specs where job_id = ?", (job,))
                session.execute("delete from work_items where job_id = ?", (job,))
        self.cosmic_ray("exec", "keys.toml", self.session)
        of_job = {job: name for name, job in self.jobs.items()}
        found = []
        for line in self.cosmic_ray("dump", self.session, stdout=subprocess.PIPE).stdout.splitlines():
            item, result = json.loads(line)
            survived = result and result["test_outcome"] == "survived"
            viable = result and result["worker_outcome"] == "normal"
            outcome = ("survived" if survived else "killed") if viable else "unviable"
            found.append((of_job[item["job_id"]], outcome))
        return found


def table(results):
    """One line for each part, and one for all."""
    lines = [f"{'part':9}{'mutants':>9}{'unviable':>10}{'killed':>8}{'survived':>10}{'killed of viable':>18}"]
    total = collections.Counter()
    for part, outcomes in results.items():
        counts = collections.Counter(outcome for _, outcome in outcomes)
        total.update(counts)
        lines.append(row(part, counts))
    return [*lines, row("all", total)], share(total)


def share(counts):
    viable = counts["killed"] + counts["survived"]
    return counts["killed"] / viable if viable else 1.0


def row(part, counts):
    columns = f"{counts['unviable']:>10}{counts['killed']:>8}{counts['survived']:>10}{share(counts):>18.1%}"
    return f"{part:9}{counts.total():>9}{columns}"


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    for part, count in [("core", 210), ("wire", 30), ("journal", 30), ("keys", 30)]:
        options.add_argument(f"--{part}", type=int, default=count, metavar="N")
    options.add_argument("--again", type=pathlib.Path, metavar="FILE", help="judge the mutants that a file names")
    options.add_argument("--match", nargs="+", default=[], help="of the sample only mutants with one of these in their names")
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--json", type=pathlib.Path)
    options.add_argument("--list", action="store_true", help="print the sample, and judge nothing")
    options = options.parse_args()
    options.target = TOOLS / "build"
    again = set(options.again.read_text().splitlines()) if options.again else set()
    if not options.again:
        print(f"seed {options.seed}", flush=True)
    results, judged, started = {}, set(), time.monotonic()
    with tempfile.TemporaryDirectory() as options.folder:
        for part in [*PARTS, "keys"]:
            count = getattr(options, part)
            if count == 0:
                continue
            mutants = Keys(options) if part == "keys" else Rust(part, options)
            names = mutants.names()
            names = [name for name in names if name in again] if options.again else drawn(count, options.seed, names)
            judged.update(names)
            if options.match:
                names = [name for name in names if any(word in name for word in options.match)]
            if options.list:
                print(*names, sep="\n")
                continue
            print(f"\n== {part}: {len(names)} mutants", flush=True)
            results[part] = mutants.judge(names)
        run(["git", "worktree", "prune"])
    for name in sorted(again - judged):
        if name.strip():
            print(f"is not there any more: {name}", file=sys.stderr)
    if options.list:
        return
    lines, killed = table(results)
    print("", *lines, "", sep="\n")
    for part, outcomes in results.items():
        for name, outcome in outcomes:
            if outcome == "survived":
                print(f"survived  {part:9}{name}")
    if options.json:
        data = {"seed": options.seed, "seconds": round(time.monotonic() - started), "killed": killed, "parts": results}
        options.json.write_text(json.dumps(data, indent=1) + "\n")
    if killed < KILLED_MIN:
        sys.exit(f"{killed:.1%} of the viable mutants were killed; wanted are {KILLED_MIN:.0%}")


if __name__ == "__main__":
    main()
