"""A batch scheduler that a script beside this starts, and Falkon on it."""

import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
WAIT_S_MAX = 120


class Cluster:
    """The scheduler, in a directory of its own. `program` and `access` are
    Falkon and its access file, as `run` sees them."""

    env = None

    def __init__(self, script, *args):
        words = [ROOT / "tests/schedulers" / script, *map(str, args)]
        self.daemons = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        said = self.daemons.stdout.readline().strip()
        if said != "ready":
            print(said)
            sys.exit(0)
        # The same address again after a crash: executors look for it there.
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]

    def run(self, *words):
        done = subprocess.run(words, capture_output=True, text=True, env=self.env)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def falkon(self, command, *words):
        return self.run(self.program, command, "--access", self.access, *words)

    def wait_for(self, what, ready):
        deadline = time.monotonic() + WAIT_S_MAX
        while not (found := ready()):
            assert time.monotonic() < deadline, f"waited in vain for: {what}\n{self.log()}"
            # Schedulers tell nobody: they have to be asked, and not all the time.
            time.sleep(0.2)
        return found

    def wait_for_line(self, line, since=0):
        self.wait_for(line, lambda: line in self.log()[since:])

    def allocations(self):
        return json.loads(self.falkon("provision", "list", "--json"))["allocations"]

    def with_executors(self):
        """Jobs that have executors, and keep them."""
        return [one["job"] for one in self.allocations() if one["executors"] and not one["ending"]]

    def log(self):
        return self.log_path.read_text()

    def start(self, *words):
        """Starts the dispatcher by these words, and waits until it is there."""
        log = open(self.log_path, "a", encoding="utf-8")
        before = self.log().count("dispatcher at ")
        words = [*words, "--listen", f"127.0.0.1:{self.port}"]
        service = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env)
        self.wait_for("the dispatcher", lambda: self.log().count("dispatcher at ") > before)
        return service

    def found_again(self, service, start):
        """What runs is found again after a crash, and used."""
        task = self.falkon("submit", "--", "sh", "-c", "sleep 6; echo on").strip()
        self.wait_for("an executor", self.with_executors)
        service.kill()
        service.wait()
        service = start()
        self.falkon("wait", task, "--quiet")
        result = json.loads(self.falkon("results", "--json", task))
        assert result["attempts"] == 1, result
        return service


def check_in_a_directory(prefix, cluster_of, check, well):
    """Checks a cluster that is made in a directory, and says that all is well."""
    with tempfile.TemporaryDirectory(prefix=prefix) as home:
        cluster = cluster_of(pathlib.Path(home))
        try:
            check(cluster)
        finally:
            cluster.daemons.stdin.close()
            cluster.daemons.wait()
    print(well)
