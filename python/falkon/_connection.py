"""The frames between this process and the program."""

import os
import select
import socket
import struct
from typing import Any, Callable, Iterator, List, Optional

import msgspec

from ._program import Program

Message = List[Any]
Poll = Callable[[int], List[Any]]
"""Waits until something is there, for some milliseconds at most; says what."""

AWAY_SECONDS = 60.0
"""How long a dispatcher may be away before it is given up, as with the command
line."""
PAUSES_SECONDS = (0.02, 1.0)
"""First and longest pause before a lost connection is made again."""
REFUSED_STATUS = 2
"""The program's exit status for what will not get better."""
ACKNOWLEDGE_MS = 10
"""How long an acknowledgement of results waits for something to go with."""
READ_BYTES = 1 << 18

_LENGTH = struct.Struct("<I")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def framed(message: Message) -> bytes:
    """A message as it travels."""
    body = _encode(message)
    return _LENGTH.pack(len(body)) + body


def messages_of(connected: socket.socket, waits: Callable[[Poll], None]) -> Iterator[Message]:
    """What is said at the other end, until that is closed. ``waits`` is called
    before each time that nothing more is there."""
    # Read into one place: memory of its own for each message would cost as much
    # as a short call.
    buffer = bytearray(READ_BYTES)
    view = memoryview(buffer)
    filled = 0
    receive = connected.recv_into
    unpack, decode = _LENGTH.unpack_from, _decode
    poll = select.poll()
    poll.register(connected, select.POLLIN)
    while True:
        waits(poll.poll)
        try:
            count = receive(view[filled:] if filled else view)
        except OSError:
            return
        if not count:
            return
        filled += count
        at = wanted = 0
        while filled - at >= 4:
            (length,) = unpack(buffer, at)
            wanted = 4 + length
            if filled - at < wanted:
                break
            message = decode(view[at + 4 : at + wanted])
            at += wanted
            yield message
            wanted = 0
        filled -= at
        rest = bytes(view[at : at + filled])
        if max(wanted, READ_BYTES) != len(buffer):
            buffer = bytearray(max(wanted, READ_BYTES))
            view = memoryview(buffer)
        if rest:
            buffer[:filled] = rest


def connect_again(access: str, instance: int, secret: bytes) -> Program:
    """Starts a program that connects for the sake of an instance there is."""
    own = _access_of_instance(access, instance, secret)
    if own is None:
        return Program(["--access", access])
    file = os.memfd_create("access")
    try:
        os.fchmod(file, 0o600)
        os.write(file, own)
        return Program(["--access", "/proc/self/fd/%d" % file], keep=(file,))
    finally:
        os.close(file)


def _access_of_instance(path: str, instance: int, secret: bytes) -> Optional[bytes]:
    """An access file that opens an instance, which a client's does only on the
    connection on which it was created; ``None`` where the file itself will do."""
    import json

    try:
        with open(path) as file:
            access = json.load(file)
        if "owner" in access["secrets"] or not secret:
            return None
        access["secrets"] = {"instance-%d" % instance: secret.hex()}
        return json.dumps(access).encode()
    except (OSError, ValueError, KeyError, TypeError):
        return None  # The program says what is wrong with it.
