"""Workers that are copies of their client (``template="fork"``).

The program is the one that FALKON_BINARY names. FALKON_SEED is the seed of the kills,
FALKON_ROUNDS how many there are.
"""

import glob
import json
import os
import random
import signal
import subprocess
import sys
import threading
import unittest

import falkon
from services import InFolder, wait_until

ROUNDS = int(os.environ.get("FALKON_ROUNDS", "6"))

MODULE = """
import atexit, os, weakref
rate = 1
kept = {}

class Ends:
    def __del__(self):
        try:
            note("object")
        except NameError:
            pass  # The interpreter ends.

def note(what):
    with open(os.environ["NOTES"], "a") as file:
        file.write("%s %d\\n" % (what, os.getpid()))

def begin():
    atexit.register(note, "exit")
    kept["ends"] = Ends()
    kept["cycle"] = cycle = Ends()
    cycle.itself = cycle
    weakref.finalize(kept["ends"], note, "finalizer")

def drop():
    import gc
    kept.pop("cycle")
    gc.collect()
    return os.getpid()

def of_rate():
    return rate, os.getpid()

def together(wanted):
    # Waits until so many processes have made this call.
    import time
    place = os.environ["NOTES"] + ".together"
    with open(place, "a") as file:
        file.write("%d\\n" % os.getpid())
    while len(set(open(place))) < wanted:
        time.sleep(0.005)
"""

HEAD = """
import json, os, signal, sys, time
import falkon
from falkon_test_module import *
import falkon_test_module as module

def state(no=None):
    import signal, sys
    handlers = [str(signal.getsignal(one)) for one in signal.valid_signals()]
    mask = sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    with open("/proc/self/status") as status:
        lines = [line for line in status if line.startswith(("SigB", "SigI", "SigC", "Umask", "Thr"))]
    # 32 and 33 belong to the C library.
    lines = [line.split()[0] + hex(int(line.split()[1], 16) & ~(3 << 31)) for line in lines]
    wakeup = signal.set_wakeup_fd(-1)
    return handlers, mask, lines, os.getcwd(), os.getpgid(0) == os.getpid(), wakeup

def links():
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            found[fd] = os.readlink("/proc/self/fd/" + fd)
        except OSError:
            pass
    return found

def executor(**options):
    return falkon.Executor(template="fork", **{"max_workers": 2, **options})
"""


class Fork(InFolder):
    def setUp(self):
        super().setUp()
        with open(self.path("falkon_test_module.py"), "w") as file:
            file.write(MODULE)
        # By it the processes of a test are found; at the end of the environment, as the
        # workers show something else at its beginning.
        self.mark = os.urandom(8).hex()
        package = os.path.dirname(os.path.dirname(falkon.__file__))
        paths = [package, self.folder]
        self.environment = dict(os.environ, PYTHONPATH=os.pathsep.join(paths))
        self.environment.update(NOTES=self.path("notes"), TMPDIR=self.folder, ZZ_MARK=self.mark)
        self.environment.pop("FALKON_TEMPLATE", None)
        self.addCleanup(lambda: wait_until(lambda: not self.processes()))

    def processes(self):
        """Living processes of this test."""
        found = []
        for path in glob.glob("/proc/[0-9]*/environ"):
            try:
                with open(path, "rb") as file:
                    if self.mark.encode() in file.read():
                        found.append(int(path.split("/")[2]))
            except OSError:
                pass
        return found

    def start(self, text, **options):
        with open(self.path("script.py"), "w") as file:
            file.write(HEAD + text)
        return subprocess.Popen(
            [sys.executable, self.path("script.py")],
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
            **options,
        )

    def run_script(self, text, **options):
        """The last line that a script prints, from JSON."""
        with self.start(text, **options) as process:
            said = process.communicate(timeout=120)[0]
        self.assertEqual(process.returncode, 0, said)
        return json.loads(said.splitlines()[-1])

    def notes(self):
        try:
            with open(self.path("notes")) as file:
                return [line.split() for line in file]
        except FileNotFoundError:
            return []


