"""What small outputs cost on a store where creating a file takes time.

    FALKON_BINARY=target/release/falkon python3 bench/collected.py [--quick] [--json]

Python functions write so many random bytes each (--tasks, --bytes), through `falkon run` on
this machine, onto a store whose creates take 5 ms, one after another, and nothing else does
(bench/data/disk.py, over a folder in memory): nothing, a member for each (`--output
o=out.zip!N`), and a file for each (`--output o=out/N`; --files tasks, because it takes long).
Other tools pack the files of as many tasks afterwards: the tasks write them to a folder in
memory, and `zip -0`, `tar`, `mksquashfs` or h5py writes one file to the store. Parsl writes
--parsl-tasks members with `zip:` staging. What is neither there nor can be installed
(bench/peers/packages.py says where) is left out and named.

Then, with creates that cost nothing: outputs of 1 MB (--large) onto a store that writes
100 MB/s, relative to that rate; and tasks of 0.4 s (--long) that write between 1 KB and
1 MB each, relative to the same tasks without output.

The table has seconds from start to end with the lowest and the highest of the rounds, how
many outputs that is per second, and files on the store. Needs /dev/fuse, util-linux, and
root or user namespaces.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(HERE / "data"), str(HERE / "peers")]
import disk
import packages

FALKON = str(pathlib.Path(os.environ.get("FALKON_BINARY", "target/release/falkon")).resolve())
UNLIMITED = 1e12
CREATE_S = 0.005
LARGE_BYTES = 1_000_000
LARGE_RATE = 100e6
LONG_S = 0.4
SLOTS = 8
FUNCTIONS = """import os, time

def nothing(*_):
    os.urandom(%(bytes)d)

def output(*_):
    with open("o", "wb") as file:
        file.write(os.urandom(%(bytes)d))

def large(*_):
    with open("o", "wb") as file:
        file.write(os.urandom(%(large)d))

def long(*_):
    time.sleep(%(long)g)

def long_output(number):
    time.sleep(%(long)g)
    with open("o", "wb") as file:
        file.write(os.urandom(int(1000 * 10 ** (3 * (int(number) %% 97) / 96))))
"""
PARSL = """import sys
import parsl
from parsl.config import Config
from parsl.data_provider.files import File
from parsl.data_provider.zip import ZipFileStaging
from parsl.executors import HighThroughputExecutor

place, tasks, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

@parsl.python_app
def output(size, outputs=()):
    import os
    with open(outputs[0].filepath, "wb") as file:
        file.write(os.urandom(size))

if __name__ == "__main__":
    pool = HighThroughputExecutor(max_workers_per_node=2, storage_access=[ZipFileStaging()],
                                  address="127.0.0.1", working_dir=sys.argv[4])
    with parsl.load(Config(executors=[pool], strategy="none", usage_tracking=0)):
        names = ["zip:%s/out.zip/%d" % (place, number) for number in range(tasks)]
        calls = [output(size, outputs=[File(name)]) for name in names]
        for call in calls:
            call.outputs[0].result()
"""
H5 = """import os, sys
import h5py
import numpy

with h5py.File(sys.argv[1], "w") as file:
    for name in os.listdir(sys.argv[2]):
        file.create_dataset(name, data=numpy.fromfile(os.path.join(sys.argv[2], name), dtype="u1"))
