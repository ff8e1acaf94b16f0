"""Archives as file systems: how soon a member can be read, and what reading costs then.

    FALKON_BINARY=target/release/falkon python3 bench/mount.py [--members N] [--bytes B] [--rounds R] [--reads K] [--only TOOL] [--directory DIR] [--keep] [--json]

Python's `zipfile` writes an archive of so many members, a thousand in each directory, and `falkon
archive join` copies it into one that has a lookup table. `falkon archive mount` shows each as a file
system, and so do those of these that are there with the first: `ratarmount`
(without the index that it keeps, and again with it), `fuse-zip`, `archivemount`. A table shows
the medians of the rounds, each with the lowest and the highest: the time from the start of the
program until a random member is read, the mean time of reading further random members, the time
to list all members, and the most memory that the program had. The archive is in the page cache.
In the last two lines, `falkon archive cat` and `zipfile` open it and read the member without a
mount. DIR is where the archives are: by default, a temporary directory. With --keep they stay
there, and the next run takes them: `zipfile` needs longer to write a million members than the
rounds of a tool take. --only may be repeated.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile

FALKON = str(pathlib.Path(os.environ.get("FALKON_BINARY", "target/release/falkon")).resolve())
GROUP = 1000
PATIENCE_SECONDS = 600
# A tool that searches the archive for each member reads fewer of them.
READING_SECONDS = 20


def name_of(number):
    return f"{number // GROUP}/{number}.dat"


def data_of(number, size):
    text = f"energy {number} " * (size // 8 + 1)
    return text.encode()[:size]


def write(path, members, size):
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(members):
            archive.writestr(name_of(number), data_of(number, size))


def tools(archive, own, place):
    index = archive.with_name(archive.name + ".index.sqlite")
    found = {
        "falkon archive mount": ([FALKON, "archive", "mount", own, place], None),
        "falkon archive mount, zipfile's": ([FALKON, "archive", "mount", archive, place], None),
    }
    if shutil.which("ratarmount"):
        command = ["ratarmount", "-f", "--index-file", index, archive, place]
        found["ratarmount"] = (command, index)
        found["ratarmount, with its index"] = (command, None)
    if shutil.which("fuse-zip"):
        found["fuse-zip"] = (["fuse-zip", "-r", "-f", archive, place], None)
    if shutil.which("archivemount"):
        command = ["archivemount", "-f", "-o", "readonly", archive, place]
        found["archivemount"] = (command, None)
    return found


def archives(site, options):
    """The archive of `zipfile`, and the one with a lookup table."""
    archive, own = (site / f"{name}-{options.members}-{options.bytes}.zip" for name in ("members", "own"))
    if not own.exists():
        begun = time.perf_counter()
        write(archive, options.members, options.bytes)
        note("written", begun)
        begun = time.perf_counter()
        subprocess.run([FALKON, "archive", "join", own, archive], check=True, stdout=subprocess.DEVNULL)
        note("joined", begun)
    return archive, own


def note(what, begun):
    print(f"{what}: {time.perf_counter() - begun:.1f} s", file=sys.stderr)


def is_mounted(place):
    with open("/proc/self/mountinfo") as table:
        return any(line.split(" ")[4] == str(place) for line in table)


def memory(process):
    with open(f"/proc/{process.pid}/status") as status:
        line = next(line for line in status if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def measure(command, place, options):
    numbers = [random.randrange(options.members) for _ in range(options.reads + 1)]
    start = time.perf_counter()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, **quiet) as process:
        try:
            while not is_mounted(place):
                if process.poll() is not None:
                    raise SystemExit(f"{command[0]} ended with {process.returncode}")
                if time.perf_counter() - start > PATIENCE_SECONDS:
                    return f"not within {PATIENCE_SECONDS} s"
                time.sleep(0.001)
            read(place, numbers[0], options.bytes)
            first = time.perf_counter() - start
            start = time.perf_counter()
            done = 0
            while done < options.reads and time.perf_counter() - start < READING_SECONDS:
                done += 1
                read(place, numbers[done], options.bytes)
            further = (time.perf_counter() - start) / done
            start = time.perf_counter()
            listed = sum(len(files) for _, _, files in os.walk(place))
            listing = time.perf_counter() - start
            if listed != options.members:
                raise SystemExit(f"{command[0]} lists {listed} members")
            return [first, further * 1e6, listing, memory(process)]
        except OSError as error:
            return f"fails: {error.strerror}"
        finally:
            subprocess.run(["fusermount3", "-u", place], check=False, stderr=subprocess.DEVNULL)
            if process.poll() is None and not is_mounted(place):
                process.wait(60)
            process.kill()


def read(place, number, size):
    data = (place / name_of(number)).read_bytes()
    if data != data_of(number, size):
        raise SystemExit(f"{name_of(number)} has other data")


def cat_alone(own, options):
    number = random.randrange(options.members)
    start = time.perf_counter()
    command = [FALKON, "archive", "cat", f"{own}!{name_of(number)}"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    took = time.perf_counter() - start
    if done.stdout != data_of(number, options.bytes):
        raise SystemExit(f"{name_of(number)} has other data")
    return took


def zipfile_alone(archive, options):
    start = time.perf_counter()
    with zipfile.ZipFile(archive) as opened:
        opened.read(name_of(random.randrange(options.members)))
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--reads", type=int, default=1000)
    parser.add_argument("--only", action="append", help="a tool; may be repeated")
    parser.add_argument("--directory", type=pathlib.Path)
    parser.add_argument("--keep", action="store_true", help="what is in --directory stays for the next run")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    random.seed(1)
    results = {}
    if options.keep and options.directory is None:
        parser.error("--keep needs --directory")
    with tempfile.TemporaryDirectory(dir=options.directory) as site:
        site = pathlib.Path(site).resolve()
        place = site / "mount"
        place.mkdir()
        archive, own = archives(options.directory.resolve() if options.keep else site, options)
        for what, (command, index) in tools(archive, own, place).items():
            if options.only and what not in options.only:
                continue
            rounds = []
            for _ in range(options.rounds):
                if index is not None:
                    index.unlink(missing_ok=True)
                begun = time.perf_counter()
                rounds.append(measure(command, place, options))
                note(what, begun)
            failed = [one for one in rounds if isinstance(one, str)]
            results[what] = failed[:1] or list(zip(*rounds, strict=True))
        results["falkon archive cat, without a mount"] = [[cat_alone(own, options) for _ in range(options.rounds)]]
        alone = [zipfile_alone(archive, options) for _ in range(options.rounds)]
        results["zipfile, without a mount"] = [alone]
    if options.json:
        print(json.dumps({"members": options.members, "bytes": options.bytes, "rounds": results}))
        return
    print(f"{options.members} members of {options.bytes} bytes, {options.rounds} rounds")
    print("| | first member, s | each further one, µs | all listed, s | memory, MiB |")
    print("|---|---|---|---|---|")
    for what, columns in results.items():
        cells = [spread(column) for column in columns]
        print(f"| {what} | {' | '.join(cells + [''] * (4 - len(cells)))} |")


def spread(column):
    if isinstance(column, str):
        return column
    digits = 0 if max(column) > 30 else 2 if max(column) > 0.5 else 4
    middle, low, high = statistics.median(column), min(column), max(column)
    return f"{middle:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


if __name__ == "__main__":
    main()
