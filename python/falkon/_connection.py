"""The frames between this process and the program."""

import itertools
import logging
import select
import socket
import struct
import threading
from collections import deque
from time import monotonic
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional

import msgspec

from ._access import access_to
from ._errors import FORGOTTEN, SessionLost, refusal
from ._program import Program

# Messages to a dispatcher, and from it.
CREATE, SUBMIT, SEAL, SUBSCRIBE, ACKNOWLEDGE, CANCEL, DESTROY, STATUS, TASKS = range(9)
CREATED, ACCEPTED, DONE, REFUSED, RESULTS, STATUS_IS, TASKS_ARE, GONE = range(8)

Message = List[Any]
Ask = Callable[..., Message]
"""Makes a request and gives its answer."""
Poll = Callable[[int], List[Any]]
"""Waits until something is there, for some milliseconds at most; says what."""

AWAY_SECONDS = 60.0
"""How long a dispatcher may be away before it is given up, as with the command
line."""
PAUSES_SECONDS = (0.02, 1.0)
"""First and longest pause before a lost connection is made again."""
STEADY_SECONDS = 5.0
"""How long a connection holds before its loss is another one than that of the
connection before."""
REFUSED_STATUS = 2
"""The program's exit status for what will not get better."""
ACKNOWLEDGE_MS = 10
"""How long an acknowledgement of results waits for something to go with."""
READ_BYTES = 1 << 18

LOG = logging.getLogger("falkon")
_LENGTH = struct.Struct("<I")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def framed(message: Message) -> bytes:
    """A message as it travels."""
    body = _encode(message)
    return _LENGTH.pack(len(body)) + body


def messages_of(connected: socket.socket, waits: Callable[[Poll], None]) -> Iterator[Message]:
    """The messages from the other end, until that is closed. ``waits`` is called each time before
    the next message has to be waited for."""
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