"""


def isolate():
    """Runs this program again in namespaces of its own: mounts end with it."""
    if os.environ.get("FALKON_BENCH_ISOLATED") == "1":
        disk.prefer_session()
        return
    words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0:
        words += ["--map-root-user"]
    os.environ["FALKON_BENCH_ISOLATED"] = "1"
    disk.run_apart([*words, sys.executable, *sys.argv])


class Place:
    """A store, and a folder beside it that is as fast as memory."""

    def __init__(self, write_bytes_per_s=UNLIMITED, create_s=0):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="falkon-collected-", dir="/dev/shm"))
        self.store, self.files, self.near = (self.directory / name for name in ("store", "files", "near"))
        for folder in (self.store, self.files, self.near):
            folder.mkdir()
        self.disk = disk.limited(self.store, self.files, UNLIMITED, write_bytes_per_s, create_s)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.disk.kill()
        self.disk.wait()
        subprocess.run(["umount", "--lazy", self.store], check=False)
        shutil.rmtree(self.directory)

    def falkon(self, options, tasks, function, target=None, slots=None):
        words = [FALKON, "run", "--quiet", "--range", "1-%d" % tasks]
        words += ["--jobs", str(slots)] if slots else []
        words += ["--output", "o=" + str(target)] if target else []
        (self.near / "writer.py").write_text(FUNCTIONS % {"bytes": options.bytes, "large": LARGE_BYTES, "long": LONG_S})
        self.do([*words, "--call", "writer.py:" + function, "--", "{}"])

    def do(self, words):
        # Parsl looks for its programs in the search path.
        path = os.pathsep.join([os.path.dirname(words[0]), os.environ["PATH"]])
        subprocess.run(words, cwd=self.near, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       env={**os.environ, "PATH": path})

    def stored(self):
        return sum(len(files) for _, _, files in os.walk(self.files))


def afterwards(*words):
    def pack(place, options):
        place.falkon(options, options.files, "output", place.near / "out/{}")
        place.do([word.format(store=place.store, near=place.near) for word in words])
    return pack


def h5py(place, options):
    place.falkon(options, options.files, "output", place.near / "out/{}")
    place.do([packages.python("h5py", "numpy"), "-c", H5, place.store / "out.h5", place.near / "out"])


def parsl(place, options):
    program = place.near / "parsl_zip.py"
    program.write_text(PARSL)
    place.do([packages.python("parsl"), program, place.store, str(options.parsl_tasks), str(options.bytes), place.near])


def kinds(options):
    """What is measured: a name, outputs, what does it, and what looks whether it is there."""
    def falkon(name, count, function, target=None):
        def run(place, options):
            place.falkon(options, count, function, target and place.store / target)
        return name, count, run, None

    return [
        falkon("no outputs", options.tasks, "nothing"),
        falkon("files", options.files, "output", "out/{}"),
        falkon("members", options.tasks, "output", "out.zip!{}"),
        ("files, zip -0", options.files, afterwards("zip", "-0qr", "{store}/out.zip", "out"),
         lambda: packages.program("zip", "zip")),
        ("files, tar", options.files, afterwards("tar", "cf", "{store}/out.tar", "out"),
         lambda: packages.program("tar", "tar")),
        ("files, mksquashfs", options.files,
         afterwards("mksquashfs", "out", "{store}/out.sqfs", "-noI", "-noD", "-noF", "-quiet", "-no-progress"),
         lambda: packages.program("mksquashfs", "squashfs-tools")),
        ("files, h5py", options.files, h5py, lambda: packages.python("h5py", "numpy")),
        ("Parsl, zip:", options.parsl_tasks, parsl, lambda: packages.python("parsl")),
    ]


def those_there(rows):
    """Without what is missing, which is named."""
    found = []
    for name, count, do, look in rows:
        try:
            if look is not None:
                look()
            found.append((name, count, do))
        except packages.LeftOut as why:
            print("left out: %s" % why, file=sys.stderr)
    return found


def measure(do, options, **store):
    """Seconds from start to end, and files on the store in the end."""
    with Place(**store) as place:
        begun = time.perf_counter()
        do(place, options)
        return time.perf_counter() - begun, place.stored()


def row(name, count, runs):
    seconds = [seconds for seconds, _ in runs]
    return {"name": name, "outputs": count, "seconds": seconds, "per_second": [count / one for one in seconds],
            "files": max(files for _, files in runs)}


def ratio(rows, name, other, key):
    """The median of the rounds' ratios."""
    return statistics.median(one / two for one, two in zip(rows[name][key], rows[other][key]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", type=int)
    parser.add_argument("--files", type=int)
    parser.add_argument("--bytes", type=int, default=10_000)
    parser.add_argument("--parsl-tasks", type=int)
    parser.add_argument("--large", type=int, default=1000)
    parser.add_argument("--long", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a tenth of the outputs")
    parser.add_argument("--only", action="append", help="the name of a row; may be repeated")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.tasks = options.tasks or (10_000 if options.quick else 100_000)
    options.files = options.files or (1200 if options.quick else 12_000)
    options.parsl_tasks = options.parsl_tasks or (100 if options.quick else 500)
    isolate()
    load = os.getloadavg()[0]
    wanted = [one for one in kinds(options) if not options.only or one[0] in options.only]
    creating = those_there(wanted)
    free = [
        ("1 MB members at 100 MB/s", options.large, {"write_bytes_per_s": LARGE_RATE},
         lambda place, options: place.falkon(options, options.large, "large", place.store / "out.zip!{}")),
        ("0.4 s, no outputs", options.long, {},
         lambda place, options: place.falkon(options, options.long, "long", slots=SLOTS)),
        ("0.4 s, members", options.long, {},
         lambda place, options: place.falkon(options, options.long, "long_output", place.store / "out.zip!{}",
                                             slots=SLOTS)),
    ]
    plan = [(name, count, {"create_s": CREATE_S}, do) for name, count, do in creating] + free
    plan = [one for one in plan if not options.only or one[0] in options.only]
    runs = {name: [] for name, *_ in plan}
    for _ in range(options.rounds):
        for name, _, store, do in plan:
            runs[name].append(measure(do, options, **store))
            print("%s: %.2f s" % (name, runs[name][-1][0]), file=sys.stderr)
    rows = [row(name, count, runs[name]) for name, count, _, _ in plan]
    by_name = {one["name"]: one for one in rows}
    ratios = {}
    if {"files", "members"} <= by_name.keys():
        ratios["members_over_files"] = ratio(by_name, "members", "files", "per_second")
    if "1 MB members at 100 MB/s" in by_name:
        per_second = statistics.median(by_name["1 MB members at 100 MB/s"]["per_second"])
        ratios["of_sequential_rate"] = per_second * LARGE_BYTES / LARGE_RATE
    if {"0.4 s, no outputs", "0.4 s, members"} <= by_name.keys():
        ratios["of_no_outputs"] = ratio(by_name, "0.4 s, no outputs", "0.4 s, members", "seconds")
    if options.json:
        print(json.dumps({"name": "collected", "bytes": options.bytes, "load": load, "rows": rows, "ratios": ratios}))
        return
    print("%-26s %8s %8s %18s %10s %7s" % ("", "outputs", "seconds", "lowest, highest", "outputs/s", "files"))
    for one in rows:
        seconds = one["seconds"]
        print("%-26s %8d %8.2f %18s %10.0f %7d" % (
            one["name"], one["outputs"], statistics.median(seconds), "%.2f to %.2f" % (min(seconds), max(seconds)),
            statistics.median(one["per_second"]), one["files"]))
    for name, value in ratios.items():
        print("%s: %.2f" % (name.replace("_", " "), value))


main()