class Copies(Fork):
    def test_modules_have_the_state_that_they_had(self):
        found = self.run_script("""
module.rate = 2
with executor() as pool:
    found = [pool.submit(module.of_rate).result()]
    module.rate = 3
    found.append(pool.submit(module.of_rate).result())
with executor() as pool:
    found.append(pool.submit(module.of_rate).result())
print(json.dumps([os.getpid(), [one[0] for one in found], [one[1] for one in found]]))
""")
        self.assertEqual(found[1], [2, 2, 3])
        self.assertNotIn(found[0], found[2])

    def test_what_is_defined_in_the_script_goes_as_it_is_now(self):
        self.assertEqual(self.run_script("""
value = 1
class Point:
    def __init__(self, x):
        self.x = x
    def __eq__(self, other):
        return type(self) is type(other) and self.x == other.x
def moved(point):
    return Point(point.x + value)
with executor() as pool:
    first = pool.submit(moved, Point(1)).result() == Point(2)
    value = 5
    print(json.dumps([first, pool.submit(moved, Point(1)).result() == Point(6)]))
"""), [True, True])

    def test_nothing_of_the_client_stays_open_or_locked(self):
        found = self.run_script("""
import fcntl, socket
file = open(module.__file__)
locked = open(os.environ["NOTES"], "w")
fcntl.flock(locked, fcntl.LOCK_EX)
pair = socket.socketpair()
pipe = os.pipe()
os.set_inheritable(pipe[0], True)
ours = {one for one in links().values() if not one.startswith("/dev/null")}
module.kept.update(file=file, pair=pair, pipe=pipe)
def uses():
    failed = []
    for use in (module.kept["file"].read, lambda: module.kept["pair"][0].send(b"x"),
                lambda: os.write(module.kept["pipe"][1], b"x")):
        try:
            use()
        except OSError:
            failed.append(True)
    # A new descriptor has no number that an object of the client closes.
    mine = open(module.__file__)
    module.kept.clear()
    return failed, len(mine.read()) > 0, pid_of_child()
def pid_of_child():
    import subprocess
    return subprocess.run(["/bin/sh", "-c", "ls /proc/self/fd | wc -l"], stdout=subprocess.PIPE).stdout.decode()
with executor(max_workers=1) as pool:
    theirs = set(pool.submit(links).result().values())
    used = pool.submit(uses).result()
    again = pool.submit(len, "abc").result()
    locked.close()
    with open(os.environ["NOTES"]) as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
print(json.dumps([sorted(ours & theirs), used, again]))
""")
        self.assertEqual(found[0], [])
        self.assertEqual(found[1][:2], [[True] * 3, True])
        # The streams, and the list's own.
        self.assertLessEqual(int(found[1][2]), 4)
        self.assertEqual(found[2], 3)

    def test_signals_are_as_in_a_worker_that_was_started(self):
        found = self.run_script("""
with falkon.Executor(max_workers=1, template=False) as pool:
    plain = pool.submit(state).result()
for one in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGCHLD):
    signal.signal(one, lambda *_: module.note("signal"))
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
pipe = os.pipe()
os.set_blocking(pipe[1], False)
signal.set_wakeup_fd(pipe[1])
ours = signal.getsignal(signal.SIGTERM)
with executor(max_workers=1) as pool:
    copied = pool.submit(state).result()
    kept = signal.getsignal(signal.SIGTERM) is ours, signal.SIGUSR2 in signal.pthread_sigmask(signal.SIG_BLOCK, ())
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
print(json.dumps([plain, copied, kept]))
""")
        self.assertEqual(found[0], found[1])
        self.assertEqual(found[2], [True, True])
        self.assertLessEqual(len({pid for _, pid in self.notes()}), 1)

    def test_no_exit_handler_or_finalizer_runs_but_in_the_client(self):
        client, worker = self.run_script("""
module.begin()
buffered = open(os.environ["NOTES"] + ".buffered", "w")
module.kept["buffered"] = buffered
buffered.write("once")
class Cycle(Ends):
    pass
garbage = Cycle()
garbage.itself = garbage
del garbage
with executor(max_workers=1) as pool:
    worker = pool.submit(module.drop).result()
    try:
        pool.submit(os._exit, 3).result()
    except falkon.WorkerDied:
        pass
    pool.submit(sys.exit, 3).exception()
    pool.submit(exec, "import os\\nif not os.fork(): raise SystemExit").result()
print(json.dumps([os.getpid(), worker]), flush=True)
""")
        kinds = {}
        for what, pid in self.notes():
            kinds.setdefault(int(pid), []).append(what)
        # Garbage of a call itself is collected by it, unless it is in a cycle.
        self.assertEqual(set(kinds), {client}, kinds)
        self.assertIn("exit", kinds[client])
        with open(self.path("notes.buffered")) as file:
            self.assertEqual(file.read(), "once")

    def test_streams_are_those_of_the_call(self):
        with self.start("""
import io
print("before", end=" ")
kept = sys.stdout
sys.stdout = io.StringIO()
written = []
def write():
    import ctypes
    print("print")
    sys.__stdout__.write("dunder\\n")
    print("error", file=sys.stderr)
    ctypes.CDLL(None).puts(b"puts")
    return sys.stdin.read()
with executor(max_workers=1, output=lambda stream, data: written.append([stream, data.decode()])) as pool:
    read = pool.submit(write).result()
sys.stdout = kept
one = "".join(data for stream, data in written if stream == 1)
two = "".join(data for stream, data in written if stream == 2)
print(json.dumps([one, two, read]))
""", stdin=subprocess.PIPE) as process:
            said = process.communicate("typed", timeout=120)[0]
        self.assertTrue(said.startswith("before ["), said)
        one, two, read = json.loads(said[len("before "):])
        self.assertEqual((sorted(one.split()), two, read), (["dunder", "print", "puts"], "error\n", ""))

    def test_copies_draw_different_numbers(self):
        found = self.run_script("""
import random
try:
    import numpy
    numpy.random.seed(1)
    more = numpy.random.random
except ImportError:
    more = random.random
module.kept["more"] = more
random.seed(1)
def drawn():
    import random
    together(3)
    return os.getpid(), random.random(), float(module.kept["more"]())
with executor(max_workers=3) as pool:
    print(json.dumps([one.result() for one in [pool.submit(drawn) for _ in range(9)]]))
""")
        self.assertEqual(len({one[0] for one in found}), 3)
        for column in (1, 2):
            self.assertEqual(len({one[column] for one in found}), len(found))

    def test_what_the_client_handled_is_no_part_of_an_exception(self):
        found = self.run_script("""
try:
    raise KeyError("of the client")
except KeyError:
    with executor(max_workers=1) as pool:
        error = pool.submit(int, "x").exception()
text = repr(error) + str(error.__cause__)
print(json.dumps([text, "invalid literal" in text, "of the client" in text]))
""")
        self.assertEqual(found[1:], [True, False], found[0])

    def test_what_a_call_changes_is_changed_back(self):
        found = self.run_script("""
def change():
    import subprocess
    os.environ["CHANGED"] = "yes"
    os.chdir("/")
    os.umask(0)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    command = 'read line < "$NOTES.go"; echo late; echo > "$NOTES.done"'
    module.kept["child"] = subprocess.Popen(["/bin/sh", "-c", command])
def look():
    umask = os.umask(0)
    with open(os.environ["NOTES"] + ".go", "w") as go:
        go.write("now\\n")
    open(os.environ["NOTES"] + ".done").read()
    return os.environ.get("CHANGED"), os.getcwd() == "/", umask == 0, signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
written = []
for name in (".go", ".done"):
    os.mkfifo(os.environ["NOTES"] + name)
with executor(max_workers=1, output=lambda stream, data: written.append(data.decode())) as pool:
    pool.submit(change).result()
    found = pool.submit(look).result()
print(json.dumps([found, written]))
""")
        self.assertEqual(found, [[None, False, False, True], []])

    def test_an_initializer_runs_in_each_worker(self):
        pids, noted = self.run_script("""
def pid():
    together(2)
    return os.getpid()
with executor(max_workers=2, initializer=module.note, initargs=("begin",)) as pool:
    pids = sorted({one.result() for one in [pool.submit(pid) for _ in range(6)]})
print(json.dumps([pids, sorted(int(line.split()[1]) for line in open(os.environ["NOTES"]))]))
""")
        self.assertEqual(pids, noted)

    def test_a_call_may_make_an_executor_that_forks(self):
        self.assertEqual(self.run_script("""
module.rate = 4
def inner():
    module.rate += 1
    with falkon.Executor(max_workers=1, template="fork") as pool:
        return pool.submit(module.of_rate).result()[0], pool.submit(pow, 2, 5).result()
with executor(max_workers=1) as pool:
    print(json.dumps(pool.submit(inner).result()))
"""), [5, 32])

    def test_what_calls_leave_behind_ends_with_them(self):
        self.run_script("""
def leave():
    import subprocess
    if not os.fork():
        os.setsid()
        time.sleep(1000)
    subprocess.Popen(["/bin/sh", "-c", "setsid sleep 1000 & sleep 1000"], start_new_session=True)
with executor() as pool:
    pool.submit(leave).result()
print(1)
""")
        wait_until(lambda: not self.processes())

    def test_values_of_any_size_and_many_workers(self):
        self.assertEqual(self.run_script("""
def made(size, *values):
    return bytes(size + sum(map(len, values)))
with executor(max_workers=4) as pool:
    layer = [pool.submit(made, size) for size in (10, 100_000, 3 << 20, 9 << 20)]
    total = pool.submit(made, 1, *layer).result()
print(json.dumps(len(total)))
"""), 1 + 10 + 100_000 + (12 << 20))


