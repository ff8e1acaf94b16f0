"""Submissions that a dispatcher refuses, and the calls beside them."""

import logging
import time
import unittest

import falkon
from falkon._connection import CANCEL
from falkon._session import Kind
from services import Dispatcher, InFolder

MIB = 1 << 20


class Refusals(InFolder):
    """Each test is of an executor here, and of one with a dispatcher."""

    def each(self):
        with falkon.Executor(max_workers=2) as executor:
            yield executor
        with Dispatcher() as dispatcher:
            dispatcher.executor()
            with falkon.Executor(dispatcher.access, reconnect=5) as executor:
                yield executor

    def test_a_request_that_cannot_be_read_costs_that_call_alone(self):
        for executor in self.each():
            session = executor._shared.session()
            bystanders = [executor.submit(time.sleep, 0.1) for _ in range(3)]
            # No client of this package sends this: a count below 0.
            wrong = Kind("wrong", b"p", [[3], [1000, 0, -5, []], 0, 0, 0, 0, 1])
            for _ in range(3):
                future = falkon._futures.Future()
                session.submit(wrong, b"", future)
                with self.assertRaisesRegex(falkon.TaskFailed, "refused the call: .*cannot be read"):
                    future.result(60)
                self.assertEqual(executor.submit(abs, -1).result(60), 1)
            for bystander in bystanders:
                bystander.result(60)

    def test_a_message_that_is_too_long_is_answered(self):
        for executor in self.each():
            session = executor._shared.session()
            with self.assertRaisesRegex(falkon.TaskFailed, "a message is at most 16777216"):
                session.ask(CANCEL, 0, bytes(17 * MIB))
            self.assertEqual(executor.submit(abs, -1).result(60), 1)

    def test_of_calls_that_are_submitted_together_one_is_refused(self):
        for executor in self.each():
            # Nothing is taken meanwhile: all of these are one submission.
            session = executor._shared.session()
            long = falkon.File("s3://bucket/" + "a" * 20_000)
            with session._lock:
                fine = executor.options(inputs=[falkon.File(__file__)])
                calls = [fine.submit(abs, -number) for number in range(40)]
                calls.insert(17, executor.options(inputs=[long]).submit(abs, -1))
                more = [executor.submit(abs, -number) for number in range(100)]
            with self.assertRaisesRegex(falkon.TaskFailed, "URL of a data object is 20012 bytes"):
                calls.pop(17).result(60)
            self.assertEqual([one.result(60) for one in calls], list(range(40)))
            self.assertEqual([one.result(60) for one in more], list(range(100)))

    def test_a_connection_that_is_lost_each_time_is_given_up(self):
        with Dispatcher() as dispatcher:
            dispatcher.executor()
            executor = falkon.Executor(dispatcher.access, reconnect=1)
            connection = executor._shared.session().connection
            warnings = []
            handler = logging.Handler()
            handler.emit = warnings.append
            logging.getLogger("falkon").addHandler(handler)
            self.addCleanup(logging.getLogger("falkon").removeHandler, handler)
            # A message repeated over each connection ends it: no request at all.
            again = connection._subscribe_again

            def poisoned(messages):
                found = again(messages)
                connection._socket.sendall(b"\x01\x00\x00\x00\xc1")
                return found

            connection._subscribe_again = poisoned
            connection._socket.sendall(b"\x01\x00\x00\x00\xc1")
            future = executor.submit(time.sleep, 1000)
            with self.assertRaises(falkon.SessionLost):
                future.result(60)
            self.assertLess(len(warnings), 20)
            executor.shutdown()


if __name__ == "__main__":
    unittest.main()
