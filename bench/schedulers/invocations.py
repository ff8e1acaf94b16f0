#!/usr/bin/env python3
"""Many short parallel programs of 4 ranks on 2 nodes each, on a real Slurm: as tasks of
Falkon's gangs, and as steps of the same job (`srun`), on the same daemons
(tests/schedulers/slurm.sh, which needs root and MPICH).

    bench/schedulers/invocations.py [--invocations 1000] [--rounds N] [--json]

Two programs: one that initializes MPI, adds a number per rank and ends, and one that ends at
once, so that what is left is the start of ranks alone. `mpiexec` without any scheduler, with
all ranks on this machine, is the floor. As many run at a time as there are pairs of nodes.

What is compared takes turns within a round, and ratios are of one round. The nodes of this
Slurm are processes of one machine, so executors get host names of their own, as on a cluster.
FALKON is the program [target/release/falkon].
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from mpi import PROGRAM
NODES, CPUS = 4, 2
WIDTH, RANKS = 2, 2
AT_A_TIME = NODES // WIDTH
WAIT_S_MAX = 60
MPIEXEC, MPICC = "mpiexec.mpich", "mpicc.mpich"
# A host name of its own, which this machine can resolve.
NAMED = 'mount --bind "$0" /etc/hosts && hostname "$SLURMD_NODENAME" && exec "$@"'


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--invocations", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--within", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.within:
        return within(pathlib.Path(args.within), args)
    falkon = os.path.abspath(os.environ.get("FALKON", ROOT / "target/release/falkon"))
    with tempfile.TemporaryDirectory(prefix="falkon-invocations-") as site:
        site = pathlib.Path(site)
        (site / "program.c").write_text(PROGRAM)
        subprocess.run([MPICC, "-O2", "-o", site / "mpi", site / "program.c"], check=True)
        os.symlink("/bin/true", site / "none")
        hosts = pathlib.Path("/etc/hosts").read_text()
        hosts += "".join(f"127.0.0.1 n{at}\n" for at in range(1, NODES + 1))
        (site / "hosts").write_text(hosts)
        daemons = subprocess.Popen(
            [ROOT / "tests/schedulers/slurm.sh", site / "slurm", str(NODES), str(CPUS)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            if (said := daemons.stdout.readline().strip()) != "ready":
                sys.exit(said or "Slurm did not start")
            environment = {**os.environ, "SLURM_CONF": str(site / "slurm/slurm.conf"), "FALKON": falkon}
            words = ["salloc", "-Q", f"-N{NODES}", f"-n{NODES * CPUS}", sys.executable, __file__,
                     *sys.argv[1:], "--within", str(site)]
            return subprocess.run(words, env=environment, check=False).returncode
        finally:
            daemons.stdin.close()
            daemons.wait()


def timed(words, **how):
    began = time.monotonic()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, **how)
    return time.monotonic() - began


def side_by_side(count, words):
    """So many times the same command, as many at a time as there are pairs of nodes."""
    numbers = "".join(f"{at}\n" for at in range(count))
    # The number is an argument that the programs do not read.
    return timed(["xargs", "-n1", f"-P{AT_A_TIME}", *words], input=numbers, text=True)


def within(site, args):
    """In the job: both sides by turns."""
    falkon, access = os.environ["FALKON"], str(site / "d/access.json")
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    load = os.getloadavg()[0]
    service = subprocess.Popen([falkon, "start", "--dir", site / "d", "--listen", "127.0.0.1:0"], **quiet)
    rounds = []
    try:
        wait_for("the dispatcher", lambda: os.path.exists(access))
        launched = ["srun", "-Q", f"-N{NODES}", f"-n{NODES}", "--overlap", "--mpi=none", "unshare", "--uts",
                    "--mount", "sh", "-c", NAMED, site / "hosts", falkon, "executor", "--access", access,
                    "--slots", str(CPUS)]
        executors = subprocess.Popen(launched, **quiet)

        def joined():
            said = subprocess.run([falkon, "status", "--access", access, "--json"], capture_output=True, check=True)
            return len(json.loads(said.stdout)["executors"]) == NODES

        wait_for("the executors", joined)
        count = args.invocations
        ranks = str(WIDTH * RANKS)
        for _ in range(args.rounds):
            one = {}
            for name in ("mpi", "none"):
                program = str(site / name)
                gangs = [falkon, "submit", "--quiet", "--wait", "--access", access, "--nodes-per-task", str(WIDTH),
                         "--ranks-per-node", str(RANKS), "--range", f"1-{count}", "--", MPIEXEC, program]
                steps = ["srun", "-Q", "--overlap", "--mpi=pmi2", f"-N{WIDTH}", f"-n{ranks}", program]
                one[name] = {
                    "gangs": count / timed(gangs, stderr=sys.stderr),
                    "srun": count / side_by_side(count, steps),
                    "mpiexec": count / side_by_side(count, [MPIEXEC, "-n", ranks, program]),
                }
            rounds.append(one)
        executors.terminate()
        executors.wait()
    finally:
        service.kill()
        service.wait()
    if args.json:
        print(json.dumps({"name": "invocations", "machine": platform.platform(), "load": load,
                          "invocations": count, "rounds": rounds}))
        return 0
    print(f"load before {load:.1f}; {count} programs of {ranks} ranks on {WIDTH} of {NODES} nodes, programs/s")
    print(f"{'':<34} {'gangs':>8} {'srun':>8} {'mpiexec':>8}  gangs / srun  gangs / mpiexec")
    for name, what in (("mpi", "MPI is initialized"), ("none", "ranks are started")):
        sides = {side: [one[name][side] for one in rounds] for side in ("gangs", "srun", "mpiexec")}
        middle = {side: statistics.median(found) for side, found in sides.items()}
        ratios = [statistics.median([one[name]["gangs"] / one[name][other] for one in rounds])
                  for other in ("srun", "mpiexec")]
        print(f"{what:<34} {middle['gangs']:8.1f} {middle['srun']:8.1f} {middle['mpiexec']:8.1f}"
              f"  {ratios[0]:12.2f}  {ratios[1]:15.2f}")
    return 0


def wait_for(what, ready):
    deadline = time.monotonic() + WAIT_S_MAX
    while not ready():
        if time.monotonic() > deadline:
            sys.exit(f"waited {WAIT_S_MAX} s for {what}")
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
