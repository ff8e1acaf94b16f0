"""A dispatcher whose disk has no room: calls wait for it, and nothing fails."""

import os
import threading
import unittest

import falkon
from falkon import _program
from services import Dispatcher, InFolder, wait_until

NO_ROOM, ROOM = "40m", "256m"
"""Sizes of a disk that takes nothing, and that takes all there is."""


class Room(InFolder):
    def setUp(self):
        super().setUp()
        self.dispatcher = self.entered(Dispatcher(disk=NO_ROOM))
        self.made = []

    def make(self):
        """Makes an executor in a thread, and ends when the thread waits for room."""

        def make():
            self.made.append(falkon.Executor(self.dispatcher.access))

        with self.assertLogs("falkon", "WARNING") as told:
            thread = threading.Thread(target=make)
            thread.start()
            wait_until(lambda: told.records)
        self.assertEqual(len(told.output), 1)
        self.assertIn("waiting: the dispatcher has no room for more", told.output[0])
        return thread

    def makes_calls(self, thread):
        """Makes calls as soon as there is room."""
        self.dispatcher.resize_disk(ROOM)
        self.dispatcher.executor(PYTHONPATH=_program.module_path())
        thread.join(60)
        with self.made.pop() as executor:
            self.assertEqual(list(executor.map(abs, range(-9, 0))), list(range(9, 0, -1)))

    def test_an_executor_waits_for_room(self):
        self.makes_calls(self.make())

    def test_an_executor_that_waits_for_room_goes_on_with_a_dispatcher_that_comes_back(self):
        thread = self.make()
        with self.assertLogs("falkon", "WARNING") as told:
            self.dispatcher.kill()
            wait_until(lambda: told.records)
            self.dispatcher.start_again()
            self.makes_calls(thread)
        self.assertTrue([one for one in told.output if "trying again" in one], told.output)

    def test_calls_wait_for_room(self):
        thread = self.make()
        self.dispatcher.resize_disk(ROOM)
        thread.join(60)
        filler = os.path.join(self.dispatcher.folder, "filler")
        with self.made.pop() as executor:
            self.dispatcher.executor(PYTHONPATH=_program.module_path())
            self.assertEqual(executor.submit(abs, -1).result(60), 1)
            with self.assertRaises(OSError), open(filler, "wb") as file:
                while True:
                    file.write(bytes(1 << 20))
            calls = []

            def is_refused():
                calls.append(executor.submit(len, os.urandom(100_000)))
                return executor._shared._session._submissions._pause > 0.1

            wait_until(is_refused)
            os.unlink(filler)
            self.assertEqual({call.result(60) for call in calls}, {100_000})


if __name__ == "__main__":
    unittest.main()
