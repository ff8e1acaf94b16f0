#!/usr/bin/env python3
"""Executors from a real HTCondor, which tests/schedulers/htcondor.sh starts.

    tests/htcondor.py

It is not part of `make test`: where HTCondor is not installed yet, that takes
560 MB and a minute or two. FALKON is the program [target/release/falkon].
"""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
WAIT_S_MAX = 120
QUEUE = """kind = "htcondor"
nodes_max = 2
idle = 2
release = "idle"
query_interval = 0.5
delay = 1
walltime = 600
[job]
cpus = 2
"""


class Site:
    def __init__(self, home):
        self.home = home
        script = ROOT / "tests/schedulers/htcondor.sh"
        self.daemons = subprocess.Popen([script, home], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        said = self.daemons.stdout.readline().strip()
        if said != "ready":
            print(said)
            sys.exit(0)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        # Where the user of the jobs, and of Falkon, may write.
        self.run_dir = home / "falkon"
        self.run_dir.mkdir()
        os.chown(self.run_dir, 2000, 2000)
        shutil.copy(os.environ.get("FALKON", ROOT / "target/release/falkon"), self.run_dir / "falkon")

    def run(self, *words):
        done = subprocess.run([self.home / "in", *words], capture_output=True, text=True)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def falkon(self, command, *words):
        return self.run("falkon/falkon", command, "--access", "falkon/d/access.json", *words)

    def wait_for(self, what, ready):
        deadline = time.monotonic() + WAIT_S_MAX
        while not (found := ready()):
            assert time.monotonic() < deadline, f"waited in vain for: {what}\n{self.log()}"
            # HTCondor tells nobody: it has to be asked, and not all the time.
            time.sleep(0.2)
        return found

    def allocations(self):
        return json.loads(self.falkon("provision", "list", "--json"))["allocations"]

    def jobs(self):
        return self.run("condor_q", "-af", "ClusterId").split()

    def log(self):
        return (self.run_dir / "log").read_text()

    def wait_for_none(self):
        self.wait_for("no allocation", lambda: not self.allocations())
        self.wait_for("no job", lambda: not self.jobs())


def start(site):
    (site.run_dir / "q.toml").write_text(QUEUE)
    log = open(site.run_dir / "log", "a", encoding="utf-8")
    # The same address again after a crash: executors look for it there.
    words = [site.home / "in", "falkon/falkon", "start", "--dir", "falkon/d", "--listen", f"127.0.0.1:{site.port}",
             "--provision", "falkon/q.toml"]
    before = site.log().count("dispatcher at ")
    service = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    site.wait_for("the dispatcher", lambda: site.log().count("dispatcher at ") > before)
    return service


def check(site):
    service = start(site)
    # Nodes come with the tasks and go; no more is offered than was granted.
    said = site.falkon("submit", "--wait", "--quiet", "--range", "1-20", "--", "sh", "-c", "sleep 0.2; echo {}")
    assert sorted(map(int, said.split())) == list(range(1, 21)), said
    assert " joined with 2 cpus, 128 MiB memory" in site.log(), site.log()
    site.wait_for_none()

    # What is removed or held costs nothing but its time.
    for end in "condor_rm", "condor_hold":
        task = site.falkon("submit", "--range", "1-8", "--retries", "0", "--", "sh", "-c", "sleep 2; echo {}").strip()
        with_executors = lambda: [one["job"] for one in site.allocations() if one["executors"] and not one["ending"]]
        site.run(end, site.wait_for("a job with an executor", with_executors)[0])
        site.falkon("wait", task, "--quiet")
        site.wait_for_none()
    assert "would never run" in site.log(), site.log()

    # What runs is found again after a crash, and used.
    task = site.falkon("submit", "--", "sh", "-c", "sleep 6; echo on").strip()
    site.wait_for("an executor", lambda: any(one["executors"] for one in site.allocations()))
    service.kill()
    service.wait()
    service = start(site)
    site.falkon("wait", task, "--quiet")
    result = json.loads(site.falkon("results", "--json", task))
    assert result["attempts"] == 1, result

    # A refusal is in HTCondor's own words.
    site.falkon("provision", "remove", "q")
    site.wait_for("the queue is removed", lambda: "queue q: is removed" in site.log())
    site.falkon("provision", "add", "htcondor", "--name", "bad", "--option=-nonsense")
    site.falkon("submit", "--", "true")
    site.wait_for("a refusal", lambda: "refused 1 times in a row: Usage: condor_submit" in site.log())
    site.falkon("provision", "remove", "bad")
    site.wait_for_none()
    site.falkon("stop")
    service.wait()


def main():
    with tempfile.TemporaryDirectory(prefix="falkon-htcondor-") as home:
        os.chmod(home, 0o755)
        site = Site(pathlib.Path(home, "condor"))
        try:
            check(site)
        finally:
            site.daemons.stdin.close()
            site.daemons.wait()
    print("HTCondor: nodes come and go, are taken away, and are found again")


if __name__ == "__main__":
    main()
