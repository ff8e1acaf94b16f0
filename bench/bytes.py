"""What a byte of messages costs the dispatcher, an executor and a client, encrypted.

    python3 bench/bytes.py target/release/falkon [ROUNDS]

Submits 20,000 no-op tasks with an argument of 16 bytes, and of 8,192, and prints what
the difference takes of each process's time. The dispatcher takes each byte in and sends
it, its journal included; the client reads each from a file and sends it.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

TASKS = 20_000
SIZES = (16, 8192)
# Messages that each byte is in, at each of them.
MESSAGES = {"dispatcher": 2, "executor": 1, "client": 1}


def processor_s(pid):
    """Time of a process and of those that it started, as far as they are there."""
    pids, ticks = [pid], 0
    for one in pids:
        with open(f"/proc/{one}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
        for thread in os.listdir(f"/proc/{one}/task"):
            with open(f"/proc/{one}/task/{thread}/children") as file:
                pids += map(int, file.read().split())
    return ticks / os.sysconf("SC_CLK_TCK")


def children_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.05)


def main():
    falkon, rounds = os.path.abspath(sys.argv[1]), int((sys.argv[2:] or ["3"])[0])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for size in SIZES:
            with open(f"lines-{size}", "w") as file:
                file.writelines(f"{task:08d}".ljust(size, "x") + "\n" for task in range(TASKS))
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        start = [falkon, "start", "--dir", "d", "--security", "encrypt"]
        dispatcher = subprocess.Popen(start + ["--listen", "127.0.0.1:0"], **quiet)
        wait_for("d/access-executor.json")
        executor = [falkon, "executor", "--access", "d/access-executor.json", "--slots", "1"]
        executor = subprocess.Popen(executor, **quiet)
        try:
            used = {size: [] for size in SIZES}
            for _ in range(rounds + 1):
                for size in SIZES:
                    before = processor_s(dispatcher.pid), processor_s(executor.pid), children_s()
                    submit = [falkon, "submit", "--access", "d/access-client.json", "--wait"]
                    lines = ["--each-line", f"lines-{size}", "--", "@noop", "{}"]
                    subprocess.run(submit + lines, check=True, **quiet)
                    after = processor_s(dispatcher.pid), processor_s(executor.pid), children_s()
                    used[size].append([now - then for now, then in zip(after, before)])
        finally:
            for service in (executor, dispatcher):
                service.terminate()
                service.wait()
        os.chdir("/")
    # The first round warms up.
    pairs = list(zip(used[SIZES[0]], used[SIZES[1]]))[1:]
    for at, (who, messages) in enumerate(MESSAGES.items()):
        count = TASKS * (SIZES[1] - SIZES[0]) * messages
        each = sorted((large[at] - small[at]) / count * 1e9 for small, large in pairs)
        median = statistics.median(each)
        print(
            f"{who}: {median:.2f} ns per byte ({each[0]:.2f} to {each[-1]:.2f}), "
            f"{1000 / median:.0f} MB/s"
        )


if __name__ == "__main__":
    main()
