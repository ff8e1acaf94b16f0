"""What output that is kept costs a dispatcher, in memory and in time.

    FALKON_BINARY=target/release/falkon python3 bench/results.py [--tasks N] [--bytes B] [--json]

Submits calls of a Python function that each print so many bytes, keeps all results, and prints how large
the dispatcher's process ever was (VmHWM) when all have ended, when all results have
been read, and after a kill and a restart, with the rates: tasks per second, and bytes
of results per second as `falkon results` reads them. For comparison, the same of
results that are all in memory: fewer tasks, read again and again.

Needs as much room in the temporary directory (TMPDIR) as is written, and a little.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

FALKON = str(pathlib.Path(os.environ.get("FALKON_BINARY", "target/release/falkon")).resolve())
MEMORY_TASKS_BYTES = 20_000_000
FUNCTION = """import sys

text = "x" * %d

def output(number):
    sys.stdout.write(text)
"""


class Service:
    """A dispatcher with an executor."""

    def __init__(self, directory):
        self.directory = directory
        self.access = str(directory / "d" / "access.json")
        self.start()
        self.executor = self.spawn("executor", "--access", self.access)

    def spawn(self, *args):
        return subprocess.Popen([FALKON, *args], cwd=self.directory, stderr=subprocess.PIPE, text=True)

    def start(self):
        begun = time.perf_counter()
        self.dispatcher = self.spawn("start", "--dir", str(self.directory / "d"))
        for line in self.dispatcher.stderr:
            if "dispatcher at " in line:
                break
        else:
            sys.exit("the dispatcher does not start")
        # Its later output is not read, and must not hold it up.
        os.set_blocking(self.dispatcher.stderr.fileno(), False)
        return time.perf_counter() - begun

    def restart(self):
        self.dispatcher.send_signal(signal.SIGKILL)
        self.dispatcher.wait()
        return self.start()

    def falkon(self, command, *args):
        ran = subprocess.run(
            [FALKON, command, "--access", self.access, *args],
            cwd=self.directory, stdout=subprocess.PIPE, text=True, check=True,
        )
        return ran.stdout.strip()

    def memory(self):
        status = pathlib.Path("/proc/%d/status" % self.dispatcher.pid).read_text()
        lines = dict(line.split(":", 1) for line in status.splitlines())
        return int(lines["VmHWM"].split()[0]) * 1024

    def submit(self, tasks):
        # A function that prints: processes would cost more than what is measured.
        script = ["--range", "1-%d" % tasks, "--retries", "9", "--call", "output:output"]
        begun = time.perf_counter()
        instance = self.falkon("submit", *script)
        self.falkon("wait", instance)
        return instance, tasks / (time.perf_counter() - begun)

    def read(self, instance, expected):
        """Reads all results. Returns bytes per second."""
        begun = time.perf_counter()
        command = [FALKON, "results", "--access", self.access, instance]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as reader:
            count = 0
            while block := reader.stdout.read(1 << 20):
                count += len(block)
        if reader.returncode != 0 or count != expected:
            sys.exit("%d bytes of results instead of %d" % (count, expected))
        return count / (time.perf_counter() - begun)

    def stop(self):
        self.executor.kill()
        self.dispatcher.kill()
        self.executor.wait()
        self.dispatcher.wait()


def measure(directory, tasks, size):
    found = {"tasks": tasks, "bytes_each": size}
    (directory / "output.py").write_text(FUNCTION % size)
    service = Service(directory)
    service.bytes = size
    try:
        few = max(1, MEMORY_TASKS_BYTES // size)
        instance, _ = service.submit(few)
        rates = [service.read(instance, few * size) for _ in range(10)]
        found["read_from_memory_bytes_per_second"] = sorted(rates)[len(rates) // 2]
        service.falkon("destroy", instance)
        instance, found["tasks_per_second"] = service.submit(tasks)
        found["memory_bytes_ended"] = service.memory()
        found["read_from_disk_bytes_per_second"] = service.read(instance, tasks * size)
        found["memory_bytes_read"] = service.memory()
        found["restart_seconds"] = service.restart()
        found["memory_bytes_restarted"] = service.memory()
        found["read_after_restart_bytes_per_second"] = service.read(instance, tasks * size)
        found["memory_bytes_read_after_restart"] = service.memory()
    finally:
        service.stop()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="falkon-results-") as directory:
        found = measure(pathlib.Path(directory), args.tasks, args.bytes)
    if args.json:
        print(json.dumps(found, indent=2))
        return
    print("%d tasks that write %d bytes each" % (args.tasks, args.bytes))
    print("  %-42s %10.0f" % ("tasks per second", found["tasks_per_second"]))
    for name, value in found.items():
        if name.startswith("memory_bytes_"):
            label = "dispatcher's memory, " + name[len("memory_bytes_"):].replace("_", " ")
            print("  %-42s %6.0f MiB" % (label, value / 2**20))
        elif name.endswith("_bytes_per_second"):
            label = "results " + name[: -len("_bytes_per_second")].replace("_", " ")
            print("  %-42s %6.0f MB/s" % (label, value / 1e6))
    print("  %-42s %8.2f s" % ("restart", found["restart_seconds"]))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
