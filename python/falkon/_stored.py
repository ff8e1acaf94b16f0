"""References to objects: what pickled arguments name for a file in the folder of objects,
or for an object in the caches of executors."""

import functools
import operator
import pickle
from typing import Any, List, Optional, Sequence, Tuple

from ._references import arguments_of, staged, stored


class Stored:
    """An object, which is there as long as this is."""

    __slots__ = ("name", "shared", "bytes", "value", "object", "waits", "__weakref__")

    def __init__(self, name: str, shared: bool, length: int, value: Any):
        self.name = name
        self.shared = shared
        # The object of the protocol that it is to executors elsewhere.
        self.object: Optional[List[Any]] = None
        # Whether it is in no cache yet.
        self.waits = False
        self.bytes = length
        # The value that it was made of, if that cannot change.
        self.value = value

    def __reduce__(self) -> Tuple[Any, ...]:
        _, uses = arguments_of()
        if uses is None:
            raise TypeError("an object of calls can only be part of their arguments")
        uses.stored.append(self)
        if self.object is None:
            return stored, (self.name, self.shared)
        from ._files import call_name

        name = call_name(self.object[1], uses.read(self.object), False)
        return staged, (name, self.name, self.shared)


class Joined:
    """A pickle, or the object that one is, and the objects that its buffers are:
    what it stands for is put together where the call is made."""

    __slots__ = ("data", "buffers")

    def __init__(self, data: Any, buffers: Sequence[Stored]):
        self.data = data
        self.buffers = buffers

    def __reduce__(self) -> Tuple[Any, ...]:
        return functools.partial(pickle.loads, buffers=list(self.buffers)), (self.data,)


class Part:
    """A value that is pickled at a place in an object's bytes."""

    __slots__ = ("whole", "place")

    def __init__(self, whole: Stored, place: slice):
        self.whole = whole
        self.place = place

    def __reduce__(self) -> Tuple[Any, ...]:
        return pickle.loads, (_Bytes(self.whole, self.place),)


class _Bytes(Part):
    """The bytes at a place in an object's."""

    __slots__ = ()

    def __reduce__(self) -> Tuple[Any, ...]:
        return operator.getitem, (self.whole, self.place)
