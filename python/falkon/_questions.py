"""Questions to a dispatcher, and their answers."""

import threading
from collections import deque
from typing import Any, Callable, Deque, Dict, Sequence

from ._connection import REFUSED, Connection, Message
from ._errors import SessionLost, TaskFailed, refusal

AWAY_LOOK_SECONDS = 0.1
"""How often a thread that waits for an answer looks whether the dispatcher is gone."""


class Questions:
    """Requests whose answers threads wait for."""

    def __init__(self, connection: Connection, check: Callable[[], None]):
        self._connection = connection
        self._check = check
        """Raises the error that the session has ended with."""
        self._answers: Dict[int, Deque[Message]] = {}
        self._changed = threading.Condition(connection.lock)

    def ask(self, tag: int, *fields: Any, may_wait: bool = True) -> Message:
        """Makes a request and waits for its answer; for a dispatcher that is gone only
        if it ``may_wait``."""
        answer = self.answer(tag, fields, may_wait)
        if answer[0] == REFUSED:
            raise TaskFailed("the dispatcher refused: %s" % refusal(answer))
        return answer

    def answer(self, tag: int, fields: Sequence[Any], may_wait: bool = True) -> Message:
        """Asks as :meth:`ask` does, with refusals as answers."""
        with self._connection.lock:
            self._check()
            answer: Deque[Message] = deque()
            request = self._connection.request(tag, *fields)
            self._answers[request] = answer
            while not answer:
                self._check()
                if may_wait:
                    self._changed.wait()
                    continue
                if self._connection.is_away:
                    del self._answers[request]
                    raise SessionLost("the dispatcher is gone for now")
                self._changed.wait(AWAY_LOOK_SECONDS)
            del self._answers[request]
        return answer[0]

    def take(self, message: Message) -> None:
        """Takes in a message, if it is an answer; the lock is held."""
        answer = self._answers.get(message[1])
        if answer is not None:
            answer.append(message)
            self._changed.notify_all()

    def pause(self, seconds: float) -> None:
        """Waits for so long, or until something has changed; the lock is held."""
        self._check()
        self._changed.wait(seconds)

    def wake(self) -> None:
        """Has those who wait look again; the lock is held."""
        self._changed.notify_all()

    def forget(self) -> None:
        """In a process that was forked: the other's threads do not wait here."""
        self._changed = threading.Condition(self._connection.lock)
