#!/usr/bin/env python3
"""Executors from a real Kubernetes, which tests/schedulers/kubernetes.sh starts.

    tests/kubernetes.py

It is not part of `make test`: where its control plane is not built yet, that
takes ten minutes. FALKON is the program [target/release/falkon].
"""

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
WAIT_S_MAX = 120
QUEUE = """kind = "kubernetes"
nodes_max = {nodes}
idle = 2
release = "idle"
query_interval = 0.5
delay = 1
walltime = 600
[job]
cpus = 2
memory_mib = 256
binary = "{falkon}"
image = "{image}"
[job.settings]
namespace = "{namespace}"
[job.manifest.spec.template]
metadata = {{ annotations = {{ "example.org/note" = "ours" }} }}
[job.manifest.spec.template.spec]
nodeSelector = {{ {selector} }}
tolerations = [{{ key = "example.org/busy", operator = "Exists" }}]
"""


class Site:
    def __init__(self, home):
        self.home = home
        script = ROOT / "tests/schedulers/kubernetes.sh"
        self.daemons = subprocess.Popen(
            [script, home / "kubernetes", "2", "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        said = self.daemons.stdout.readline().strip()
        if said != "ready":
            print(said)
            sys.exit(0)
        self.falkon_path = pathlib.Path(os.environ.get("FALKON", ROOT / "target/release/falkon")).resolve()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.env = dict(os.environ, PATH=f"{home}/kubernetes/bin:{os.environ['PATH']}")
        self.kubectl("create", "namespace", "tasks")

    def run(self, *words, **more):
        done = subprocess.run(words, capture_output=True, text=True, env=self.env, **more)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def kubectl(self, *words, **more):
        return self.run("kubectl", *words, **more)

    def secret(self):
        return json.loads((self.home / "d/access-executor.json").read_text())["secrets"]["executor"]

    def items(self, what):
        return json.loads(self.kubectl("get", what, "-n", "tasks", "-o", "json"))["items"]

    def falkon(self, command, *words):
        return self.run(self.falkon_path, command, "--access", self.home / "d/access.json", *words)

    def wait_for(self, what, ready):
        deadline = time.monotonic() + WAIT_S_MAX
        while not (found := ready()):
            assert time.monotonic() < deadline, f"waited in vain for: {what}\n{self.log()}"
            # Kubernetes tells nobody: it has to be asked, and not all the time.
            time.sleep(0.2)
        return found

    def wait_for_line(self, line, since=0):
        self.wait_for(line, lambda: line in self.log()[since:])

    def allocations(self):
        return json.loads(self.falkon("provision", "list", "--json"))["allocations"]

    def executors(self):
        return sum(one["executors"] for one in self.allocations() if not one["ending"])

    def log(self):
        return (self.home / "log").read_text()

    def wait_for_none(self):
        self.wait_for("no allocation", lambda: not self.allocations())
        self.wait_for("no pod", lambda: not [pod for pod in self.items("pods") if is_alive(pod)])

    def tell(self, line):
        print(line, file=self.daemons.stdin, flush=True)
        assert self.daemons.stdout.readline() == "done\n"

    def queue(self, name, nodes=2, image="host", namespace="tasks", selector=""):
        path = self.home / f"{name}.toml"
        path.write_text(
            QUEUE.format(nodes=nodes, image=image, namespace=namespace, selector=selector, falkon=self.falkon_path)
        )
        return path

    def start(self, *words):
        log = open(self.home / "log", "a", encoding="utf-8")
        before = self.log().count("dispatcher at ")
        words = [self.falkon_path, "start", "--dir", self.home / "d", "--listen", f"127.0.0.1:{self.port}", *words]
        service = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env)
        self.wait_for("the dispatcher", lambda: self.log().count("dispatcher at ") > before)
        return service

    def refuses(self, words, **queue):
        """A queue of which nothing comes says why, in Kubernetes' own words."""
        since = len(self.log())
        self.falkon("provision", "add", self.queue("bad", **queue))
        task = self.falkon("submit", "--", "true").strip()
        self.wait_for_line(words, since)
        self.falkon("cancel", task)
        self.falkon("provision", "remove", "bad")
        self.wait_for_line("queue bad: is removed", since)


def is_alive(pod):
    return pod["status"].get("phase") in ("Pending", "Running")


def grow_and_shrink(site):
    # One pod first; more as there is more to do, as many as may be; then none.
    said = site.falkon("submit", "--wait", "--quiet", "--range", "1-2", "--", "echo", "{}")
    assert sorted(map(int, said.split())) == [1, 2], said
    task = site.falkon("submit", "--range", "1-40", "--", "sh", "-c", "sleep 0.5; echo {}").strip()
    site.wait_for("two executors", lambda: site.executors() == 2)
    pod = next(pod for pod in site.items("pods") if is_alive(pod))
    assert pod["metadata"]["annotations"]["example.org/note"] == "ours", pod
    assert pod["metadata"]["labels"]["falkon-queue"] == "q", pod
    assert any(one["key"] == "example.org/busy" for one in pod["spec"]["tolerations"]), pod
    # The secret is nowhere but in the allocation's own Secret.
    assert site.secret() not in json.dumps(site.items("jobs") + site.items("pods"))
    site.falkon("wait", task, "--quiet")
    # No more is offered than was granted.
    assert " joined with 2 cpus, 256 MiB memory" in site.log(), site.log()
    site.wait_for_none()


def taken_away(site):
    def with_executors():
        return [one["job"] for one in site.allocations() if one["executors"] and not one["ending"]]

    # What is deleted by hand, job or pod, costs nothing but its time.
    for what, suffix in ("job", ""), ("pod", None):
        task = site.falkon("submit", "--range", "1-8", "--retries", "0", "--", "sh", "-c", "sleep 2; echo {}").strip()
        name = site.wait_for("a job with an executor", with_executors)[0]
        if suffix is None:
            name = next(pod["metadata"]["name"] for pod in site.items("pods") if is_alive(pod))
        site.kubectl("delete", what, name, "-n", "tasks", "--wait=false")
        site.falkon("wait", task, "--quiet")
        site.wait_for_none()
    # So does a node that is gone.
    task = site.falkon("submit", "--range", "1-8", "--retries", "0", "--", "sh", "-c", "sleep 2; echo {}").strip()
    site.wait_for("an executor", with_executors)
    node = next(pod["spec"]["nodeName"] for pod in site.items("pods") if is_alive(pod))
    site.tell(f"down {node}")
    site.falkon("wait", task, "--quiet")
    site.wait_for("no allocation", lambda: not site.allocations())
    site.tell(f"up {node}")
    site.wait_for_none()


def found_again(site, service):
    # What runs is found again after a crash, and used.
    task = site.falkon("submit", "--", "sh", "-c", "sleep 6; echo on").strip()
    site.wait_for("an executor", site.executors)
    service.kill()
    service.wait()
    service = site.start()
    site.falkon("wait", task, "--quiet")
    result = json.loads(site.falkon("results", "--json", task))
    assert result["attempts"] == 1, result
    return service


def refusals(site):
    site.falkon("provision", "remove", "q")
    site.wait_for_line("queue q: is removed")
    site.refuses('namespaces "nonesuch" not found', namespace="nonesuch")
    site.refuses("would never run (ImagePullBackOff, Back-off pulling image", image="nonesuch")
    site.refuses("the scheduler says: Unschedulable, 0/2 nodes are available", selector='"example.org/x" = "y"')
    site.kubectl("create", "quota", "none", "--hard=count/jobs.batch=0", "-n", "tasks")
    site.wait_for("the quota", lambda: site.items("resourcequotas")[0]["status"].get("hard"))
    site.refuses("exceeded quota: none", nodes=1)
    # One of pods, the job waits for.
    site.kubectl("delete", "quota", "none", "-n", "tasks")
    site.kubectl("create", "quota", "few", "--hard=pods=0", "-n", "tasks")
    site.wait_for("the quota", lambda: site.items("resourcequotas")[0]["status"].get("hard"))
    site.refuses("exceeded quota: few", nodes=1)
    site.kubectl("delete", "quota", "few", "-n", "tasks")
    # What an image lacks, its pod says.
    since = len(site.log())
    path = site.queue("bad")
    path.write_text(path.read_text().replace(str(site.falkon_path), "/nonesuch/falkon"))
    site.falkon("provision", "add", path)
    task = site.falkon("submit", "--", "true").strip()
    site.wait_for_line("there is no program /nonesuch/falkon", since)
    site.falkon("cancel", task)
    site.falkon("provision", "remove", "bad")
    site.wait_for_line("queue bad: is removed", since)


def check(site):
    service = site.start("--provision", site.queue("q"))
    grow_and_shrink(site)
    taken_away(site)
    service = found_again(site, service)
    refusals(site)
    # Nothing stays: jobs go a minute after their end, and Secrets with them.
    site.wait_for("no job and no Secret", lambda: not site.items("jobs") and not site.items("secrets"))
    site.falkon("stop")
    service.wait()


def main():
    with tempfile.TemporaryDirectory(prefix="falkon-kubernetes-") as home:
        site = Site(pathlib.Path(home))
        try:
            check(site)
        finally:
            site.daemons.stdin.close()
            site.daemons.wait()
    print("Kubernetes: pods come and go, are taken away, and are found again")


if __name__ == "__main__":
    main()