class Choice(Fork):
    def test_the_environment_chooses_it_for_executors_that_do_not(self):
        script = """
module.rate = 7
with falkon.Executor(max_workers=1, **options) as pool:
    print(json.dumps(pool.submit(module.of_rate).result()[0]))
"""
        self.assertEqual(self.run_script("options = {}" + script), 1)
        self.environment["FALKON_TEMPLATE"] = "fork"
        self.assertEqual(self.run_script("options = {}" + script), 7)
        self.assertEqual(self.run_script("options = {'template': True}" + script), 1)
        self.assertEqual(self.run_script("options = {'template': False}" + script), 1)

    def test_what_is_no_choice_is_refused(self):
        with self.assertRaisesRegex(ValueError, "template='forks'"):
            falkon.Executor(template="forks")
        with self.assertRaisesRegex(ValueError, "started here"):
            falkon.Executor("access.json", template="fork")
        os.environ["FALKON_TEMPLATE"] = "yes"
        self.addCleanup(os.environ.pop, "FALKON_TEMPLATE")
        with self.assertRaisesRegex(ValueError, "FALKON_TEMPLATE='yes'"):
            falkon.Executor()

    def test_with_threads_there_are_no_copies_and_the_log_says_so_once(self):
        stop = threading.Event()
        thread = threading.Thread(target=stop.wait, name="waiting-thread")
        thread.start()
        try:
            with self.assertLogs("falkon") as log:
                for _ in range(2):
                    with falkon.Executor(max_workers=1, template="fork") as executor:
                        self.assertEqual(executor.submit(abs, -1).result(60), 1)
        finally:
            stop.set()
            thread.join()
        self.assertEqual(len(log.output), 1)
        self.assertIn("waiting-thread", log.output[0])

    def test_a_program_that_is_not_there_is_an_error(self):
        self.environment["FALKON_BINARY"] = "/no/such"
        self.assertIn("/no/such", self.run_script("""
try:
    with executor() as pool:
        pool.submit(abs, -1).result()
except falkon.FalkonError as error:
    print(json.dumps(str(error)))
"""))


