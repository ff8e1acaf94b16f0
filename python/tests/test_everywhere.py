"""``Executor.everywhere``: a call once on each executor of a dispatcher."""

import os
import random
import tempfile
import unittest

import falkon
from falkon._everywhere import First
from falkon._kinds import Kind
from falkon._submissions import Submissions
from services import AtDispatcher, wait_until

MIB = 1 << 20


def place():
    return os.environ["PLACE"]


def passes(gate):
    """Waits for a byte of a FIFO."""
    with open(gate, "rb", 0) as file:
        file.read(1)
    return place()


def gate_in(folder):
    """A FIFO, and a descriptor that it is written through."""
    path = os.path.join(folder, "gate")
    os.mkfifo(path)
    return path, os.open(path, os.O_RDWR)


class Everywhere(AtDispatcher):
    def start(self, *names):
        here = os.path.dirname(os.path.abspath(__file__))
        path = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
        started = [self.dispatcher.executor(PLACE=name, PYTHONPATH=path) for name in names]
        session = self.executor._shared.session()
        wait_until(lambda: len(list(session.executors())) == len(names))
        return started

    def test_each_executor_makes_it_once_among_other_calls(self):
        self.start("a", "b", "c")
        before = [self.executor.submit(abs, -n) for n in range(100)]
        everywhere = self.executor.everywhere(place)
        after = [self.executor.submit(abs, -n) for n in range(100)]
        again = self.executor.everywhere(place)
        for calls in (everywhere, again):
            self.assertEqual(sorted(call.result(60) for call in calls), ["a", "b", "c"])
        self.assertEqual([call.result(60) for call in before + after], [*range(100)] * 2)

    def test_arguments_large_and_small(self):
        self.start("a", "b")
        for values in (self.executor.everywhere(len, bytes(3 * MIB)), self.executor.everywhere(int, "7")):
            self.assertEqual(len({call.result(60) for call in values}), 1)
        self.assertEqual([call.result(60) for call in self.executor.everywhere(bytes, 2 * MIB)], [bytes(2 * MIB)] * 2)

    def test_files_in_all_caches_ahead_of_calls(self):
        self.start("a", "b")
        client = falkon.Client(self.dispatcher.access)
        names = sorted(one["name"] for one in client.status()["executors"])
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"content")
            file.flush()
            self.assertEqual(self.executor.broadcast(file.name, falkon.File(file.name)), names)
            (found,) = client.data.where(file.name)
            self.assertEqual(sorted(one["name"] for one in found["executors"]), names)
            with self.assertRaisesRegex(falkon.ClientError, "no executor"):
                client.broadcast(file.name, to="gpus")
            with falkon.Executor(max_workers=1) as here:
                self.assertEqual(here.broadcast(file.name), [])
        with self.assertRaisesRegex(falkon.ClientError, "not on "):
            client.broadcast(file.name)

    def test_without_executors(self):
        with self.assertRaisesRegex(falkon.TaskFailed, "executor"):
            self.executor.everywhere(place)
        self.start("a")
        self.assertEqual([call.result(60) for call in self.executor.everywhere(place)], ["a"])

    def test_what_cannot_be_done_everywhere(self):
        self.start("a")
        call = self.executor.submit(abs, -1)
        with self.assertRaisesRegex(ValueError, "futures"):
            self.executor.everywhere(abs, call)
        for options in ({"outputs": ["out"]}, {"large_result": True}):
            with self.assertRaisesRegex(ValueError, "same files"):
                self.executor.options(**options).everywhere(abs, 1)
        self.assertEqual(call.result(60), 1)

    def test_an_executor_that_goes_costs_its_own_call(self):
        processes = self.start("a", "b")
        with tempfile.TemporaryDirectory() as folder:
            gate, opener = gate_in(folder)
            self.addCleanup(os.close, opener)
            calls = self.executor.everywhere(passes, gate)
            processes[0].kill()
            processes[0].wait()
            # A call of a killed executor may take one.
            os.write(opener, b"123")
            ended = [call.exception(60) or call.result() for call in calls]
        self.assertIn("b", ended)
        (lost,) = [one for one in ended if one != "b"]
        self.assertIsInstance(lost, falkon.TaskFailed)

    def test_a_dispatcher_that_is_started_again(self):
        self.start("a", "b")
        with tempfile.TemporaryDirectory() as folder:
            gate, opener = gate_in(folder)
            self.addCleanup(os.close, opener)
            calls = self.executor.everywhere(passes, gate)
            self.dispatcher.kill()
            self.dispatcher.start_again()
            # A call of a killed executor may take one.
            os.write(opener, b"123")
            self.assertEqual(sorted(call.result(60) for call in calls), ["a", "b"])

    def test_here_there_is_one_executor(self):
        with falkon.Executor(max_workers=2) as executor:
            (call,) = executor.everywhere(abs, -3)
            self.assertEqual(call.result(60), 3)


class Connection:
    """What submissions ask of a connection; it keeps what they send."""

    access = ""
    instance = 1

    def __init__(self):
        self.sent = []

    def request(self, tag, *fields):
        self.sent.append(fields)
        return len(self.sent) - 1


def run_of(first, count):
    return [first, count, None]


class Numbers(unittest.TestCase):
    def test_calls_behind_it_have_the_numbers_that_follow(self):
        # Whatever comes first, the answer or results.
        for seed in range(200):
            chosen = random.Random(seed)
            connection = Connection()
            submissions = Submissions(connection, lambda call: call)
            kind = Kind("f", b"", [])
            expected, calls, total = {}, [], 0
            for _ in range(chosen.randrange(1, 20)):
                future = First() if chosen.random() < 0.4 else falkon.Future()
                calls.append(future)
                submissions.add((kind, b"", future))
            early = []
            answered = 0
            while answered < len(connection.sent):
                _, first, _, submission = connection.sent[answered]
                self.assertEqual(first, total, "seed %d" % seed)
                wide = submission[-1] is not None
                count = chosen.randrange(1, 6) if wide else submission[0]
                held = []
                if wide and chosen.random() < 0.5:
                    held = [run_of(first, count)]
                    self.assertEqual(submissions.ended(held), (count, []), "seed %d" % seed)
                early = submissions.accepted(answered, count)
                self.assertEqual(early, held, "seed %d" % seed)
                for task in range(total, total + count):
                    expected[task] = submissions.future_of(task)
                total += count
                answered += 1
            self.assertEqual(sorted(submissions._pending), list(range(total)), "seed %d" % seed)
            self.assertEqual(len(set(expected.values())), total, "seed %d" % seed)
            copies = [other for call in calls if type(call) is First for other in call.all()]
            plain = [call for call in calls if type(call) is not First]
            self.assertEqual(set(expected.values()), {*copies, *plain}, "seed %d" % seed)


if __name__ == "__main__":
    unittest.main()
