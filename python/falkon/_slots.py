"""How many calls are made side by side: what libraries ask an executor for."""

import threading
import time
from typing import Any, List, Optional

from ._errors import FalkonError
from ._session import Session

KNOWN_SECONDS = 1.0
"""How long an answer of the dispatcher is taken for what is so now."""

_CAPACITY = 2
"""A field of an executor in a status (docs/protocol.md)."""


class Slots:
    """The room that a session's calls have."""

    def __init__(self, session: Session, here: int):
        self._session = session
        self._here = here
        """Workers of this machine, if they are the session's own."""
        self._lock = threading.Lock()
        self._asked: Optional[float] = None
        self._capacities: List[Any] = []

    def of(self, task_class: List[Any]) -> int:
        """Calls of a class that could be made side by side now, 1 if none could."""
        if self._session.objects.is_here:
            return max(1, min(self._here, self._here * 1000 // max(task_class[1][0], 1)))
        with self._lock:
            now = time.monotonic()
            is_old = self._asked is None or now - self._asked >= KNOWN_SECONDS
            if is_old and not self._session.is_receiving():
                try:
                    self._capacities = self._ask()
                    self._asked = now
                except FalkonError:
                    pass  # The last answer is the best guess.
            return max(1, sum(_fit(task_class[1], capacity) for capacity in self._capacities))

    def _ask(self) -> List[Any]:
        return [one[_CAPACITY] for one in self._session.executors()]


def _fit(needs: List[Any], capacity: List[Any]) -> int:
    """How many tasks with these needs fit an executor."""
    held = dict(map(tuple, capacity[3]))
    pairs = list(zip(needs[:3], capacity[:3]))
    pairs += [(count, held.get(name, 0)) for name, count in needs[3]]
    return min((have // need for need, have in pairs if need), default=0)
