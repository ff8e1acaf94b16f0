"""What watching costs a dispatcher with very many tasks, and how soon a page is there.

    FALKON_BINARY=target/release/falkon python3 bench/watching.py [--array N] [--distinct N]
                                                                  [--rounds 3] [--json]

A dispatcher runs an array of no-ops and then distinct tasks of which one in a hundred fails,
once with nobody watching and once with a browser's connection to the page of `falkon start
--web` and a `falkon top`, which take turns. Tables show the dispatcher's processor time and
memory for both, how long a page takes until its first update is there, how long its queries
take, and what `falkon export --parquet` and `falkon explain` make of the tasks. Where Chromium
and its driver are installed, the timeline is drawn and zoomed in it, from the click until the
picture is there.
"""

import argparse
import http.client
import json
import os
import pathlib
import platform
import pty
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

FALKON = str(pathlib.Path(os.environ.get("FALKON_BINARY", "target/release/falkon")).resolve())
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
LOADS = 100
SLOTS = "512"
FAILING = 100
ZOOMS_MAX = 40


def falkon(*args):
    ran = subprocess.run([FALKON, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if ran.returncode not in (0, 1):
        sys.exit("falkon %s: %s" % (" ".join(args), ran.stderr.strip()))
    return ran.stdout


class Service:
    """A dispatcher with its page, and one executor."""

    def __init__(self, directory):
        self.dir = os.path.join(directory, "dispatcher")
        self.access = ["--access", os.path.join(self.dir, "access.json")]
        self.log = open(os.path.join(directory, "log"), "w", encoding="utf-8")
        self.process = subprocess.Popen(
            [FALKON, "start", "--listen", "127.0.0.1:0", "--web", "127.0.0.1:0", "--dir", self.dir],
            stderr=self.log)
        while not os.path.exists(self.access[1]):
            time.sleep(0.05)
        self.executor = subprocess.Popen([FALKON, "executor", "--slots", SLOTS, *self.access],
                                         stderr=subprocess.DEVNULL)
        self.link = urllib.parse.urlparse(falkon("web", "--print", *self.access).split()[-1])

    def processor_s(self):
        """Processor time of the dispatcher's process."""
        fields = pathlib.Path("/proc/%d/stat" % self.process.pid).read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) * TICK_S

    def watching_s(self):
        """Processor time of its thread that watches."""
        for thread in pathlib.Path("/proc/%d/task" % self.process.pid).iterdir():
            if (thread / "comm").read_text().strip() == "web":
                fields = (thread / "stat").read_text().rsplit(")", 1)[1].split()
                return (int(fields[11]) + int(fields[12])) * TICK_S
        return 0

    def memory(self, key="VmRSS"):
        for line in pathlib.Path("/proc/%d/status" % self.process.pid).read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
        return 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in (self.executor, self.process):
            process.terminate()
            process.wait()
        self.log.close()


class Browser:
    """The page's connections, without drawing."""

    def __init__(self, service):
        self.watching = None
        self.host = service.link.netloc
        connection = http.client.HTTPConnection(self.host)
        connection.request("GET", service.link.path + "?" + service.link.query)
        answer = connection.getresponse()
        answer.read()
        self.cookie = "; ".join(one.split(";")[0] for one in answer.headers.get_all("Set-Cookie"))
        self.updates = []
        self.stopped = False

    def get(self, path):
        """How long an answer takes, and what it is."""
        began = time.monotonic()
        connection = http.client.HTTPConnection(self.host)
        connection.request("GET", path, headers={"Cookie": self.cookie})
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            sys.exit("%s: %d %s" % (path, answer.status, body[:200].decode()))
        connection.close()
        return time.monotonic() - began, body

    def load(self):
        """How long a page takes until its first numbers are there."""
        began = time.monotonic()
        self.get("/")
        connection = http.client.HTTPConnection(self.host)
        connection.request("GET", "/api/updates", headers={"Cookie": self.cookie})
        answer = connection.getresponse()
        while not answer.readline().startswith(b"data:"):
            pass
        took = time.monotonic() - began
        connection.close()
        return took

    def watch(self):
        """Takes updates until it is stopped."""
        self.watching = http.client.HTTPConnection(self.host)
        self.watching.request("GET", "/api/updates", headers={"Cookie": self.cookie})
        answer = self.watching.getresponse()

        def read():
            while not self.stopped:
                line = answer.readline()
                if not line:
                    return
                if line.startswith(b"data:"):
                    self.updates.append(time.monotonic())
        threading.Thread(target=read, daemon=True).start()


class Chromium:
    """A browser that draws, driven over WebDriver."""

    NEEDS = ("chromedriver", "chromium")
    # From a click until the answer is drawn, and the frame after it is there.
    CLICK = """
        const [name, done] = arguments;
        const note = document.getElementById("timeline-note");
        const look = () => /tasks on these executors/.test(note.textContent)
            ? requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)))
            : setTimeout(look, 1);
        const began = performance.now();
        document.getElementById("timeline-" + name).click();
        look();
    """

    def __init__(self, directory):
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
        for line in self.driver.stdout:
            found = re.search(r"started successfully on port (\d+)", line)
            if found:
                break
        self.host = "127.0.0.1:" + found.group(1)
        threading.Thread(target=self.driver.stdout.read, daemon=True).start()
        options = {"args": ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1280,900",
                            "--disable-dev-shm-usage", "--no-first-run",
                            "--user-data-dir=" + os.path.join(directory, "browser")]}
        wanted = {"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}}
        self.session = ""
        self.session = "/session/" + self.call("/session", wanted)["sessionId"]

    def call(self, path, body):
        connection = http.client.HTTPConnection(self.host)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        value = json.loads(answer.read())["value"]
        if answer.status != 200:
            sys.exit("%s: %s" % (path, value))
        return value

    def script(self, how, script, *args):
        return self.call("%s/execute/%s" % (self.session, how), {"script": script, "args": list(args)})

    def timeline(self, link):
        """How long the timeline takes to be drawn, and to be zoomed until tasks are single."""
        self.call(self.session + "/timeouts", {"script": 60_000})
        self.call(self.session + "/url", {"url": link.geturl()})
        while not self.script("sync", "return document.getElementById('state')?.textContent === 'live'"):
            time.sleep(0.05)
        drawn = [self.script("async", self.CLICK, "show" if at == 0 else "all") for at in range(5)]
        zoomed = []
        while len(zoomed) < ZOOMS_MAX and not self.script("sync", "return /Each box/.test(document.getElementById('timeline-note').textContent)"):
            zoomed.append(self.script("async", self.CLICK, "in"))
        return {"drawn_ms": drawn, "zoomed_ms": zoomed}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        connection = http.client.HTTPConnection(self.host)
        connection.request("DELETE", self.session)
        connection.getresponse().read()
        self.driver.terminate()
        self.driver.wait()


class Top:
    """`falkon top` on a terminal of its own, whose output nobody draws."""

    def __init__(self, service):
        ours, theirs = pty.openpty()
        self.process = subprocess.Popen([FALKON, "top", *service.access], stdin=theirs, stdout=theirs,
                                        stderr=theirs, env={**os.environ, "TERM": "xterm"})
        os.close(theirs)

        def read():
            try:
                while os.read(ours, 65536):
                    pass
            except OSError:
                pass
        threading.Thread(target=read, daemon=True).start()

    def stop(self):
        self.process.terminate()
        self.process.wait()


def run(directory, array, distinct, tasks, is_watched):
    """The processor time and memory of a dispatcher for both instances."""
    with Service(directory) as service:
        watchers, before = [], time.time()
        if is_watched:
            browser = Browser(service)
            browser.watch()
            watchers = [Top(service)]
        found = {}
        began = service.processor_s(), time.monotonic()
        number = falkon("submit", *service.access, "--range", "1-%d" % array, "--", "@noop").strip()
        falkon("wait", *service.access, number)
        found["array_s"] = time.monotonic() - began[1]
        found["array_processor_s"] = service.processor_s() - began[0]
        began = service.processor_s(), time.monotonic()
        number = falkon("submit", *service.access, "--tasks", tasks).strip()
        falkon("wait", *service.access, number)
        found["distinct_s"] = time.monotonic() - began[1]
        found["distinct_processor_s"] = service.processor_s() - began[0]
        found["watching_processor_s"] = service.watching_s()
        found["memory_bytes"] = service.memory()
        found["memory_peak_bytes"] = service.memory("VmHWM")
        if is_watched:
            gaps = [after - before for before, after in zip(browser.updates, browser.updates[1:])]
            found["update_gap_s"] = statistics.median(gaps) if gaps else None
            found["update_gap_max_s"] = max(gaps, default=None)
            found["load_s"] = sorted(browser.load() for _ in range(LOADS))
            queries = {"failed tasks": "tasks?instance=%s&state=failed" % number,
                       "last tasks": "tasks?instance=%s&from=%d" % (number, distinct - 100),
                       "instances": "instances", "executors": "executors",
                       "history": "history?since=0",
                       "timeline of all": "timeline?from=%f&until=%f" % (before, time.time()),
                       "timeline of a second": "timeline?from=%f&until=%f" % (before + 5, before + 6)}
            found["queries_s"] = {name: browser.get("/api/" + path)[0] for name, path in queries.items()}
            if all(shutil.which(program) for program in Chromium.NEEDS):
                with Chromium(directory) as chromium:
                    found["timeline"] = chromium.timeline(service.link)
            status = json.loads(falkon("status", *service.access, "--json"))
            found["counts"] = [[one["done"], one["failed"]] for one in status["instances"]]
            for top in watchers:
                top.stop()
            out = os.path.join(directory, "tasks.parquet")
            took = time.monotonic()
            falkon("export", "--parquet", *service.access, "-o", out)
            found["parquet_s"] = time.monotonic() - took
            found["parquet_bytes"] = os.path.getsize(out)
            events = os.path.join(service.dir, "events")
            found["event_bytes"] = sum(file.stat().st_size for file in pathlib.Path(events).iterdir())
        return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--array", type=int, default=1_000_000_000)
    parser.add_argument("--distinct", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    rounds = []
    with tempfile.TemporaryDirectory(prefix="falkon-watching-") as directory:
        tasks = os.path.join(directory, "tasks.jsonl")
        with open(tasks, "w", encoding="utf-8") as file:
            for at in range(args.distinct):
                if at % FAILING == FAILING - 1:
                    file.write('{"command":["@sleep","60"],"timeout":"1ms"}\n')
                else:
                    # They end one by one, at times of their own.
                    file.write('{"command":["@sleep","0.000%03d"]}\n' % (100 + at % 900))
        for number in range(args.rounds):
            one = {}
            # Both take turns to be first: the machine may get slower within a round.
            for name, is_watched in sorted([("alone", False), ("watched", True)], reverse=number % 2 == 1):
                place = os.path.join(directory, "%s-%d" % (name, number))
                os.mkdir(place)
                one[name] = run(place, args.array, args.distinct, tasks, is_watched)
            rounds.append(one)
    if args.json:
        print(json.dumps({"name": "watching", "machine": platform.platform(), "load": load,
                          "array": args.array, "distinct": args.distinct, "rounds": rounds}))
        return
    print("load before %.1f; an array of %d and %d distinct tasks, one in %d fails"
          % (load, args.array, args.distinct, FAILING))

    def row(what, values, unit):
        values = sorted(values)
        print("%-46s %12.3f   %.3f to %.3f %s" % (what, statistics.median(values), values[0], values[-1], unit))

    for name in ("alone", "watched"):
        row("%s: distinct tasks, from submission to end" % name, [one[name]["distinct_s"] for one in rounds], "s")
        row("%s: the dispatcher's processor time, array" % name,
            [one[name]["array_processor_s"] for one in rounds], "s")
        row("%s: the same, distinct tasks" % name, [one[name]["distinct_processor_s"] for one in rounds], "s")
        row("%s: the dispatcher's memory" % name, [one[name]["memory_bytes"] / 2**20 for one in rounds], "MiB")
    row("watched: the watching thread's processor time",
        [one["watched"]["watching_processor_s"] for one in rounds], "s")
    row("watched / alone: time of distinct tasks",
        [one["watched"]["distinct_s"] / one["alone"]["distinct_s"] for one in rounds], "x")
    watched = [one["watched"] for one in rounds]
    row("page until its first update, p50", [one["load_s"][LOADS // 2] * 1e3 for one in watched], "ms")
    row("page until its first update, p99", [one["load_s"][LOADS * 99 // 100] * 1e3 for one in watched], "ms")
    row("between two updates", [one["update_gap_s"] for one in watched], "s")
    for name in watched[0]["queries_s"]:
        row("query: %s" % name, [one["queries_s"][name] * 1e3 for one in watched], "ms")
    if "timeline" in watched[0]:
        for name in ("drawn", "zoomed"):
            times = [one["timeline"][name + "_ms"] for one in watched]
            row("timeline %s in Chromium, median" % name, map(statistics.median, times), "ms")
            row("timeline %s in Chromium, longest" % name, map(max, times), "ms")
    else:
        print("no timeline is drawn: it needs %s" % " and ".join(Chromium.NEEDS))
    row("events, a distinct task", [one["event_bytes"] / args.distinct for one in watched], "bytes")
    row("Parquet", [args.distinct / one["parquet_s"] for one in watched], "tasks/s")
    print("counts of the last round, done and failed: %s" % watched[-1]["counts"])


if __name__ == "__main__":
    main()