class Kills(Fork):
    SCRIPT = """
with executor(max_workers=2) as pool:
    calls = [pool.submit(time.sleep, 0.01) for _ in range(20)]
    calls[0].exception()
    print("ready", flush=True)
    for call in calls:
        call.exception()
    sys.stdin.read()
"""

    def test_whatever_is_killed_whenever_nothing_is_left(self):
        seed = int(os.environ.get("FALKON_SEED") or random.getrandbits(32))
        print("FALKON_SEED=%d" % seed, file=sys.stderr)
        draw = random.Random(seed)
        for number in range(ROUNDS):
            with self.start(self.SCRIPT, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
                if number % 2:
                    process.stdout.readline()
                else:
                    # Somewhere in the middle of its start.
                    wanted = draw.randrange(1, 6)
                    wait_until(lambda: len(self.processes()) >= wanted or process.poll() is not None)
                for _ in range(draw.randrange(1, 3)):
                    for pid in draw.sample(found := self.processes(), min(1, len(found))):
                        try:
                            os.kill(pid, signal.SIGKILL)
                        except ProcessLookupError:
                            pass
                if number % 3 == 0:
                    process.kill()
                process.communicate(timeout=120)
            try:
                wait_until(lambda: not self.processes())
            except AssertionError:
                raise AssertionError("FALKON_SEED=%d, round %d: %s" % (seed, number, self.processes()))

    def test_without_the_copy_of_the_client_workers_go_on_and_no_others_start(self):
        found = self.run_script("""
def template():
    import ctypes
    with open("/proc/%d/task/%d/children" % ((os.getppid(),) * 2)) as file:
        return [int(pid) for pid in file.read().split()]
with executor(max_workers=1) as pool:
    pids = pool.submit(template).result()
    worker = pool.submit(os.getpid).result()
    (pid,) = [one for one in pids if one != worker]
    os.kill(pid, signal.SIGKILL)
    found = [pool.submit(os.getpid).result() == worker]
    pool.submit(os._exit, 1).exception()
    try:
        pool.submit(abs, -1).result()
    except falkon.TaskFailed as error:
        found.append(str(error))
print(json.dumps(found))
""")
        self.assertTrue(found[0])
        self.assertIn("create a new Executor", found[1])

    def test_a_worker_that_is_killed_is_copied_again(self):
        self.assertEqual(self.run_script("""
module.rate = 9
with executor(max_workers=1) as pool:
    for _ in range(3):
        pool.submit(os._exit, 1).exception()
    print(json.dumps(pool.submit(module.of_rate).result()[0]))
"""), 9)


if __name__ == "__main__":
    unittest.main()
