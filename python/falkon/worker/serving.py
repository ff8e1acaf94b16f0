"""Serving an executor: the conversation, and the calls."""

import array
import importlib
import mmap
import os
import socket
import struct
import sys
import time

from . import failures, objects
from .arguments import ARGUMENTS, BEFORE_ARGUMENTS, arguments_with_values, form_of_arguments
from .changes import changed, settle, undo
from .failures import describe, encode_raised, failure, separate
from .functions import Functions
from .messages import pack, unpack
from .modules import have_modules_changed
from .objects import Objects
from .streams import Stream, flush, line_buffer_c
from .values import Left, encode_value, leave_at

VERSION = 1
"""Of the protocol."""
SETUP, FUNCTION, CALLS = 0, 1, 2
"""Messages to the worker."""
HELLO, READY, ANSWERS = 0, 1, 2
"""Messages to the executor."""
RETURNED, DETAILED = 0, 1
"""How a call ended: it returned and wrote nothing, or there is more to report."""
LEFT = 2
"""Within this program: it returned what is in a file."""
RECORD = struct.Struct("<IIBqq")
"""In front of an answer: bytes that follow, index, how it ended, start, end."""
BUFFER_HEAD_BYTES = 16
"""In front of the buffer's answers: how many bytes they are, and the bundle."""
READ_BYTES = 1 << 18

_LENGTH = struct.Struct("<I")


