"""Options of calls: what is taken, and what is refused where it is given."""

import datetime
import decimal
import os
import random
import subprocess
import unittest

import falkon
from falkon import _options, _requests
from services import Dispatcher

MINUTE = 60_000_000
TAKEN = [
    ("memory", "2GiB", 2 << 30),
    ("memory", "2 gib", 2 << 30),
    ("memory", "2GB", 2_000_000_000),
    ("memory", "1.5K", 1536),
    ("memory", "12", 12),
    ("memory", "12B", 12),
    ("memory", 2e9, 2_000_000_000),
    ("memory", 0.5, 1),
    ("memory", (1 << 64) - 1, (1 << 64) - 1),
    ("memory", None, 0),
    ("timeout", "5m", 5 * MINUTE),
    ("timeout", "1h30m", 90 * MINUTE),
    ("timeout", "250ms", 250_000),
    ("timeout", 0.3, 300_000),
    ("timeout", 1e-9, 1),
    ("timeout", datetime.timedelta(minutes=1), MINUTE),
    ("timeout", decimal.Decimal("0.3"), 300_000),
    ("timeout", 0, 0),
    ("timeout", None, 0),
    ("runtime_estimate", "2s", 2_000_000),
    ("runtime_estimate", "auto", (1 << 64) - 1),
    ("cpus", "2", 2000),
    ("cpus", 0.5, 500),
    ("cpus", 0.001, 1),
    ("gpus", 2.0, 2),
    ("retries", "2", 2),
    ("priority", -5, -5),
    ("speculate", True, True),
    ("speculate", False, False),
    ("resources", {"b": 1, "a": 2.0}, [("a", 2), ("b", 1)]),
]
REFUSED = [
    ("memory", "2QiB"),
    ("memory", -5),
    ("memory", "ib"),
    ("memory", "1..2"),
    ("memory", float("nan")),
    ("memory", 1 << 64),
    ("memory", True),
    ("memory", [1]),
    ("timeout", "5 fortnights"),
    ("timeout", "1h30"),
    ("timeout", -1),
    ("timeout", float("inf")),
    ("timeout", object()),
    ("runtime_estimate", "soon"),
    ("cpus", 0),
    ("cpus", -1),
    ("cpus", 0.0001),
    ("cpus", "two"),
    ("cpus", 1e10),
    ("gpus", 0.5),
    ("gpus", -1),
    ("retries", -1),
    ("retries", "often"),
    ("retries", 1 << 32),
    ("priority", 1.5),
    ("speculate", 1),
    ("speculate", "yes"),
    ("priority", 1 << 31),
    ("resources", {"a": -1}),
    ("resources", {"": 1}),
    ("resources", {"a" * 257: 1}),
    ("resources", {1: 1}),
    ("resources", {str(name): 1 for name in range(65)}),
    ("resources", "a=1"),
]
PLACES = {"cpus": 0, "gpus": 1, "memory": 2, "resources": 3}
FIELDS = {"priority": 2, "retries": 3, "timeout": 4, "runtime_estimate": 5, "speculate": 13}


def read(option, value):
    found = _options.task_class({option: value})
    return found[1][PLACES[option]] if option in PLACES else found[FIELDS[option]]


