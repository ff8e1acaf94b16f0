"""The frames between this process and the program."""

import json
import os
import socket
import struct
from typing import Any, Iterator, List, Optional

import msgspec

from ._program import Program

Message = List[Any]

AWAY_SECONDS = 60.0
"""How long a dispatcher may be away before it is given up, as with the command
line."""
PAUSES_SECONDS = (0.02, 1.0)
"""First and longest pause before a lost connection is made again."""
REFUSED_STATUS = 2
"""The program's exit status for what will not get better."""
READ_BYTES = 1 << 18

_LENGTH = struct.Struct("<I")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def framed(message: Message) -> bytes:
    """A message as it travels."""
    body = _encode(message)
    return _LENGTH.pack(len(body)) + body


def messages_of(connected: socket.socket) -> Iterator[Message]:
    """What is said at the other end, until that is closed."""
    rest = bytearray()
    receive = connected.recv
    unpack, decode = _LENGTH.unpack_from, _decode
    while True:
        try:
            data = receive(READ_BYTES)
        except OSError:
            return
        if not data:
            return
        rest += data
        at, end = 0, len(rest)
        while end - at >= 4:
            (length,) = unpack(rest, at)
            if end - at - 4 < length:
                break
            message = decode(memoryview(rest)[at + 4 : at + 4 + length])
            at += 4 + length
            yield message
        if at:
            del rest[:at]


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
    try:
        with open(path) as file:
            access = json.load(file)
        if "owner" in access["secrets"] or not secret:
            return None
        access["secrets"] = {"instance-%d" % instance: secret.hex()}
        return json.dumps(access).encode()
    except (OSError, ValueError, KeyError, TypeError):
        return None  # The program says what is wrong with it.
