#!/usr/bin/env python3
"""Executors from a real HTCondor, which tests/schedulers/htcondor.sh starts.

    tests/htcondor.py

It is not part of `make test`: where HTCondor is not installed yet, that takes
560 MB and a minute or two. FALKON is the program [target/release/falkon].
"""

import os
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "schedulers"))
from cluster import ROOT, Cluster, check_in_a_directory  # noqa: E402

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


class Site(Cluster):
    program, access = "falkon/falkon", "falkon/d/access.json"

    def __init__(self, home):
        os.chmod(home, 0o755)
        self.home = home / "condor"
        super().__init__("htcondor.sh", self.home)
        # Where the user of the jobs, and of Falkon, may write.
        self.run_dir = self.home / "falkon"
        self.run_dir.mkdir()
        os.chown(self.run_dir, 2000, 2000)
        shutil.copy(os.environ.get("FALKON", ROOT / "target/release/falkon"), self.run_dir / "falkon")
        self.log_path = self.run_dir / "log"

    def run(self, *words):
        return super().run(self.home / "in", *words)

    def jobs(self):
        return self.run("condor_q", "-af", "ClusterId").split()

    def wait_for_none(self):
        self.wait_for("no allocation", lambda: not self.allocations())
        self.wait_for("no job", lambda: not self.jobs())


def start(site):
    (site.run_dir / "q.toml").write_text(QUEUE)
    return site.start(site.home / "in", site.program, "start", "--dir", "falkon/d", "--provision", "falkon/q.toml")


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
        site.run(end, site.wait_for("a job with an executor", site.with_executors)[0])
        site.falkon("wait", task, "--quiet")
        site.wait_for_none()
    assert "would never run" in site.log(), site.log()
    service = site.found_again(service, lambda: start(site))

    # A refusal is in HTCondor's own words.
    site.falkon("provision", "remove", "q")
    site.wait_for_line("queue q: is removed")
    site.falkon("provision", "add", "htcondor", "--name", "bad", "--option=-nonsense")
    site.falkon("submit", "--", "true")
    site.wait_for_line("refused 1 times in a row: Usage: condor_submit")
    site.falkon("provision", "remove", "bad")
    site.wait_for_none()
    site.falkon("stop")
    service.wait()


if __name__ == "__main__":
    well = "HTCondor: nodes come and go, are taken away, and are found again"
    check_in_a_directory("falkon-htcondor-", Site, check, well)
