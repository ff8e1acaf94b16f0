"""TaskVine (cctools of Debian 13) for bench/peers/data.py and broadcasts.py: a manager of our own
in C over its library, and its workers.

They live in a directory with Debian 13 in it and run with that one's C library;
making the directory takes root, debootstrap and some two minutes, once.
"""

import json
import os
import pathlib
import shutil
import subprocess
import time

from packages import LeftOut

PACKAGES = "coop-computing-tools coop-computing-tools-dev gcc libc6-dev"
LIBRARIES = "-ltaskvine -ldttools -l:libz.so.1 -l:libssl.so.3 -l:libcrypto.so.3 -lm"
LOADER = "usr/lib64/ld-linux-x86-64.so.2"
LIBRARY_FOLDER = "usr/lib/x86_64-linux-gnu"


def said(command, log):
    """Runs a command; what it says goes to a file."""
    with open(log, "ab") as output:
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output).returncode == 0


def install(home):
    """The directory with TaskVine in it."""
    root = pathlib.Path(home, "trixie")
    log = pathlib.Path(home, "taskvine.log")
    source = pathlib.Path(__file__).with_name("campaign.c")
    if not (root / "usr/bin/vine_worker").exists():
        if os.geteuid() != 0 or not shutil.which("apt-get"):
            raise LeftOut("TaskVine is installed by root on Debian")
        log.parent.mkdir(parents=True, exist_ok=True)
        print(f"installing TaskVine into {root} (two minutes or so, 730 MB)", flush=True)
        if not shutil.which("debootstrap") and not said(["apt-get", "install", "-qq", "-y", "debootstrap"], log):
            raise LeftOut(f"debootstrap cannot be installed ({log})")
        # What an attempt that failed left there is in the way of the next one.
        shutil.rmtree(root, ignore_errors=True)
        fetch = f"export DEBIAN_FRONTEND=noninteractive; apt-get update -qq && apt-get install -qq -y --no-install-recommends {PACKAGES}"
        if not said(["debootstrap", "--variant=minbase", "--include=ca-certificates", "trixie", root], log):
            raise LeftOut(f"Debian 13 cannot be had ({log})")
        shutil.copy("/etc/resolv.conf", root / "etc")
        if not said(["chroot", root, "sh", "-c", fetch], log):
            raise LeftOut(f"cctools cannot be installed ({log})")
    shutil.copy(source, root / "tmp")
    build = ["chroot", root, "gcc", "-O2", "-I/usr/include/cctools", "-o", "/tmp/campaign", "/tmp/campaign.c"]
    if not said([*build, *LIBRARIES.split()], log):
        raise LeftOut(f"the manager cannot be compiled ({log})")
    return root


def version(root):
    """As the worker says it."""
    said = subprocess.run(command(root, "usr/bin/vine_worker", "--version"), capture_output=True, text=True)
    return said.stdout.split("version", 1)[1].split("(")[0].strip()


def command(root, program, *words):
    """A program of that directory's, with that directory's C library."""
    return [root / LOADER, "--library-path", root / LIBRARY_FOLDER, root / program, *words]


def run(root, scratch, mode, workers, tasks):
    """Seconds and bytes that the manager sent, of one run with empty caches.
    `mode` is that of campaign.c, `tasks` the file with what they read."""
    scratch = pathlib.Path(scratch)
    port, log = scratch / "port", scratch / "log"
    with open(log, "wb") as output:
        manager = subprocess.Popen(command(root, "tmp/campaign", mode, str(workers), port, tasks),
                                   cwd=scratch, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=output, text=True)
        started = []
        try:
            while not (port.exists() and port.read_text().endswith("\n")):
                if manager.poll() is not None:
                    raise RuntimeError(f"TaskVine's manager has ended: {log.read_text()}")
                time.sleep(0.01)
            for number in range(workers):
                folder = scratch / f"worker-{number}"
                folder.mkdir()
                words = ["--cores", "1", "--workdir", folder, "127.0.0.1", port.read_text().strip()]
                started.append(subprocess.Popen(command(root, "usr/bin/vine_worker", *words),
                                                stdin=subprocess.DEVNULL, stdout=output, stderr=output))
            answer, _ = manager.communicate()
        finally:
            manager.kill()
            for worker in started:
                worker.terminate()
            for worker in started:
                worker.wait()
    if manager.returncode != 0:
        raise RuntimeError(f"TaskVine's manager failed: {log.read_text()}")
    said = json.loads(answer)
    return said["seconds"], said["manager_bytes"]
