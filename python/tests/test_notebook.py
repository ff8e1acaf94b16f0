"""What a notebook shows: well-formed, short, escaped, and without colours for text."""

import re
import subprocess
import tempfile
import unittest
from html.parser import HTMLParser

import falkon
from falkon import _notebook
from falkon._program import find
from services import Dispatcher, wait_until

HOSTILE = "<script>alert('&')</script>\""
VOID = {"br", "hr", "img"}


class Reader(HTMLParser):
    """The text of a view, whose elements have to be nested well."""

    def __init__(self, text):
        super().__init__()
        self.open, self.names, self.words = [], set(), []
        self.feed(text)
        self.close()
        if self.open:
            raise AssertionError("never closed: %s" % self.open)

    def handle_starttag(self, name, attributes):
        self.names.add(name)
        if name not in VOID:
            self.open.append(name)

    def handle_startendtag(self, name, attributes):
        self.names.add(name)

    def handle_endtag(self, name):
        if self.open.pop() != name:
            raise AssertionError("%s is closed too early" % name)

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join("".join(word + " " for word in self.words).split())


def checked(view):
    """The text of a view, which is fit for light and dark notebooks."""
    reader = Reader(view)
    assert not reader.names & {"script", "style", "link", "iframe"}, reader.names
    colours = set(re.findall(r"[;\"]color:([^;\"]+)", view))
    assert colours <= {"inherit"}, colours
    grounds = set(re.findall(r"background:([^;\"]+)", view))
    assert grounds <= {"transparent", _notebook.DONE, _notebook.FAILED}, grounds
    return reader.text


class Views(unittest.TestCase):
    def test_many_instances_with_hostile_names_are_few_rows(self):
        instances = [
            {"id": n, "name": HOSTILE, "state": "complete", "tasks": 10**9, "done": 10**9 - 1, "failed": 1}
            for n in range(1000)
        ]
        view = _notebook.of_status({"instances": instances, "executors": []})
        text = checked(view)
        self.assertIn(HOSTILE, text)
        self.assertIn("1,000,000,000,000", text)
        self.assertIn("and 990 more", text)
        self.assertLess(len(view), 20_000)
        self.assertNotIn("<script>", view)

    def test_an_executor_of_this_machine(self):
        with falkon.Executor(max_workers=2) as executor:
            self.assertEqual(executor.submit(abs, -1).result(), 1)
            text = checked(executor._repr_html_())
            self.assertIn("this machine", text)
            self.assertIn("made side by side 2", text)

    def test_a_client_an_executor_of_a_dispatcher_and_a_report(self):
        with Dispatcher() as dispatcher:
            dispatcher.executor()
            client = falkon.Client(dispatcher.access)
            wait_until(lambda: client.status()["executors"])
            script = "sleep 0.0$0; test $0 != 3"
            instance = client.submit(["sh", "-c", script], range=range(1, 6), name=HOSTILE)
            instance.wait()
            text = checked(client._repr_html_())
            self.assertIn(HOSTILE, text)
            self.assertIn("failed 1", text)
            with falkon.Executor(dispatcher.access) as executor:
                self.assertIn(str(dispatcher.access), checked(executor._repr_html_()))
            wait_until(lambda: client.report(instance.id)["all"]["failed"] == 1)
            report = client.report(instance.id)
            view = report._repr_html_()
            text = checked(view)
            for part in ("Report of " + HOSTILE, "tasks that ran: at most", "The time of all slots", "Failures"):
                self.assertIn(part, text)
            self.assertIn("<svg", view)
            self.assertEqual(dict(report), report)
        # With the dispatcher gone, the view says so and raises nothing.
        self.assertTrue(checked(client._repr_html_()).startswith("falkon.Client "))

    def test_a_run_of_nothing(self):
        with tempfile.TemporaryDirectory() as directory:
            subprocess.run([find(), "run", "--quiet", "--out", directory + "/o", "--", "true"], check=True)
            report = falkon.Client().report(directory + "/o")
            self.assertIn("done 1", checked(report._repr_html_()))


if __name__ == "__main__":
    unittest.main()
