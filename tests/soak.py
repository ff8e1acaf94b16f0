#!/usr/bin/env python3
"""An hour of everything that goes wrong, on real processes.

    tests/soak.py [--seconds 3600] [--executors 20] [--disk-mib 1024] [--seed N] [--json FILE]

A dispatcher, its executors (each in a network namespace of its own) and clients
of both kinds (`falkon submit` and Python) run side by side, while one after the
other is killed with SIGKILL or paused, links go down, and the journal's disk
fills. Every task must be accounted for: each campaign ends with every result
once, and right. At the end memory, descriptors, files and the journal must be
within the bounds below.

Needs Linux, root, iproute2, and Python with msgspec and cloudpickle for the
calls from Python (else there are none, and a line says so). FALKON is the
program [target/release/falkon].
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench/data"))
import machine  # noqa: E402

WORK = machine.WORK
SLOTS = 2
# Fast enough to be no bound: what is tested is loss, not speed.
BANDWIDTH = 125_000_000
# Instances that have ended go after this time: campaigns to folders leave theirs.
KEEP = "2m"
# An executor is lost after 10 s of silence; some pauses are longer, some not.
PAUSE_SECONDS_MAX = 14
FULL_SECONDS_MAX = 6
ACT_SECONDS_MAX = 4
# How long clients have, once nothing goes wrong any more, to end what they are at.
CALM_SECONDS = 300

# Bounds at the end, when every instance is gone.
DISPATCHER_RESIDENT_BYTES_MAX = 300 << 20
EXECUTOR_RESIDENT_BYTES_MAX = 150 << 20
DESCRIPTORS_MAX = 256
JOURNAL_BYTES_MAX = 160 << 20
OVERFLOW_FILES_MAX = 0

PYTHON_CLIENT = '''
import random, sys
import falkon

access, seed = sys.argv[1], int(sys.argv[2])
chance = random.Random(seed)

def square(number, payload):
    return number * number, len(payload)

with falkon.Executor(access, reconnect=120) as calls:
    numbers = [chance.randrange(1 << 40) for _ in range(200)]
    payloads = [b"p" * chance.choice([0, 10, 1000, 100_000]) for _ in numbers]
    for number, payload, value in zip(numbers, payloads, calls.map(square, numbers, payloads)):
        if value != (number * number, len(payload)):
            sys.exit("wrong: %r gave %r" % (number, value))
print("right", len(numbers))
'''


class Service:
    """A process of the soak that is started again when it has ended."""

    def __init__(self, soak, name, host, words):
        self.soak, self.name, self.host, self.words = soak, name, host, words
        self.process, self.starts, self.lock = None, 0, threading.Lock()

    def start(self):
        with self.lock:
            self.process = self.soak.cluster.start(self.host, self.words, f"{self.name}.log", append=True)
            self.starts += 1

    def pid(self):
        """The program itself: `ip netns exec` becomes it."""
        return self.process.pid

    def runs(self):
        return self.process.poll() is None

    def kill(self):
        with self.lock:
            self.process.kill()
            self.process.wait()
            with contextlib.suppress(ValueError):
                self.soak.cluster.processes.remove(self.process)

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid(), number)

    def children(self):
        path = pathlib.Path(f"/proc/{self.pid()}/task/{self.pid()}/children")
        with contextlib.suppress(OSError):
            return [int(pid) for pid in path.read_text().split()]
        return []

    def measure(self):
        """Resident bytes and descriptors; None while it does not run."""
        try:
            status = pathlib.Path(f"/proc/{self.pid()}/status").read_text()
            resident = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
            return int(resident.split()[1]) << 10, len(os.listdir(f"/proc/{self.pid()}/fd"))
        except (OSError, StopIteration):
            return None


class Soak:
    def __init__(self, arguments):
        self.arguments = arguments
        self.chance = random.Random(arguments.seed)
        self.falkon = os.environ.get("FALKON", str(ROOT / "target/release/falkon"))
        self.python = python_with_falkon()
        self.cluster = Cluster(arguments.executors, BANDWIDTH, BANDWIDTH)
        self.directory = WORK / "d"
        self.directory.mkdir()
        machine.sh("mount", "-t", "tmpfs", "-o", f"size={arguments.disk_mib}m", "tmpfs", str(self.directory))
        self.access = str(self.directory / "access.json")
        self.acts, self.ends = collections.Counter(), collections.Counter()
        self.faults, self.course = [], []
        self.rough, self.over = threading.Event(), threading.Event()
        self.lock = threading.Lock()
        self.numbers = iter(range(1 << 60))
        self.dispatcher = Service(self, "dispatcher", "head", [
            self.falkon, "start", "--dir", str(self.directory), "--security", "authenticate", "--force",
            "--listen", f"{machine.HEAD}:7000", "--keep", KEEP])
        self.executors = []
        for node in range(arguments.executors):
            scratch = WORK / f"scratch-{node}"
            scratch.mkdir()
            self.executors.append(Service(self, f"executor-{node}", f"n{node}", [
                self.falkon, "executor", "--access", self.access, "--name", f"n{node}", "--slots", str(SLOTS),
                "--scratch", str(scratch), "--cache", f"{WORK}/cache-{node}=20MB",
                *(["--worker", f"python={self.python}"] if self.python else [])]))

    def fault(self, text):
        with self.lock:
            self.faults.append(text)
        print(f"FAULT: {text}", flush=True)

    def count(self, what, number=1):
        with self.lock:
            self.ends[what] += number

    # What goes wrong.

    def act(self):
        acts = [self.kill_dispatcher, self.pause_dispatcher, self.fill_disk]
        acts += 3 * [self.kill_executor, self.pause_executor, self.kill_task_host, self.cut_link]
        act = self.chance.choice(acts)
        self.acts[act.__name__] += 1
        act()

    def kill_dispatcher(self):
        self.dispatcher.kill()
        time.sleep(self.chance.uniform(0, 5))
        self.dispatcher.start()

    def pause(self, service, seconds):
        service.signal(signal.SIGSTOP)
        threading.Timer(seconds, service.signal, [signal.SIGCONT]).start()

    def pause_dispatcher(self):
        self.pause(self.dispatcher, self.chance.uniform(0, PAUSE_SECONDS_MAX))

    def pause_executor(self):
        self.pause(self.chance.choice(self.executors), self.chance.uniform(0, PAUSE_SECONDS_MAX))

    def kill_executor(self):
        executor = self.chance.choice(self.executors)
        executor.kill()
        threading.Timer(self.chance.uniform(0, 20), executor.start).start()

    def kill_task_host(self):
        for pid in self.chance.choice(self.executors).children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def cut_link(self):
        port = f"to-n{self.chance.randrange(len(self.executors))}"
        machine.sh("ip", "link", "set", port, "down")
        up = threading.Timer(self.chance.uniform(0, PAUSE_SECONDS_MAX),
                             machine.sh, ["ip", "link", "set", port, "up"])
        up.start()

    def fill_disk(self):
        filler = self.directory / "filler"
        with contextlib.suppress(OSError), open(filler, "wb") as file:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
        time.sleep(self.chance.uniform(0, FULL_SECONDS_MAX))
        filler.unlink(missing_ok=True)

    # Clients.

    def command(self, *words, kill_within=None):
        """Runs a command; kills it at a random moment if that is asked for, and
        then gives None."""
        environment = dict(os.environ, TMPDIR=str(WORK / "tmp"), HOME=str(WORK), PYTHONPATH=str(ROOT / "python"),
                           FALKON_BINARY=self.falkon, FALKON=self.falkon)
        process = subprocess.Popen(["ip", "netns", "exec", "head", *words], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        try:
            out, err = process.communicate(timeout=kill_within)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            self.count("clients killed")
            return None
        return process.returncode, out, err

    def in_loop(self, lane, campaign):
        chance = random.Random((self.arguments.seed, lane).__hash__())
        while not self.over.is_set():
            try:
                campaign(chance)
            except Exception as error:  # A fault of one lane must not end the others.
                self.fault(f"{campaign.__name__}: {error!r}")

    def kill_moment(self, chance):
        return chance.uniform(0.1, 20) if self.rough.is_set() and chance.random() < 0.3 else None

    def submit_to_a_folder(self, chance):
        """Tasks whose results are kept in a folder; whoever is killed goes on
        there, and every result is there once."""
        number = next(self.numbers)
        out, count = WORK / f"out-{number}", chance.choice([10, 100, 1000])
        long = chance.random() < 0.2
        script = "echo $0; head -c 150000 /dev/zero | tr '\\0' y" if long else "echo $0"
        if long:
            count = 10
        words = ["--range", f"1-{count}", "--", "sh", "-c", script]
        while True:
            folder = ["--resume" if (out / "results.jsonl").exists() else "--out", str(out)]
            ended = self.command(self.falkon, "submit", "--access", self.access, "--wait", "--retries", "3",
                                 *folder, *words, kill_within=self.kill_moment(chance))
            if ended is None or ended[0] != 0:
                # Out of reach for too long, or a task was lost too often: again.
                if ended is not None:
                    self.count(f"submit ended with {ended[0]}")
                if self.over.is_set() and not self.calm():
                    return self.fault(f"{out.name} did not end: {ended}")
                continue
            break
        stdout = (out / "stdout").read_bytes()
        seen = collections.Counter()
        for line in (out / "results.jsonl").read_text().splitlines():
            result = json.loads(line)
            if result["status"] != "done":
                continue
            seen[result["index"]] += 1
            start, length = result["stdout_at"]
            text = stdout[start:start + length]
            expected = f"{result['index'] + 1}\n".encode() + (b"y" * 150_000 if long else b"")
            cut = result.get("stdout_cut")
            if cut and cut.get("why") and expected.startswith(text):
                # Long output is on its executor, and goes with that.
                self.count("outputs cut, with the reason")
            elif text != expected:
                self.fault(f"{out.name} task {result['index']}: {length} bytes that begin {text[:40]!r}")
        if seen != collections.Counter(range(count)):
            self.fault(f"{out.name}: {count} tasks, results {len(seen)}, twice {[k for k, v in seen.items() if v > 1]}")
        self.count("tasks to folders", count)
        shutil.rmtree(out)

    def submit_and_ask_later(self, chance):
        """Tasks that nobody waits for; results are asked for afterwards."""
        count = chance.choice([10, 300])
        ended = self.command(self.falkon, "submit", "--access", self.access, "--retries", "3",
                             "--range", f"1-{count}", "--", "echo")
        if ended is None or ended[0] != 0:
            return self.count("submissions refused or lost")
        instance = ended[1].strip()
        while not self.over.is_set() or self.calm():
            ended = self.command(self.falkon, "results", "--access", self.access, instance, "--json",
                                 kill_within=self.kill_moment(chance))
            if ended is not None and ended[0] in (0, 1) and len(ended[1].splitlines()) == count:
                break
        else:
            return self.fault(f"instance {instance} did not end: {ended}")
        results = sorted((json.loads(line) for line in ended[1].splitlines()), key=lambda one: one["index"])
        for index, result in enumerate(results):
            if result["index"] != index or result["status"] == "done" and result["stdout"] != f"{index + 1}\n":
                self.fault(f"instance {instance}: {result}")
            if result["status"] != "done":
                self.count("tasks lost more often than is allowed")
        self.count("tasks asked for later", count)
        while self.command(self.falkon, "destroy", "--access", self.access, instance)[0] not in (0, 2):
            if self.over.is_set() and not self.calm():
                return self.fault(f"instance {instance} could not be destroyed")

    def calls_from_python(self, chance):
        ended = self.command(self.python, str(WORK / "client.py"), self.access, str(chance.randrange(1 << 30)),
                             kill_within=self.kill_moment(chance))
        if ended is None:
            return
        status, out, err = ended
        if "wrong" in err or "wrong" in out:
            return self.fault(f"Python: {err[-500:]}")
        if status == 0:
            self.count("calls from Python", int(out.split()[1]))
        else:
            said = (err.strip().splitlines() or ["nothing said"])[-1]
            with self.lock:
                first = not any(said[:60] in what for what in self.ends)
            if first:
                print(f"a Python session failed: {err.strip()[-2000:]}", flush=True)
            self.count("Python sessions that failed: " + said[:60])

    def calm(self):
        return time.monotonic() < self.calm_until

    # The course.

    def sample(self):
        while not self.over.wait(5):
            self.course.append(self.state())

    def state(self):
        executors = [measure for executor in self.executors if (measure := executor.measure())]
        dispatcher = self.dispatcher.measure() or (0, 0)
        kept = [name for node in range(len(self.executors))
                for name in files_below(WORK / f"scratch-{node}", ("stdout", "stderr"))]
        # A worker's own streams, which it has as long as it lives.
        of_workers = [name for name in kept if name.startswith("worker-")]
        return {
            "dispatcher_resident_bytes": dispatcher[0],
            "dispatcher_descriptors": dispatcher[1],
            "executor_resident_bytes_max": max((one[0] for one in executors), default=0),
            "executor_descriptors_max": max((one[1] for one in executors), default=0),
            "journal_bytes": bytes_below(self.directory, ("filler",)),
            "overflow_files": len(kept) - len(of_workers),
            "worker_files": len(of_workers),
        }

    def run(self):
        (WORK / "client.py").write_text(PYTHON_CLIENT)
        self.dispatcher.start()
        machine.wait_for("the dispatcher", lambda: os.path.exists(self.access))
        for executor in self.executors:
            executor.start()
        self.rough.set()
        self.calm_until = float("inf")
        lanes = 3 * [self.submit_to_a_folder] + 2 * [self.submit_and_ask_later]
        if self.python:
            lanes += 2 * [self.calls_from_python]
        else:
            print("skipped: calls from Python (msgspec and cloudpickle are not installed)")
        threads = [threading.Thread(target=self.in_loop, args=lane) for lane in enumerate(lanes)]
        sampler = threading.Thread(target=self.sample)
        for thread in [*threads, sampler]:
            thread.start()
        end = time.monotonic() + self.arguments.seconds
        told = time.monotonic()
        while time.monotonic() < end:
            time.sleep(self.chance.uniform(0, ACT_SECONDS_MAX))
            self.act()
            if not self.dispatcher.runs():
                self.fault("the dispatcher ended by itself: " + tail(WORK / "dispatcher.log"))
                self.dispatcher.start()
            if time.monotonic() > told + 60:
                told = time.monotonic()
                print(f"{end - told:.0f} s to go: {dict(self.ends)}", flush=True)
        self.rough.clear()
        time.sleep(25)  # The last timers run out.
        for service in [self.dispatcher, *self.executors]:
            service.signal(signal.SIGCONT)
            if not service.runs():
                service.start()
        self.calm_until = time.monotonic() + CALM_SECONDS
        self.over.set()
        for thread in [*threads, sampler]:
            thread.join()
        return self.conclude()

    def conclude(self):
        """What is left once everything that clients made is gone."""
        status = json.loads(self.command(self.falkon, "status", "--access", self.access, "--json")[1])
        for instance in status["instances"]:
            self.command(self.falkon, "destroy", "--access", self.access, str(instance["id"]))
        deadline = time.monotonic() + 60
        while True:
            last = self.state()
            bounds = {
                "dispatcher_resident_bytes": DISPATCHER_RESIDENT_BYTES_MAX,
                "dispatcher_descriptors": DESCRIPTORS_MAX,
                "executor_resident_bytes_max": EXECUTOR_RESIDENT_BYTES_MAX,
                "executor_descriptors_max": DESCRIPTORS_MAX,
                "journal_bytes": JOURNAL_BYTES_MAX,
                "overflow_files": OVERFLOW_FILES_MAX,
                "worker_files": 2 * SLOTS * len(self.executors),
            }
            beyond = [name for name, bound in bounds.items() if last[name] > bound]
            if not beyond or time.monotonic() > deadline:
                break
            time.sleep(1)
        for name in beyond:
            self.fault(f"{name} is {last[name]} at the end, more than {bounds[name]}")
        report = {
            "seconds": self.arguments.seconds, "seed": self.arguments.seed, "executors": len(self.executors),
            "acts": dict(self.acts), "ends": dict(self.ends), "starts_of_the_dispatcher": self.dispatcher.starts,
            "at_most": {name: max((one[name] for one in self.course), default=0) for name in last},
            "at_the_end": last, "bounds": bounds, "faults": self.faults,
        }
        print(table(report))
        if self.arguments.json:
            pathlib.Path(self.arguments.json).write_text(json.dumps(report, indent=1) + "\n")
        return 1 if self.faults else 0


class Cluster(machine.Cluster):
    """As in the benchmarks, but for logs that go on when a service is started again."""

    def start(self, host, words, log, append=False):
        if not append:
            return super().start(host, words, log)
        environment = dict(os.environ, TMPDIR=str(WORK / "tmp"), HOME=str(WORK))
        with open(WORK / log, "ab") as output:
            process = subprocess.Popen(["ip", "netns", "exec", host, *words], stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=output, env=environment)
        self.processes.append(process)
        return process


def python_with_falkon():
    for candidate in (ROOT / "target/python-tests/bin/python", shutil.which("python3")):
        if candidate and os.path.exists(candidate):
            words = [str(candidate), "-c", "import msgspec, cloudpickle"]
            if subprocess.run(words, capture_output=True, check=False).returncode == 0:
                return str(candidate)
    return None


def files_below(folder, endings):
    return [name for _, _, names in os.walk(folder) for name in names if name.endswith(endings)]


def bytes_below(folder, but):
    total = 0
    for at, _, names in os.walk(folder):
        for name in names:
            if name not in but:
                with contextlib.suppress(OSError):
                    total += os.lstat(os.path.join(at, name)).st_blocks * 512
    return total


def tail(path):
    return "\n".join(path.read_text(errors="replace").splitlines()[-5:])


def table(report):
    lines = [f"{report['seconds']} s, {report['executors']} executors, seed {report['seed']}"]
    lines += [f"  {count:>8} × {act.replace('_', ' ')}" for act, count in sorted(report["acts"].items())]
    lines += [f"  {count:>8} {what}" for what, count in sorted(report["ends"].items())]
    lines += [f"{'':34}{'at most':>14}{'at the end':>14}{'bound':>14}"]
    lines += [f"  {name:32}{report['at_most'][name]:>14}{last:>14}{report['bounds'][name]:>14}"
              for name, last in report["at_the_end"].items()]
    lines += [f"FAULT: {fault}" for fault in report["faults"]] or ["every task is accounted for"]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=3600)
    parser.add_argument("--executors", type=int, default=20)
    parser.add_argument("--disk-mib", type=int, default=1024, help="the size of the disk of the journal")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    machine.isolate()
    print(f"soak: --seed {arguments.seed}", flush=True)
    sys.exit(Soak(arguments).run())


if __name__ == "__main__":
    main()
