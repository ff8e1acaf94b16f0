"""``falkon.Client`` and ``falkon.AsyncClient``, with a real dispatcher."""

import asyncio
import io
import logging
import os
import subprocess
import sys
import tempfile
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
        wait_until(lambda: cls.client.status()["executors"])

    def test_commands_and_their_results(self):
        instance = self.client.submit(["echo", "{1}", "{2}"], range=[range(1, 6, 2), "7-8"])
        results = sorted(instance.results(), key=lambda result: result.index)
        self.assertEqual(
            [result.stdout for result in results],
            ["%d %d\n" % (one, two) for one in (1, 3, 5) for two in (7, 8)],
        )
        self.assertTrue(all(result.ok for result in results))
        self.assertGreaterEqual(results[0].times["ended"], results[0].times["started"])
        self.assertGreater(results[0].usage["rss_max_bytes"], 0)
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
            {"id": "a", "command": ["echo", 0.5, 1e-07], "env": {"RATE": 0.25}},
            {"id": "f", "call": "operator:add", "args": [1, 2]},
        ]
        instance = self.client.submit_tasks(tasks)
        results = {result.id: result for result in instance.results()}
        self.assertEqual(results["b"].stdout, "b\n")
        self.assertEqual(results["a"].stdout, "0.5 1e-7\n")
        self.assertEqual(results["f"].value, 3)
        self.assertLessEqual(results["a"].times["ended"], results["b"].times["started"])
        path = os.path.join(self.dispatcher.folder, "tasks.toml")
        with open(path, "w") as file:
            file.write('[[task]]\ncommand = ["echo", "toml"]\n')
        (result,) = self.client.submit_file(path).results()
        self.assertEqual(result.stdout, "toml\n")

    def test_a_command_on_each_executor(self):
        (result,) = self.client.everywhere(["echo", "here"]).results()
        self.assertEqual(result.stdout, "here\n")
        names = [one["name"] for one in self.client.status()["executors"]]
        self.assertEqual([result.executor], names)
        with self.assertRaises(falkon.ClientError):
            self.client.everywhere(["echo"], range="1-2")

    def test_cancel(self):
        instance = self.client.submit(["@sleep", "1000"], range=range(1, 10))
        instance.cancel(8, range(3, 5), range(0, 8, 7))
        some = [result for _, result in zip(range(5), instance.results())]
        self.assertEqual(sorted(one.index for one in some), [0, 3, 4, 7, 8])
        self.assertEqual({one.status for one in some}, {"cancelled"})
        with self.assertRaises(ValueError):
            instance.cancel(range(0))
        instance.cancel(command="1001")
        instance.cancel(state=["done", "failed"])
        self.assertEqual(instance.status()["cancelled"], 5)
        instance.cancel(state=("ready", "sent", "running"), command="@sleep 1000")
        self.assertEqual(instance.status()["cancelled"] + instance.status()["dispatched"], 9)
        instance.cancel()
        self.assertEqual(instance.wait()["cancelled"], 9)

    def test_what_is_held_up_goes_on(self):
        executor = self.client.status()["executors"][0]
        self.client.drain(executor["id"], wait=True)
        instance = self.client.submit(["true"])
        instance.pause()
        self.assertEqual(instance.status()["state"], "paused")
        self.client.undrain(executor["name"])
        self.assertFalse(self.client.status()["executors"][0]["drained"])
        self.assertEqual(instance.status()["ready"], 1)
        instance.set_priority(-3)
        self.assertEqual(instance.status()["priority"], -3)
        instance.resume()
        self.assertEqual(instance.wait()["done"], 1)

    def test_what_runs_is_watched_and_what_failed_runs_again(self):
        with tempfile.TemporaryDirectory() as folder:
            gate = os.path.join(folder, "gate")
            script = "echo begun; until [ -e %s ]; do sleep 0.02; done; [ -e %s.ok ]" % (gate, gate)
            instance = self.client.submit(["sh", "-c", script])

            def begun():
                try:
                    return instance.tail(0) == "begun\n"
                except falkon.ClientError:
                    return False

            wait_until(begun)
            self.assertEqual(instance.tail(0, bytes=3), "un\n")
            self.assertEqual(instance.tail(0, stderr=True), "")
            self.assertEqual(instance.explain(0)[0]["state"], "running")
            for name in ("gate", "gate.ok"):
                with open(os.path.join(folder, name), "w"):
                    pass
                if name == "gate":
                    self.assertEqual(instance.wait()["failed"], 1)
                    self.assertEqual(instance.retry(command="nothing"), 0)
                    self.assertEqual(instance.retry(), 1)
            # The second attempt may have begun before its file was there.
            if instance.wait()["failed"]:
                instance.retry(0)
                instance.wait()
            self.assertEqual([result.status for result in instance.results()], ["done"])
        wait_until(lambda: self.client.events(instance=instance.id, kind="ended"))
        wait_until(lambda: self.client.report(instance.id)["tasks"]["done"] == 1)
        self.assertTrue(all(one["cpus"] > 0 for one in self.client.explain_idle()))
        with self.assertRaisesRegex(falkon.ClientError, "it has ended"):
            instance.tail(0)

    def test_a_plan_and_runs_that_go_on(self):
        command = {"command": ["sh", "-c", "test -e {} && echo {}"], "lines": self.made(3)}
        plan = self.client.plan(**command)
        self.assertEqual(len(plan), 3)
        self.assertIn(self.made(3)[2], plan[2])
        with tempfile.TemporaryDirectory() as kept:
            os.unlink(self.made(3)[1])
            first = list(self.client.run(**command, out=kept, keep_order=True))
            self.assertEqual([one.status for one in first], ["done", "failed", "done"])
            self.made(3)
            again = list(self.client.run(**command, resume=kept))
            self.assertEqual([(one.index, one.stdout) for one in again], [(1, self.made(3)[1] + "\n")])
        tasks = os.path.join(self.dispatcher.folder, "some.jsonl")
        with open(tasks, "w") as file:
            file.write('{"command": ["echo", "one"]}\n')
        (one,) = self.client.run(tasks=tasks)
        self.assertEqual(one.stdout, "one\n")

    def made(self, count):
        """Files that are there."""
        paths = [os.path.join(self.dispatcher.folder, "made-%d" % n) for n in range(count)]
        for path in paths:
            with open(path, "w"):
                pass
        return paths

    def test_metrics(self):
        instance = self.client.submit(["true"], range=range(5))
        found = instance.metrics(baseline=10)
        self.assertEqual((found["tasks"], found["baseline_seconds"]), (5, 10))

    def test_tables(self):
        instance = self.client.submit(["echo", "{}"], range=range(3))
        instance.wait()
        table = instance.report()
        report = self.client.report()
        if pandas is not None:
            self.assertEqual(sorted(table["stdout"]), ["0\n", "1\n", "2\n"])
            self.assertTrue((table["ended"] >= table["started"]).all())
            self.assertGreaterEqual(len(report["executors"]), 1)
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
        self.assertEqual(data.read("cache:kept"), b"some words\n")
        data.rm("cache:kept")
        self.assertEqual(data.ls("cache:kept"), [])

    def test_provision(self):
        provision = self.client.provision
        with self.assertRaises(falkon.ClientError):
            provision.pause("nothing")
        provision.add("local", name="here", nodes_max=1, cpus=1, idle="1s")
        provision.pause("here")
        self.assertEqual([queue["paused"] for queue in provision.status()["queues"]], [True])
        self.assertEqual([queue["name"] for queue in provision.plan("here")["queues"]], ["here"])
        self.assertIn("paused", provision.log("here", count=1)[0]["text"])
        shown = provision.show("here", log=1)
        self.assertEqual((len(shown["queues"]), len(shown["log"])), (1, 1))
        provision.resume("here")
        provision.once("local", 1, name="here")
        wait_until(lambda: any(one["started"] for one in provision.status()["allocations"]))
        for one in provision.status()["allocations"]:
            provision.drop(one["id"])
        for queue in provision.status()["queues"]:
            provision.remove(queue["name"])
        wait_until(lambda: not provision.status()["queues"])

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
            self.assertLess(0, len(await one.report()))
            self.assertEqual((await one.metrics())["tasks"], 2)
            self.assertIn(one.id, [other.id for other in await client.instances()])
            self.assertEqual(len((await client.report())["executors"]), 1)
            await one.destroy()
            return sorted(said), status["failed"]

        self.assertEqual(asyncio.run(together()), (["0\n", "1\n"], 1))

    def test_asyncio_data_provision_and_runs(self):
        async def together():
            client = falkon.AsyncClient(self.dispatcher.access)
            path, back = self.made(2)
            with open(path, "w") as file:
                file.write("awaited\n")
            await client.data.put(path, key="awaited")
            self.assertEqual(len(await client.data.ls("cache:awaited")), 1)
            self.assertEqual(len(await client.data.where("cache:awaited")), 1)
            await client.data.fetch("cache:awaited", back)
            with open(back, "rb") as file:
                self.assertEqual(file.read(), await client.data.read("cache:awaited"))
            await client.data.rm("cache:awaited", force=True)
            lines = ["word %d" % n for n in range(3)]
            self.assertEqual(len(await client.plan(["echo", "{}"], lines=lines)), 3)
            ran = client.run(["echo", "{}"], lines=lines, keep_order=True)
            self.assertEqual([one.stdout async for one in ran], [line + "\n" for line in lines])
            provision = client.provision
            await provision.add("local", name="later", nodes_max=1)
            await provision.pause("later")
            self.assertEqual(len((await provision.show("later"))["queues"]), 1)
            self.assertEqual(len((await provision.plan("later"))["queues"]), 1)
            self.assertEqual(len(await provision.log("later", count=1)), 1)
            await provision.resume("later")
            await provision.remove("later")
            with self.assertRaises(falkon.ClientError):
                await provision.drop(9999)
            with self.assertRaises(falkon.ClientError):
                await provision.once("no such scheduler", 1)
            while (await provision.status())["queues"]:
                await asyncio.sleep(0.01)

        asyncio.run(asyncio.wait_for(together(), 60))

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
