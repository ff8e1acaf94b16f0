"""What a scientist does in the first week: some fifty short scripts, as they would be typed, on
this machine and with a dispatcher. Each is a test with its title as the name."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest
from typing import NamedTuple

from services import Dispatcher

# `says TEXT COMMAND…`: the command prints the text, on either stream, however it ends.
# `ends CODE COMMAND…`: it has this exit status. What either printed is in the file `said`.
PRELUDE = r"""
set -eu
says() {
    text=$1; shift
    "$@" > said 2>&1 || true
    grep -qF -- "$text" said || { echo "does not say: $text" >&2; cat said >&2; exit 1; }
}
ends() {
    wanted=$1; shift
    code=0
    "$@" > said 2>&1 || code=$?
    [ "$code" = "$wanted" ] || { echo "exit status $code" >&2; cat said >&2; exit 1; }
}
until_it() { until "$@"; do sleep 0.05; done; }
"""
LONGEST_SECONDS = 60.0


class Step(NamedTuple):
    title: str
    script: str
    prints: str = ""


HERE = [
    Step(
        "a task per file, in order",
        "mkdir d; for i in 1 2 3; do seq $i > d/$i.txt; done\n"
        "falkon run -k --each 'd/*.txt' -- wc -l {}",
        "1 d/1.txt\n2 d/2.txt\n3 d/3.txt",
    ),
    Step("values behind the command", "falkon run -k echo {} ::: a 'b c' '$d'", "a\nb c\n$d"),
    Step("a task per line of a pipe", "seq 3 | falkon run -k echo line {}", "line 1\nline 2\nline 3"),
    Step(
        "names with blanks, quotes and dollars are values, never code",
        "touch -- 'a b' \"it's\" 'c$(echo no)' '-n' '`x`'\n"
        "falkon run --each '*' --shell -- 'printf \"[%s]\\n\" {}' | sort",
        "[-n]\n[`x`]\n[a b]\n[c$(echo no)]\n[it's]",
    ),
    Step("one word with blanks", "says 'did you mean --shell' falkon run 'echo {}' ::: a"),
    Step("a pipe in a script", "falkon run -k --shell -- 'echo {} | tr a-z A-Z' ::: a b", "A\nB"),
    Step("a misspelled option", "says \"--retries\" falkon run --retrys 2 -- true"),
    Step("a misspelled command", "says \"'submit'\" falkon sumbit -- true"),
    Step("no such program", "says 'no such command: alingn' falkon run -- alingn x"),
    Step(
        "a plan of a billion tasks",
        "falkon run --dry-run --range 1-1000000000 -- ./simulate {} | head -2",
        "1\t\t./simulate 1\n2\t\t./simulate 2",
    ),
    Step(
        "ranges of decimals, and numbers with zeros",
        "falkon run -k --range 0.1-0.3:0.1 --range 08-10 -- echo {1} {2}",
        "\n".join("%s %s" % (a, b) for a in ("0.1", "0.2", "0.3") for b in ("08", "09", "10")),
    ),
    Step(
        "a task per row of a table",
        "printf 'name,file\\nM31,sky/a.fits\\nM33,sky/b.fits\\n' > stars.csv\n"
        "falkon run -k --rows stars.csv echo {name} in {file/.}",
        "M31 in a\nM33 in b",
    ),
    Step(
        "one of five fails, and says why",
        "ends 1 falkon run --range 1-5 --shell -- 'test {} != 3 || { echo no luck >&2; exit 7; }'\n"
        "grep -q 'no luck' said; grep -q '4 done' said; grep -q '1 failed' said",
    ),
    Step(
        "only what failed runs again",
        "run() { falkon run --range 1-4 --resume o --shell -- 'echo {} >> ran; test {} != 3 || test -e mended'; }\n"
        "ends 1 run; touch mended; ends 0 run; sort ran | tr '\\n' ' '",
        "1 2 3 3 4",
    ),
    Step(
        "a new file that sorts first runs alone",
        "mkdir g; touch g/b g/c\n"
        "run() { falkon run --each 'g/*' \"$@\" --shell -- 'echo {/} >> ran'; }\n"
        "ends 0 run --out o; touch g/a; ends 0 run --resume o; sort ran | tr '\\n' ' '",
        "a b c",
    ),
    Step(
        "a deleted output is made again",
        "run() { falkon run --range 1-3 --output out{} \"$@\" --shell -- 'echo {} >> ran; echo > out{}'; }\n"
        "ends 0 run --out o; rm out2; ends 0 run --resume o; sort ran | tr '\\n' ' '",
        "1 2 2 3",
    ),
    Step(
        "results beside other files",
        "mkdir p; echo precious > p/stdout\n"
        "ends 2 falkon run --out p -- echo hi; cat p/stdout; ls -A p",
        "precious\nstdout",
    ),
    Step(
        "results as JSON",
        "falkon run --json --range 1-2 -- echo {} > r\n"
        "python3 -c 'import json; print(sorted((r[\"status\"], r[\"stdout\"], r[\"values\"]) for r in map(json.loads, open(\"r\")))[0])'",
        "('done', '1\\n', {'1': '1'})",
    ),
    Step(
        "a parameter of a task file is a float",
        "echo '{\"command\": [\"echo\", 0.1, 3]}' > t.jsonl; falkon run --tasks t.jsonl",
        "0.1 3",
    ),
    Step(
        "tasks that depend on each other",
        "cat > t.toml <<'END'\n"
        "[[task]]\nid = \"sum\"\ncommand = [\"sh\", \"-c\", \"cat one two\"]\ninputs = [\"one\", \"two\"]\n"
        "[[task]]\ncommand = [\"sh\", \"-c\", \"echo 1 > one\"]\noutputs = [\"one\"]\n"
        "[[task]]\ncommand = [\"sh\", \"-c\", \"echo 2 > two\"]\noutputs = [\"two\"]\nEND\n"
        "falkon run --tasks t.toml",
        "1\n2",
    ),
    Step(
        "a cycle, and a misspelled field",
        "printf '%s\\n' '{\"id\": \"a\", \"command\": \"x\", \"after\": [\"b\"]}' '{\"id\": \"b\", \"command\": \"x\", \"after\": [\"a\"]}' > c.jsonl\n"
        "says 'a → b → a' falkon run --tasks c.jsonl\n"
        "echo '{\"comand\": \"x\"}' > m.jsonl; says 'did you mean `command`' falkon run --tasks m.jsonl",
    ),
    Step(
        "a task that succeeds the third time",
        "falkon run --retries 2 --json --shell -- 'echo >> n; [ $(wc -l < n) = 3 ]' | grep -o '\"attempts\":3'",
        '"attempts":3',
    ),
    Step("a task that hangs", "ends 1 falkon run --timeout 0.2 -- sleep 60; grep -q 'timeout' said"),
    Step(
        "Ctrl-C leaves nothing, and the rest runs later",
        "run() { falkon run -j 2 --range 1-4 \"$@\" --shell -- 'echo {} >> ran; [ -e go ] || sleep 600'; }\n"
        "falkon run -j 2 --range 1-4 --out o --shell -- 'echo {} >> ran; [ -e go ] || sleep 600' 2> /dev/null & pid=$!\n"
        "until_it test -s ran; kill -INT $pid; wait $pid || true\n"
        "rm ran; touch go; ends 0 run --resume o; sort ran | tr '\\n' ' '",
        "1 2 3 4",
    ),
    Step(
        "a run that is killed goes on",
        "falkon run -j 1 --range 1-4 --out o --shell -- 'echo {} >> ran; [ {} -lt 3 ] || [ -e go ] || sleep 600' 2> /dev/null & pid=$!\n"
        "until_it grep -qs 3 ran; sleep 0.5; kill -9 $pid; wait $pid || true; rm ran; touch go\n"
        "falkon run -j 1 --range 1-4 --resume o --shell -- 'echo {} >> ran; [ {} -lt 3 ] || [ -e go ] || sleep 600' 2> /dev/null\n"
        "sort ran | tr '\\n' ' '",
        "3 4",
    ),
    Step(
        "a loop of the shell keeps its input",
        "printf 'a\\nb\\nc\\n' | while read x; do falkon run -- echo got \"$x\"; done",
        "got a\ngot b\ngot c",
    ),
    Step(
        "long output is complete",
        "falkon run --out o -- sh -c 'head -c 300000 /dev/zero | tr \"\\0\" x'; wc -c < o/stdout",
        "300000",
    ),
    Step(
        "tasks of two CPUs do not run side by side",
        "falkon run -j 2 --cpus 2 --range 1-4 --shell -- 'mkdir lock && rmdir lock'; echo alone",
        "alone",
    ),
    Step(
        "threads are what a task has reserved",
        "unset OMP_NUM_THREADS; falkon run -j 4 --cpus 3 -- sh -c 'echo $OMP_NUM_THREADS $FALKON_CPUS'",
        "3 3",
    ),
    Step(
        "how much was used",
        "falkon run --usage -- sh -c 'head -c 30000000 /dev/zero | tail -c 1 > x' 2>&1 | grep -c 'MiB'",
        "1",
    ),
    Step("blocks of a large file", "seq 1000 | falkon run -k --pipe --block 1k -- wc -l | paste -sd+ | bc", "1000"),
    Step(
        "a log and a tree as GNU parallel writes them",
        "falkon run --joblog log --results tree echo {} ::: a b\n"
        "tail -n +2 log | cut -f7,9 | sort; cat tree/1/a/stdout",
        "0\techo a\n0\techo b\na",
    ),
    Step("a command in the end", "falkon run --notify 'echo ended $FALKON_EXIT' -- true", "ended 0"),
    Step(
        "many small outputs in one archive, and its members",
        "falkon run --range 1-20 --output e.dat='all.zip!{}/e.dat' --shell -- 'echo {} > e.dat'\n"
        "python3 -m zipfile -l all.zip | grep -c e.dat\n"
        "falkon run --each 'all.zip!*/e.dat' -- cat {} | sort -n | tail -1",
        "20\n20",
    ),
    Step(
        "files are brought to tasks, and outputs back",
        "mkdir in; echo x > in/a; echo y > in/b\n"
        "falkon run --each 'in/*' --stage --output 'r=out/{/}' --shell -- 'cat {} > r; ls' | sort; cat out/a out/b",
        "a\nb\nr\nr\nx\ny",
    ),
    Step(
        "a Python function per value",
        "printf 'def area(a, b):\\n    return float(a) * float(b)\\n' > sky.py\n"
        "falkon run --json --range 1-2 --range 5-5 --call sky.py:area | grep -o '\"value\":[0-9.]*' | sort",
        '"value":10.0\n"value":5.0',
    ),
    Step(
        "the first success ends the run",
        "ends 1 falkon run -j 2 --halt now,success=1 --range 1-50 --shell -- 'echo >> ran; [ {} -lt 3 ] || sleep 60'\n"
        "[ $(wc -l < ran) -lt 10 ]",
    ),
    Step("a configuration that is wrong", "printf '[run]\\njobz = 2\\n' > f.toml; says 'no option --jobz' falkon --config f.toml config check"),
    Step("completions and manual pages", "falkon completions bash | grep -c '^_falkon()'; mkdir m; falkon man m; ls m | grep -c '^falkon-run.1$'", "1\n1"),
    Step(
        "Python: a map, an error, a chain, a crash",
        "python3 - <<'END'\n"
        "import os, falkon\n"
        "with falkon.Executor(max_workers=2) as ex:\n"
        "    print(sum(ex.map(pow, range(100), [2] * 100)))\n"
        "    powers = [ex.submit(pow, 2, n) for n in range(4)]\n"
        "    print(ex.submit(sum, powers).result())\n"
        "    for call in (ex.submit(divmod, 1, 0), ex.submit(os._exit, 3)):\n"
        "        print(type(call.exception()).__name__)\n"
        "    print(ex.options(memory='1MiB', timeout='5m').submit(abs, -1).result())\n"
        "    try:\n"
        "        ex.options(memory='much')\n"
        "    except ValueError as error:\n"
        "        print('2GiB' in str(error))\n"
        "END",
        "328350\n15\nZeroDivisionError\nWorkerDied\n1\nTrue",
    ),
    Step(
        "Python: a script that is run again makes nothing twice",
        "cat > s.py <<'END'\n"
        "import falkon\n"
        "@falkon.python_app\n"
        "def square(n):\n"
        "    return n * n\n"
        "with falkon.run(resume='state', max_workers=2) as run:\n"
        "    print([square(n) for n in range(3)][2].result())\n"
        "print(run.made, run.skipped)\n"
        "END\n"
        "python3 s.py; python3 s.py",
        "4\n3 0\n4\n0 3",
    ),
]


AT_DISPATCHER = [
    Step(
        "submit, wait and read, by name",
        "falkon submit --name sweep-1 --range 1-5 -- echo {} > id\n"
        "ends 0 falkon wait sweep-1; falkon results sweep-1 | sort; falkon destroy sweep-1",
        "1\n2\n3\n4\n5",
    ),
    Step(
        "which failed, and why a task waits",
        "ends 1 falkon submit --name odd --wait --range 1-4 --shell -- 'exit $(( {} % 2 ))'\n"
        "falkon tasks odd --state failed | grep -c ' failed '\n"
        "falkon submit --name big --resource telescope=1 -- true > id\n"
        "says 'telescope' falkon explain big; falkon cancel big; falkon destroy big; falkon destroy odd",
        "2",
    ),
    Step(
        "a variable that is passed on, and the folder",
        "mkdir here; cd here; SKY=blue falkon submit --wait --env SKY --shell -- 'echo $SKY ${PWD##*/}'",
        "blue here",
    ),
    Step(
        "results in a folder, and later the rest",
        "run() { falkon submit --wait --range 1-3 \"$@\" --shell -- 'echo {} >> ran; [ {} != 2 ] || [ -e mended ]'; }\n"
        "ends 1 run --out o; touch mended; ends 0 run --resume o; sort ran | tr '\\n' ' '",
        "1 2 2 3",
    ),
    Step(
        "some tasks are cancelled, others paused",
        "falkon submit --name held --range 1-3 -- sh -c 'until [ -e go ]; do sleep 0.05; done; echo $0' {} > id\n"
        "falkon pause held; falkon resume held; falkon priority held 5; ends 0 falkon cancel held/1\n"
        "touch go; ends 1 falkon wait held; falkon results held 2> /dev/null | sort; falkon destroy held",
        "1\n3",
    ),
    Step(
        "an instance that is destroyed",
        "id=$(falkon submit -- true); falkon wait $id; falkon destroy $id; says \"$id\" falkon results $id; ends 2 falkon results $id",
    ),
    Step(
        "observers look, and change nothing",
        "watch=$(dirname $FALKON_ACCESS)/access-observer.json\n"
        "ends 0 falkon status --access $watch; says 'does not allow that' falkon submit --access $watch -- true",
    ),
    Step(
        "a file for one instance",
        "falkon submit --instance-access mine.json --range 1-2 -- echo {} > id\n"
        "other=$(falkon submit -- echo other); falkon wait $other\n"
        "falkon results --access mine.json $(cat id) | sort; says 'instance' falkon results --access mine.json $other",
        "1\n2",
    ),
    Step(
        "a file in caches",
        "echo reference > ref; falkon data put ref --key monday-ref > said\n"
        "falkon data ls | grep -c monday-ref\n"
        "falkon submit --wait --range 1-2 --input r=cache:monday-ref --shell -- 'cat r; : {}'; falkon data rm cache:monday-ref",
        "1\nreference\nreference",
    ),
    Step("a command on every node", "falkon everywhere --quiet -- echo here", "here"),
    Step(
        "what happened, for other programs",
        "id=$(falkon submit --range 1-3 -- true); falkon wait $id\n"
        # Events are written within a second.
        "until_it sh -c \"falkon log --instance $id | grep -q done\"; falkon status $id --json | grep -c '\"done\":3'",
        "1",
    ),
    Step(
        "Python: calls on the dispatcher's executors",
        "python3 - <<'END'\n"
        "import os, falkon\n"
        "access = os.environ['FALKON_ACCESS']\n"
        "with falkon.Executor(access) as ex:\n"
        "    print(sum(ex.map(abs, range(-10, 0))), ex.max_workers)\n"
        "instance = falkon.Client().submit(['echo', '{}'], range=range(3))\n"
        "print(sorted(result.stdout for result in instance.results()))\n"
        "instance.destroy()\n"
        "END",
        "55 2\n['0\\n', '1\\n', '2\\n']",
    ),
    Step(
        "in the background, and stopped",
        "falkon start --dir d --listen 127.0.0.1:0 --background 2> /dev/null\n"
        "export FALKON_ACCESS=$PWD/d/access.json\n"
        "falkon submit -- echo later > id; says 'no executor is connected' falkon explain $(cat id)\n"
        "falkon executor --slots 1 --background 2> /dev/null\n"
        "falkon wait $(cat id); falkon results $(cat id); falkon stop 2> /dev/null; says 'is the dispatcher running' falkon status",
        "later",
    ),
    Step(
        "a dispatcher that is killed has lost nothing",
        "falkon start --dir d --listen 127.0.0.1:0 > log 2>&1 & pid=$!\n"
        "export FALKON_ACCESS=$PWD/d/access.json; until_it test -e d/access.json\n"
        "falkon executor --slots 1 > log2 2>&1 &\n"
        "id=$(falkon submit --range 1-20 --shell -- 'echo {} >> ran; sleep 0.01')\n"
        "until_it test -s ran; kill -9 $pid; wait $pid 2> /dev/null || true\n"
        "falkon start --dir d > log 2>&1 & pid=$!; until_it falkon status > said 2>&1\n"
        "falkon wait $id 2> /dev/null; falkon results $id | wc -l; sort -u ran | wc -l",
        "0\n20",
    ),
    Step(
        "a node that is lost costs nothing",
        "falkon start --dir d --listen 127.0.0.1:0 > log 2>&1 & pid=$!\n"
        "export FALKON_ACCESS=$PWD/d/access.json; until_it test -e d/access.json\n"
        "falkon executor --slots 1 > log2 2>&1 & first=$!\n"
        "id=$(falkon submit --shell -- 'echo >> ran; [ $(wc -l < ran) = 2 ] || sleep 600')\n"
        "until_it test -s ran; kill -9 $first; falkon executor --slots 1 > log3 2>&1 &\n"
        "falkon wait $id 2> /dev/null; wc -l < ran",
        "2",
    ),
]


class Steps(unittest.TestCase):
    """Runs steps, each in a folder of its own."""

    access = None

    def run_step(self, step):
        with tempfile.TemporaryDirectory() as folder:
            tools = os.path.join(folder, "tools")
            os.mkdir(tools)
            os.symlink(os.environ["FALKON_BINARY"], os.path.join(tools, "falkon"))
            python = os.path.join(tools, "python3")
            with open(python, "w") as file:
                file.write('#!/bin/sh\nexec "%s" "$@"\n' % sys.executable)
            os.chmod(python, 0o755)
            place = os.path.join(folder, "place")
            os.mkdir(place)
            variables = dict(os.environ, PATH=tools + os.pathsep + os.environ["PATH"])
            variables.update(LC_ALL="C.UTF-8", FALKON_CONFIG="", XDG_STATE_HOME=folder)
            variables.pop("FALKON_ACCESS", None)
            if self.access:
                variables["FALKON_ACCESS"] = self.access
            process = subprocess.Popen(
                ["/bin/sh", "-c", PRELUDE + step.script],
                cwd=place,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            try:
                printed, complaints = process.communicate(timeout=LONGEST_SECONDS)
            finally:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.assertEqual(process.returncode, 0, complaints)
            lines = [line.rstrip() for line in printed.splitlines()]
            self.assertEqual("\n".join(lines).strip(), step.prints, complaints)


class Monday(Steps):
    """This machine alone."""


class MondayAtADispatcher(Steps):
    """With a dispatcher, and an executor of two slots."""

    @classmethod
    def setUpClass(cls):
        dispatcher = Dispatcher()
        dispatcher.__enter__()
        cls.addClassCleanup(dispatcher.__exit__)
        dispatcher.executor()
        cls.access = dispatcher.access


def _case(step):
    def test(self):
        self.run_step(step)

    test.__doc__ = step.title
    return test


def _add(kind, steps):
    for number, step in enumerate(steps, 1):
        name = re.sub(r"\W+", "_", step.title.lower()).strip("_")
        setattr(kind, "test_%02d_%s" % (number, name), _case(step))


_add(Monday, HERE)
_add(MondayAtADispatcher, AT_DISPATCHER)


if __name__ == "__main__":
    unittest.main()