class Connection:
    """An instance's conversation with its dispatcher, over one connection after
    another if need be: with the ``access`` file of a dispatcher elsewhere, one
    that is lost is made again for ``away_seconds``."""

    def __init__(
        self,
        options: List[str],
        access: Optional[str],
        away_seconds: float,
        program: Optional[Program] = None,
        starts: Callable[[List[str]], Program] = Program,
    ):
        self.access = access
        self._away_seconds = away_seconds
        # Taken again by the thread that has it if an executor is collected as
        # garbage at the wrong moment.
        self.lock = threading.RLock()
        if access is not None:
            options = ["--access", access, *options]
        self.program = program or starts(options)
        self._socket = self.program.socket
        self._requests = itertools.count()
        self._unanswered: Dict[int, Message] = {}
        """Requests that are made again if the connection is lost."""
        self.instance: Optional[int] = None
        self.secret = b""
        self.waits_for_instance = False
        """The dispatcher was there, and had no room for the instance yet."""
        self._received = self._most = 0
        self._owes: Optional[float] = None
        """The time since which results that are here are not acknowledged."""
        self._outgoing: Deque[memoryview] = deque()
        self._is_sending = False
        self.interrupted: Optional[BaseException] = None
        self.resumes: Callable[[Ask], None] = lambda ask: None
        """A function that is called when there is another connection, before any other message goes
        over it: its requests are answered first."""
        self.is_away = False
        """Whether the connection is lost: requests are kept until there is another."""
        self._away_since = 0.0
        self._hung_up = threading.Event()
        self._pause = PAUSES_SECONDS[0]
        self._since: Optional[float] = None
        """The time since which no request was answered, if the connection is lost again and
        again."""
        self._connected = monotonic()

    def has_instance(self, instance: int, secret: bytes) -> None:
        """Says whose conversation it is."""
        self.instance, self.secret = instance, secret

    # Saying; the lock is held.

    def request(self, tag: int, *fields: Any) -> int:
        """Makes a request. Returns its number, which the answer has as well."""
        request = next(self._requests)
        message = self._unanswered[request] = [tag, request, *fields]
        self._send(framed(message))
        return request

    def received(self, results: int) -> None:
        """Notes how many results are here; they are acknowledged soon."""
        self._received = max(self._received, results)
        if results > self._most:
            self._most = results
            self._since = None
        if self._owes is None:
            self._owes = monotonic()

    def _send(self, data: bytes) -> None:
        if self.is_away:
            return
        if self._owes is not None:
            # Not by itself, as it would wake the dispatcher.
            self._owes = None
            data += framed([ACKNOWLEDGE, self.instance, self._received])
        self._outgoing.append(memoryview(data))
        # Otherwise a signal's handler says it in the middle of a message.
        if not self._is_sending:
            self._send_outgoing()

    def _send_outgoing(self) -> None:
        """Sends what is to be sent. Whatever a signal's handler raises meanwhile,
        messages stay whole: the rest follows, and who submits raises it."""
        self._is_sending = True
        try:
            while self._outgoing:
                try:
                    sent = self._socket.send(self._outgoing[0], socket.MSG_DONTWAIT)
                except BlockingIOError:
                    poll = select.poll()
                    poll.register(self._socket, select.POLLOUT)
                    poll.poll()
                    continue
                if sent < len(self._outgoing[0]):
                    self._outgoing[0] = self._outgoing[0][sent:]
                else:
                    self._outgoing.popleft()
        except OSError:
            self._outgoing.clear()  # The receiving thread finds out as well, and knows why.
        except BaseException as raised:
            self.interrupted = raised
            threading.Thread(target=self._send_rest, daemon=True, name="falkon").start()
        finally:
            self._is_sending = False

    def _send_rest(self) -> None:
        with self.lock:
            self._send_outgoing()

    def raise_interrupted(self) -> None:
        """Raises what a signal's handler raised while this thread was sending."""
        raised = self.interrupted
        if raised is not None and threading.current_thread() is threading.main_thread():
            self.interrupted = None
            raise raised

    # Hearing.

    def messages(self, is_over: Callable[[], bool]) -> Iterator[Message]:
        """The messages that are received, until there is no connection and will be none. A lost one
        is not made again if it ``is_over``."""
        messages: Optional[Iterator[Message]] = messages_of(self._socket, self._waits)
        while messages is not None:
            for message in messages:
                if message[0] != RESULTS and self._unanswered.pop(message[1], None):
                    self._since = None
                if message[0] == REFUSED and self.instance is None:
                    self.waits_for_instance = True
                yield message
            messages = self._resume(is_over)

    def _waits(self, poll: Poll) -> None:
        """No message is there for the moment: an acknowledgement that is due is sent soon."""
        owes = self._owes
        if owes is None:
            return
        if monotonic() - owes < ACKNOWLEDGE_MS / 1000 and poll(ACKNOWLEDGE_MS):
            return
        with self.lock:
            self._send(b"")

    def _resume(self, is_over: Callable[[], bool]) -> Optional[Iterator[Message]]:
        """Connects again after a connection was lost, and goes on from there. Returns the messages
        that are received then; ``None`` if there will be no connection."""
        now = monotonic()
        with self.lock:
            if not self.is_away:
                self._away_since = now
            self.is_away = True
            self._outgoing.clear()
        if now - self._connected >= STEADY_SECONDS:
            self._pause = PAUSES_SECONDS[0]
            self._since = None
        # Without an instance, the messages that end report each try.
        is_first = self._since is None or self.instance is not None
        if self._since is None:
            self._since = now
        while self.access is not None and (self.instance is not None or self.waits_for_instance):
            self._socket.close()
            status = self.program.process.wait()
            if status == REFUSED_STATUS or self._hung_up.is_set() or is_over():
                return None
            if monotonic() - self._since >= self._away_seconds:
                return None
            if is_first:
                reason, seconds = self.program.reason_of_end(), self._away_seconds
                LOG.warning("%s; trying again for %g s", reason, seconds)
                is_first = False
            self._hung_up.wait(self._pause)
            self._pause = min(2 * self._pause, PAUSES_SECONDS[1])
            program = connect_again(self.access, self.instance, self.secret)
            with self.lock:
                self.program, self._socket = program, program.socket
                if self._hung_up.is_set():
                    self.hang_up()
            messages = messages_of(program.socket, self._waits)
            if self._subscribe_again(messages):
                self._connected = monotonic()
                return messages
        return None

    def _subscribe_again(self, messages: Iterator[Message]) -> bool:
        """Asks over a new connection for the results that are missing, and for
        all that has not been answered. Returns whether there is a connection."""

        def ask(tag: int, *fields: Any) -> Message:
            request = next(self._requests)
            self._socket.sendall(framed([tag, request, *fields]))
            for message in messages:
                if message[0] not in (RESULTS, GONE) and message[1] == request:
                    return message
            raise ConnectionError

        if self.instance is None:
            self._say_again()
            return True
        try:
            self.resumes(ask)
            # A dispatcher that lost results with its machine counts others in
            # their places: all that it has are asked for again, as those that are
            # here are known by their calls.
            received = 0
            answer = ask(SUBSCRIBE, self.instance, received)
            if answer[0] == REFUSED and answer[2][0] == 0 and answer[2][1][0] == FORGOTTEN:
                received = answer[2][1][1]
                answer = ask(SUBSCRIBE, self.instance, received)
        except OSError:
            return False
        if answer[0] == REFUSED:
            raise SessionLost("the dispatcher is there, without the calls: %s" % refusal(answer))
        with self.lock:
            self._received = received
            # Before anything is acknowledged: until then, values that these
            # calls take are there.
            self._say_again()
        return True

    def _say_again(self) -> None:
        """Makes the requests again that have not been answered."""
        with self.lock:
            self.is_away = False
            self._send(b"".join(map(framed, self._unanswered.values())))

    def away_seconds(self) -> float:
        """For how long there has been no connection."""
        with self.lock:
            return monotonic() - self._away_since if self.is_away else 0.0

    # Ending.

    def hang_up(self) -> None:
        """Ends it."""
        with self.lock:
            self._hung_up.set()
            connected = self._socket
        try:
            connected.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        """Closes the connection, once no more messages are received."""
        self._socket.close()

    def forget(self) -> None:
        """In a process that was forked: lets go of what belongs to the other."""
        self._socket.close()
        self.lock = threading.RLock()


def connect_again(access: str, instance: Optional[int], secret: bytes) -> Program:
    """Starts a program that connects for the sake of an instance, if there is one
    already."""
    with access_to(access, instance, secret) as (path, keep):
        return Program(["--access", path], keep=keep)