class Connection:
    """Frames to and from the executor."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(path)
        self.fds = array.array("i")
        # Read into one place: memory of its own for each message would cost as
        # much as a short call.
        self._read = memoryview(bytearray(READ_BYTES))
        self._rest = bytearray()

    def send(self, *parts):
        length = sum(map(len, parts))
        self.socket.sendall(b"".join((_LENGTH.pack(length),) + parts))

    def receive(self):
        """The next message; ``None`` when the executor is gone."""
        rest = self._rest
        while True:
            if len(rest) >= 4:
                end = 4 + _LENGTH.unpack_from(rest)[0]
                if len(rest) >= end:
                    message, _ = unpack(bytes(rest[4:end]))
                    del rest[:end]
                    return message
            count = self.socket.recv_into(self._read)
            if not count:
                return None
            rest += self._read[:count]

    def receive_setup(self):
        """The first message, which brings two file descriptors."""
        size = array.array("i").itemsize
        data, ancillary, _, _ = self.socket.recvmsg(READ_BYTES, socket.CMSG_SPACE(2 * size))
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self.fds.frombytes(content[: len(content) // size * size])
        self._rest += data
        return self.receive()


class Worker:
    """The state that stays between calls."""

    def __init__(self, connection, setup):
        _, buffer_bytes, capture_bytes, stdout, stderr, self.preload = setup
        self.connection = connection
        buffer, self.claims = connection.fds
        self.buffer = memoryview(mmap.mmap(buffer, buffer_bytes))
        self.words = self.buffer[:BUFFER_HEAD_BYTES].cast("Q")
        os.close(buffer)
        os.set_inheritable(self.claims, False)
        self.functions = Functions()
        self.streams = (
            Stream(1, sys.stdout, os.fsdecode(stdout), capture_bytes),
            Stream(2, sys.stderr, os.fsdecode(stderr), capture_bytes),
        )
        leave_at(os.fsdecode(stdout) + ".value")
        self.bundle = 0
        # Whether its state could not be restored, so that it makes no more calls.
        self.is_worn = False

    def flush(self, done):
        """Sends the answers in the buffer."""
        used = self.words[0]
        answers = self.buffer[BUFFER_HEAD_BYTES : BUFFER_HEAD_BYTES + used]
        self.connection.send(pack_head(ANSWERS, 3), pack(self.bundle), pack(done), pack(answers))
        self.words[0] = 0

    def serve(self):
        error = ""
        try:
            for module in self.preload:
                importlib.import_module(module)
        except BaseException as exception:
            error = describe(exception)
        flush(self.streams)
        for stream in self.streams:
            written = stream.take()[0].decode("utf-8", "replace")
            error = error and error + written
        settle()
        self.connection.send(pack([READY, error]))
        while True:
            message = self.connection.receive()
            if message is None:
                return
            if message[0] == FUNCTION:
                self.functions.define(*message[1:])
            elif message[0] == CALLS:
                # A worker that ends before it claims a call is replaced.
                if self.is_worn or have_modules_changed() or not self.call(*message[1:]):
                    return
            else:
                raise ValueError("a message that this worker does not know: %r" % (message[0],))

    def call(self, bundle, numbers, lengths, payloads):
        """Makes the calls of a bundle; ``False`` if the executor is gone."""
        numbers = memoryview(numbers).cast("I").tolist()
        lengths = memoryview(lengths).cast("I").tolist()
        self.bundle = bundle
        self.words[0] = 0
        self.words[1] = bundle
        # Names that each call uses are looked up once.
        words, buffer, head = self.words, self.buffer, BUFFER_HEAD_BYTES
        room, claims, claim = len(buffer) - head, self.claims, os.read
        known, load = self.functions.known.get, self.functions.load
        arguments, record, size = ARGUMENTS, RECORD.pack, RECORD.size
        clock, lseek, getpid = time.monotonic_ns, os.lseek, os.getpid
        out, err = self.streams
        system, changes, is_worn = sys, changed, False
        pid = getpid()
        out.drop()
        err.drop()
        used = at = 0
        started = clock() // 1000
        for index, number in enumerate(numbers):
            # A call is made only by who has its claim: this worker, or the
            # executor, which takes calls back from behind a long one.
            try:
                if not claim(claims, 1):
                    return False
            except BlockingIOError:
                break
            kind = RETURNED
            end = at + lengths[index]
            form = payloads[at] if end > at else 0
            try:
                function = known(number) or load(number)
                if form in BEFORE_ARGUMENTS:
                    (args, kwargs), form = arguments_with_values(payloads[at:end])
                    value = function(*args, **kwargs)
                elif form:
                    args, kwargs = arguments[form](payloads[at:end])
                    value = function(*args, **kwargs)
                else:
                    value = function()
                body = b"" if value is None else encode_value(value, form)
                value = None
            except BaseException as exception:
                kind = DETAILED
                if failures.outer is not None:
                    separate(exception)
                if form in BEFORE_ARGUMENTS:
                    # The call did not come to have its arguments.
                    form = form_of_arguments(payloads[at:end])
                code, body, cause = failure(exception)
                raised = encode_raised(exception, form)
            if getpid() != pid:
                # A child that the call made and did not end.
                end_child(code if kind else 0, body if kind else "", self.streams)
            if type(body) is Left:
                kind = LEFT
            at = end
            if system.stdout is not out.text or system.stderr is not err.text:
                self.restore_streams()
            try:
                out.text.flush()
                err.text.flush()
            except (ValueError, OSError):
                flush(self.streams)
            if kind or lseek(out.fd, 0, 2) or lseek(err.fd, 0, 2):
                text, value = (body, raised) if kind == DETAILED else ("", body)
                code = code if kind == DETAILED else 0
                more = []
                if kind == LEFT:
                    value, more = b"", [os.fsencode(body.path)]
                elif kind == DETAILED and cause is not None:
                    more = [b"", cause]
                kind = DETAILED
                body = pack([code, value, text] + out.take() + err.take() + more)
                value = raised = None
            if changes:
                is_worn = self.is_worn = not self.undo()
            now = clock() // 1000
            end = used + size + len(body)
            if end > room:
                self.flush(False)
                used, end = 0, size + len(body)
            answer = record(len(body), index, kind, started, now) + body
            if end > room:
                self.connection.send(
                    pack_head(ANSWERS, 3), pack(bundle), pack(False), pack(answer)
                )
            else:
                buffer[head + used : head + end] = answer
                words[0] = used = end
            started = now
            if is_worn:
                break
        self.flush(True)
        return True

    def restore_streams(self):
        """Has Python write where it did before the call."""
        for stream, name in zip(self.streams, ("stdout", "stderr")):
            found = getattr(sys, name, None)
            if found is not stream.text:
                try:
                    found.flush()
                except Exception:
                    pass  # The stream is the call's own.
                setattr(sys, name, stream.text)

    def undo(self):
        """Makes the process what it was before the call. ``False`` if that cannot be
        done."""
        if changed.pop("child", None) is not None:
            for stream in self.streams:
                stream.renew()
        return undo()


def end_child(code, text, streams):
    """Ends a process that a call forked, which has come to the call's end."""
    try:
        if text:
            sys.stderr.write(text + "\n")
        flush(streams)
    finally:
        os._exit(code)


def pack_head(number, fields):
    """The head of a message with so many fields."""
    return bytes((0x91 + fields, number))


def work():
    """Makes calls until the executor is gone."""
    path = os.environ.pop("FALKON_WORKER_SOCKET")
    token = os.environ.pop("FALKON_WORKER_TOKEN")
    folder = os.environ.pop("FALKON_WORKER_OBJECTS", None)
    os.environ.pop("FALKON_WORKER_INITIALIZER", None)  # The variable tells workers apart, no more.
    if folder is not None:
        objects.here = Objects(folder)
    connection = Connection(path)
    connection.send(pack([HELLO, VERSION, token]))
    setup = connection.receive_setup()
    if setup is None:
        return
    line_buffer_c()
    Worker(connection, setup).serve()
