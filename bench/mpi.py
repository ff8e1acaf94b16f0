"""How long `mpiexec` takes to start a program on all nodes of a gang, and by ssh.

    python3 bench/mpi.py target/release/falkon [--nodes 2,4,8,16] [--rounds N] [--json FILE]

As root: each node is a network namespace with a name, an executor and an ssh daemon. The
program is initialized, adds a number per rank, and ends; `mpiexec` is MPICH's or Open MPI's
(`--mpi`). Also how many such programs per second gangs of two nodes run, as tasks of their
own. Needs an MPI with its compiler, iproute2 and openssh-server.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

PROGRAM = """
#include <mpi.h>
int main(int argc, char **argv) {
    int rank, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return MPI_Finalize();
}
"""

TIMED = """
import subprocess, sys, time
for _ in range(int(sys.argv[1])):
    began = time.monotonic()
    subprocess.run(sys.argv[2:], check=True, stdout=subprocess.DEVNULL)
    print(time.monotonic() - began, flush=True)
"""

SSHD = """
HostKey {folder}/key
AuthorizedKeysFile {folder}/key.pub
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
PermitUserEnvironment no
PidFile none
MaxStartups 1000
"""

SSH = """
IdentityFile {folder}/key
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
"""

# Two sides run by turns, so that both meet the same machine.
TURNS = 2
QUIET = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def system(words):
    subprocess.run(words.split(), check=True, **QUIET)


def wait_for(is_so, what):
    deadline = time.monotonic() + 60
    while not is_so():
        if time.monotonic() > deadline:
            sys.exit(f"{what}: not within a minute")
        time.sleep(0.05)


class Nodes:
    """Network namespaces at a switch."""

    def __init__(self, count):
        self.switch = f"fb{os.getpid() % 100000}"
        self.names = [f"{self.switch}-{at}" for at in range(1, count + 1)]
        self.subnet = f"10.250.{os.getpid() % 256}"

    def __enter__(self):
        system(f"ip link add {self.switch} type bridge")
        system(f"ip addr add {self.subnet}.1/24 dev {self.switch}")
        system(f"ip link set {self.switch} up")
        lines = [f"{self.subnet}.{at + 2} {name}\n" for at, name in enumerate(self.names)]
        for at, name in enumerate(self.names):
            os.makedirs(f"/etc/netns/{name}", exist_ok=True)
            with open(f"/etc/netns/{name}/hosts", "w") as file:
                file.write("127.0.0.1 localhost\n" + "".join(lines))
            system(f"ip netns add {name}")
            system(f"ip link add {name}v type veth peer name eth0 netns {name}")
            system(f"ip link set {name}v master {self.switch} up")
            system(f"ip -n {name} addr add {self.subnet}.{at + 2}/24 dev eth0")
            system(f"ip -n {name} link set eth0 up")
            system(f"ip -n {name} link set lo up")
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], **QUIET)
            subprocess.run(["rm", "-rf", f"/etc/netns/{name}"], **QUIET)
        subprocess.run(["ip", "link", "del", self.switch], **QUIET)

    @staticmethod
    def on(name, words):
        enter = ["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c"]
        return enter + ['hostname "$0"; exec "$@"', name] + words


@contextlib.contextmanager
def services():
    started = []
    try:
        yield started
    finally:
        for one in reversed(started):
            one.kill()
            one.wait()


def seconds(text):
    return [float(line) for line in text.split()]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("falkon")
    parser.add_argument("--nodes", default="2,4,8,16")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--mpi", choices=["mpich", "openmpi"], default="mpich")
    parser.add_argument("--json")
    args = parser.parse_args()
    falkon = os.path.abspath(args.falkon)
    json_file = args.json and os.path.abspath(args.json)
    widths = [int(width) for width in args.nodes.split(",")]
    mpiexec, mpicc = f"mpiexec.{args.mpi}", f"mpicc.{args.mpi}"
    with tempfile.TemporaryDirectory() as folder, Nodes(max(widths)) as nodes, services() as all_:
        os.chdir(folder)
        files = {"program.c": PROGRAM, "timed.py": TIMED, "sshd": SSHD, "ssh": SSH}
        for name, text in files.items():
            with open(name, "w") as file:
                file.write(text.replace("{folder}", folder))
        subprocess.run([mpicc, "-O2", "-o", "program", "program.c"], check=True)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "key"], check=True)
        os.makedirs("/run/sshd", exist_ok=True)
        with open("shell", "w") as file:
            file.write(f'#!/bin/sh\nexec ssh -F {folder}/ssh "$@"\n')
        os.chmod("shell", 0o755)
        start = [falkon, "start", "--dir", "d", "--listen", f"{nodes.subnet}.1:0"]
        all_.append(subprocess.Popen(start, **QUIET))
        access = f"{folder}/d/access.json"
        wait_for(lambda: os.path.exists(access), "a dispatcher")
        for name in nodes.names:
            executor = [falkon, "executor", "--access", access, "--name", name, "--slots", "2"]
            all_.append(subprocess.Popen(nodes.on(name, executor), **QUIET))
            daemon = ["/usr/sbin/sshd", "-D", "-f", f"{folder}/sshd"]
            all_.append(subprocess.Popen(nodes.on(name, daemon), **QUIET))

        def has_all():
            status = subprocess.run(
                [falkon, "status", "--access", access, "--json"], capture_output=True, check=True
            )
            return len(json.loads(status.stdout)["executors"]) == len(nodes.names)

        wait_for(has_all, "the executors")

        def by_ssh(width, rounds):
            with open("hosts", "w") as file:
                form = "{}:1\n" if args.mpi == "mpich" else "{} slots=1\n"
                file.writelines(form.format(name) for name in nodes.names[:width])
            environment = {
                **os.environ, **AS_ROOT, "HYDRA_LAUNCHER": "ssh",
                "HYDRA_LAUNCHER_EXEC": f"{folder}/shell", "HYDRA_HOST_FILE": f"{folder}/hosts",
                "OMPI_MCA_plm_rsh_agent": f"{folder}/shell",
                "OMPI_MCA_orte_default_hostfile": f"{folder}/hosts",
            }
            words = ["python3", f"{folder}/timed.py", str(rounds), mpiexec, "./program"]
            ran = subprocess.run(
                nodes.on(nodes.names[0], words), env=environment, check=True, text=True,
                stdout=subprocess.PIPE,
            )
            return seconds(ran.stdout)

        def submit(width, words):
            submit = [falkon, "submit", "--access", access, "--wait", "--nodes-per-task"]
            submit += [str(width), "--ranks-per-node", "1"]
            for name, value in AS_ROOT.items():
                submit += ["--env", f"{name}={value}"]
            ran = subprocess.run(
                submit + words, check=True, text=True, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            return ran.stdout

        def by_falkon(width, rounds):
            words = ["--", "python3", f"{folder}/timed.py", str(rounds), mpiexec]
            return seconds(submit(width, words + [f"{folder}/program"]))

        rows = []
        print(f"{mpiexec}: seconds until a program on so many nodes has ended (median)")
        print(f"{'nodes':>6} {'ssh':>8} {'gang':>8}")
        for width in widths:
            found = {"ssh": [], "gang": []}
            by_ssh(width, 1)
            by_falkon(width, 1)
            for _ in range(TURNS):
                rounds = max(1, args.rounds // TURNS)
                found["ssh"] += by_ssh(width, rounds)
                found["gang"] += by_falkon(width, rounds)
            row = {name: statistics.median(all_of) for name, all_of in found.items()}
            rows.append({"nodes": width, **row})
            print(f"{width:>6} {row['ssh']:>8.3f} {row['gang']:>8.3f}", flush=True)
        began = time.monotonic()
        submit(2, ["--range", f"1-{args.members}", "--", mpiexec, f"{folder}/program"])
        rate = args.members / (time.monotonic() - began)
        print(f"{args.members} tasks on two nodes each, of {max(widths)}: {rate:.1f} per second")
        if json_file:
            with open(json_file, "w") as file:
                json.dump({"mpi": args.mpi, "start": rows, "members_per_s": rate}, file, indent=1)
                file.write("\n")


if __name__ == "__main__":
    main()
