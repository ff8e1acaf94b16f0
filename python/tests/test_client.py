"""``falkon.Client`` and ``falkon.AsyncClient``, with a real dispatcher."""

import asyncio
import io
import logging
import os
import subprocess
import sys
import textwrap
import unittest

import falkon
from services import Dispatcher, wait_until

try:
    import pandas
except ImportError:
    pandas = None


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dispatcher = Dispatcher().__enter__()
        cls.addClassCleanup(cls.dispatcher.__exit__)
        cls.dispatcher.executor()
        cls.client = falkon.Client(cls.dispatcher.access)

    def test_commands_and_their_results(self):
        instance = self.client.submit(["echo", "{1}", "{2}"], range=[range(1, 6, 2), "7-8"])
        results = sorted(instance.results(), key=lambda result: result.index)
        self.assertEqual(
            [result.stdout for result in results],
            ["%d %d\n" % (one, two) for one in (1, 3, 5) for two in (7, 8)],
        )
        self.assertTrue(all(result.ok for result in results))
        self.assertGreaterEqual(results[0].times["ended"], results[0].times["started"])
        self.assertEqual(len(list(instance.results(first=4))), 2)
        status = instance.wait()
        self.assertEqual((status["state"], status["done"], status["tasks"]), ("complete", 6, 6))
        self.assertEqual([task["index"] for task in instance.tasks(first=1, count=2)], [1, 2])
        self.assertIn(instance.id, [one.id for one in self.client.instances()])
        instance.destroy()
        with self.assertRaisesRegex(falkon.ClientError, "instance %d" % instance.id):
            instance.status()

    def test_options_lines_and_failures(self):
        lines = ["a b", "$c", ""]
        instance = self.client.submit(
            ["printf", "%s:%s", "{}", "$WORD"], lines=lines, shell=True, env={"WORD": "w=1"}
        )
        said = sorted(result.stdout for result in instance.results())
        self.assertEqual(said, ["$c:w=1", ":w=1", "a b:w=1"])
        instance = self.client.submit(["sh", "-c", "echo why >&2; exit {}"], range="0-1", retries=1)
        failed = [result for result in instance.results() if not result.ok]
        self.assertEqual([(one.exit_code, one.attempts) for one in failed], [(1, 2)])
        self.assertEqual(failed[0].stderr, "why\n")
        self.assertEqual(instance.wait(progress=False)["failed"], 1)
        with self.assertRaises(falkon.ClientError) as caught:
            self.client.submit(["true"], colour="blue")
        self.assertEqual(caught.exception.status, 2)
        with self.assertRaises(TypeError):
            self.client.submit("true")

    def test_tasks_one_by_one_and_from_files(self):
        tasks = [
            {"id": "b", "command": ["echo", "b"], "after": ["a"]},
            {"id": "a", "command": ["echo", "a"]},
            {"id": "f", "call": "operator:add", "args": [1, 2]},
        ]
        instance = self.client.submit_tasks(tasks)
        results = {result.id: result for result in instance.results()}
        self.assertEqual(results["b"].stdout, "b\n")
        self.assertEqual(results["f"].value, 3)
        self.assertLessEqual(results["a"].times["ended"], results["b"].times["started"])
        path = os.path.join(self.dispatcher.folder, "tasks.toml")
        with open(path, "w") as file:
            file.write('[[task]]\ncommand = ["echo", "toml"]\n')
        (result,) = self.client.submit_file(path).results()
        self.assertEqual(result.stdout, "toml\n")

    def test_cancel(self):
        instance = self.client.submit(["@sleep", "1000"], range=range(1, 5))
        instance.cancel(3)
        first = next(instance.results())
        self.assertEqual((first.index, first.status), (3, "cancelled"))
        instance.cancel()
        self.assertEqual(instance.wait()["cancelled"], 4)

    def test_tables(self):
        instance = self.client.submit(["echo", "{}"], range=range(3))
        instance.wait()
        table = instance.report()
        report = self.client.report()
        if pandas is not None:
            self.assertEqual(sorted(table["stdout"]), ["0\n", "1\n", "2\n"])
            self.assertTrue((table["ended"] >= table["started"]).all())
            self.assertEqual(len(report["executors"]), 1)
        else:
            self.assertEqual(sorted(row["stdout"] for row in table), ["0\n", "1\n", "2\n"])

    def test_data_and_provision(self):
        path = os.path.join(self.dispatcher.folder, "words")
        with open(path, "w") as file:
            file.write("some words\n")
        data = self.client.data
        data.put(path, key="kept")
        (held,) = data.ls("cache:kept")
        self.assertEqual(held["url"], "cache:kept")
        self.assertEqual(len(data.where("cache:kept")), 1)
        (result,) = self.client.submit(["wc", "-w", "w"], input="w=cache:kept").results()
        self.assertEqual(result.stdout, "2 w\n")
        back = os.path.join(self.dispatcher.folder, "back")
        data.fetch("cache:kept", back)
        with open(back) as file:
            self.assertEqual(file.read(), "some words\n")
        data.rm("cache:kept")
        self.assertEqual(data.ls("cache:kept"), [])
        self.assertEqual(self.client.provision.status()["queues"], [])
        with self.assertRaises(falkon.ClientError):
            self.client.provision.pause("nothing")

    def test_asyncio(self):
        async def together():
            client = falkon.AsyncClient(self.dispatcher.access)
            one, two = await asyncio.gather(
                client.submit(["echo", "{}"], range=range(2)),
                client.submit_tasks([{"command": ["false"]}]),
            )
            said = [result.stdout async for result in one.results()]
            status = await two.wait()
            self.assertEqual(len((await two.tasks())), 1)
            sleeping = await client.submit(["@sleep", "1000"])
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(sleeping.wait(), 0.2)
            await sleeping.cancel()
            async for result in sleeping.results():
                self.assertEqual(result.status, "cancelled")
            with self.assertRaises(falkon.ClientError):
                await client.instance(9999).status()
            return sorted(said), status["failed"]

        self.assertEqual(asyncio.run(together()), (["0\n", "1\n"], 1))

    def test_logging(self):
        with self.assertLogs("falkon", logging.INFO) as logged:
            instance = self.client.submit(["true"])
        self.assertIn("submitted instance %d" % instance.id, logged.output[0])

    def test_a_dispatcher_that_is_not_there(self):
        with self.assertRaisesRegex(falkon.ClientError, "/nowhere/access.json"):
            falkon.Client("/nowhere/access.json").status()


class Bars(unittest.TestCase):
    def test_a_bar(self):
        script = """
            import falkon
            with falkon.Executor(max_workers=1) as executor:
                futures = [executor.submit(divmod, 1, n) for n in range(5)]
                print(sum(1 for _ in falkon.progress(futures, %s)))
            """
        for wanted, shown in (("True", "5/5 calls"), ("None", "")):
            command = [sys.executable, "-c", textwrap.dedent(script % wanted)]
            ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
            self.assertEqual(ran.stdout, "5\n", ran.stderr)
            self.assertIn(shown, ran.stderr)
            self.assertEqual("1 failed" in ran.stderr, bool(shown))
            self.assertEqual(bool(ran.stderr), bool(shown))

    def test_a_widget(self):
        from falkon import _progress

        updates = []

        class Display:
            HTML = str

            def display(self, html, display_id):
                updates.append(html)
                return self

            def update(self, html):
                updates.append(html)

        before = _progress._notebook
        _progress._notebook = Display
        try:
            with _progress.Progress(total=2) as shown:
                shown.show(1)
                shown.show(2, last=True)
        finally:
            _progress._notebook = before
        self.assertIn("<progress value=2 max=2>", updates[-1])


if __name__ == "__main__":
    unittest.main()