class Options(unittest.TestCase):
    def test_amounts_are_taken_as_people_write_them(self):
        for option, value, wanted in TAKEN:
            with self.subTest(option=option, value=value):
                self.assertEqual(read(option, value), wanted)

    def test_what_is_wrong_is_named(self):
        for option, value in REFUSED:
            with self.subTest(option=option, value=value):
                with self.assertRaisesRegex((ValueError, TypeError), option):
                    read(option, value)
        with self.assertRaisesRegex(ValueError, "memory='2QiB' is not accepted.*'2GiB'"):
            read("memory", "2QiB")
        with self.assertRaisesRegex(TypeError, "did you mean `memory`"):
            _options.task_class({"memry": 1})

    def test_disk_space_is_for_tasks_that_run_programs(self):
        self.assertEqual(_options.of_command({"disk": "20GiB"}), {"disk": 20 << 30})
        self.assertEqual(_options.of_command({"disk": 0}), {"disk": 0})
        with self.assertRaisesRegex(ValueError, "disk='much' is not accepted"):
            _options.of_command({"disk": "much"})
        with self.assertRaisesRegex(TypeError, "`disk` is for tasks that run programs"):
            _options.task_class({"disk": "20GiB"})
        with self.assertRaisesRegex(ValueError, "`disk` is no custom resource"):
            _options.task_class({"resources": {"disk": 5}})

    def test_alternatives_are_whole_requests(self):
        given = [{"cpus": 16, "memory": "2GiB", "licences": 1, "idle": 0}, {"gpus": 2}]
        found = _options.task_class({"gpus": 1, "alternatives": given})
        requests = [[16000, 0, 2 << 30, [("licences", 1)]], [1000, 2, 0, []]]
        self.assertEqual(found[-2:], [requests, 0])
        # Dispatchers of the version before know no alternatives.
        self.assertEqual(len(_options.task_class({"gpus": 1})), len(found) - 2)
        tables = [{"cpus": 4, "disk": "1GiB"}]
        words = _requests.words_of(_options.of_command({"or_": tables}))
        self.assertEqual(words, ["--or=cpus=4.0,gpus=0,memory=0,disk=1073741824"])
        task = _options.of_task(0, {"command": "true", "alternatives": tables})
        table = {"cpus": 4.0, "gpus": 0, "memory": 0, "disk": 1 << 30}
        self.assertEqual(task["alternatives"], [table])
        for wrong, said in [
            ([{"cpu": 1}], "did you mean `cpus`"),
            ([{"GPUs": 1}], "did you mean `gpus`"),
            ([{"timeout": 1}], "`timeout` is the same for all"),
            ([{"memory": "auto"}], "not auto"),
            ([{"cpus": "auto"}], "not auto"),
            ([{"cpus": 0}], "is not accepted"),
            ([{"cpus": 2}, {"cpus": 2}], "are the same"),
            ([{"cpus": n} for n in range(2, 6)], "at most 3 alternatives"),
        ]:
            with self.assertRaisesRegex(ValueError, said):
                _options.task_class({"alternatives": wrong})
        for wrong in ({"cpus": 2}, [1]):
            with self.assertRaisesRegex((TypeError, ValueError), "a list of mappings"):
                _options.of_command({"or_": wrong})
        with self.assertRaisesRegex(TypeError, "`disk` is for tasks that run programs"):
            _options.task_class({"alternatives": [{"disk": "1GiB"}]})

    def test_the_command_line_refuses_the_same(self):
        program = os.environ["FALKON_BINARY"]

        def says(option, value):
            option = "estimate" if option == "runtime_estimate" else option
            said = subprocess.run(
                [program, "run", "--dry-run", "--range=1-1", "--%s=%s" % (option, value), "--", "true"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            return said.returncode == 0

        seed = int(os.environ.get("FALKON_SEED") or random.randrange(1 << 32))
        draw = random.Random(seed)
        texts = ["".join(draw.choices("0129.-kKmMgGibBshud ", k=draw.randint(1, 5))) for _ in range(60)]
        cases = [(option, value) for option, value, _ in TAKEN if isinstance(value, str)]
        cases += [(option, value) for option, value in REFUSED if isinstance(value, str)]
        cases += [(option, text) for text in texts for option in ("memory", "timeout", "cpus")]
        for option, value in cases:
            if option == "resources":
                continue
            try:
                read(option, value)
                is_taken = True
            except ValueError:
                is_taken = False
            self.assertEqual(is_taken, says(option, value), "seed %d: %s=%r" % (seed, option, value))

    def test_lines_are_texts_paths_and_numbers(self):
        request = _requests.submit(["echo"], None, [0.1, "a\n", 3], None, {})
        self.assertEqual(request.given, b"0.1\na\n3\n")
        for wrong in ([None], [b"a"], "abc"):
            with self.assertRaisesRegex(TypeError, "lines"):
                _requests.submit(["echo"], None, wrong, None, {})
        with self.assertRaisesRegex(ValueError, "several lines"):
            _requests.submit(["echo"], None, ["a\nb"], None, {})

    def test_tasks_are_named_by_their_place(self):
        with self.assertRaisesRegex(ValueError, "task 1: retries=-1"):
            _requests.submit_tasks([{"command": "a"}, {"command": "b", "retries": -1}], {})
        with self.assertRaisesRegex(TypeError, "task 0 is"):
            _requests.submit_tasks(["true"], {})
        with self.assertRaisesRegex(ValueError, "cpus=0 is not accepted"):
            _requests.submit_tasks([], {"cpus": 0})

    def test_executors_and_apps_check_them_where_they_are_given(self):
        with falkon.Executor(max_workers=1) as executor:
            for option, value in REFUSED:
                with self.assertRaises((ValueError, TypeError)):
                    executor.options(**{option: value})
                with self.assertRaises((ValueError, TypeError)):
                    falkon.python_app(**{option: value})(abs)
            for option in ("inputs", "outputs"):
                with self.assertRaisesRegex(TypeError, option):
                    executor.options(**{option: "a.txt"})
            # A need that is there, of each kind that was taken.
            took = executor.options(memory=1e3, timeout="5m", retries="2", cpus="0.5")
            self.assertEqual(took.submit(abs, -1).result(60), 1)
            self.assertEqual(list(took.map(abs, [-1, -2])), [1, 2])
            tape = {"resources": {"tape": 1}, "alternatives": [{"cpus": 0.5, "memory": "1MB"}]}
            took = executor.options(**tape).submit(os.getenv, "FALKON_ALTERNATIVE")
            self.assertEqual(took.result(60), "1")
        for wrong in (0, 1.5, "two", 1 << 20):
            with self.assertRaisesRegex(ValueError, "max_workers"):
                falkon.Executor(max_workers=wrong)
        with self.assertRaisesRegex(ValueError, "reconnect"):
            falkon.Executor(reconnect=-1)

    def test_tasks_of_a_client_take_them(self):
        with Dispatcher() as dispatcher:
            dispatcher.executor()
            client = falkon.Client(dispatcher.access)
            options = {"memory": 2e8, "timeout": 1e2, "retries": 1.0, "cpus": "0.5"}
            instance = client.submit(["echo"], lines=[0.1], **options)
            self.assertEqual([one.stdout for one in instance.results()], ["0.1\n"])
            instance = client.submit_tasks([dict(options, command=["echo", 1], timeout=1e-5 + 60)])
            self.assertEqual([one.stdout for one in instance.results()], ["1\n"])
            says = ["sh", "-c", "echo $FALKON_ALTERNATIVE $FALKON_CPUS"]
            instance = client.submit(says, lines=["x"], gpus=9, or_=[{"cpus": 0.5}])
            self.assertEqual([one.stdout for one in instance.results()], ["1 0.5\n"])
            task = {"command": says, "gpus": 9, "alternatives": [{"cpus": "0.5", "disk": 1}]}
            instance = client.submit_tasks([task])
            results = list(instance.results())
            self.assertEqual([one.stdout for one in results], ["1 0.5\n"])
            self.assertEqual(results[0].more["alternative"], 1)


if __name__ == "__main__":
    unittest.main()
