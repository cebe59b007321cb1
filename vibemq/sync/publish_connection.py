"""One blocking connection behind its handshake, which carries one publish at a time. The thread that waits for the
answer writes to the socket and reads from it.

It knows every answer to a publish, and keeps time as `ClientConnection` does: a broker that is silent is pinged, one
that answers the ping is waited for until `command_timeout`, and one that does not has lost the connection.
"""

import asyncio
import contextlib
import logging
import os
import socket
import struct
import time
from collections import deque
from threading import Event, get_ident

from vibemq.client import ClientSettings, Receipt
from vibemq.client.connecting.connection import PATIENCE
from vibemq.client.connecting.line import TcpLine
from vibemq.client.failures import error_of
from vibemq.client.protocol import ClientProtocol, Incoming
from vibemq.client.publisher import PackedPublish
from vibemq.errors import ErrorCode, RemoteProtocolError, RequestTimeout, VibeMQError
from vibemq.protocols.native.codec.extensions import PublishManyAck
from vibemq.protocols.native.codec.wire import CommandType, WireMessage

logger = logging.getLogger(__name__)

_READ = 65_536
_PING = "ping"
"""No publish has this id: theirs are hexadecimal numbers."""
_READ_ALL = "read"
"""Nor this one, of the ping that asks whether everything has been read; with a number."""
_SILENCE = (BlockingIOError, TimeoutError)
"""What a read raises when nothing has come for as long as it may take."""
_WAIT_MAX_S = 1_000_000.0
"""The system is not asked to wait longer at a time."""


class Claim:
    """Of one call to the connection."""

    __slots__ = ("is_interrupted", "thread")

    def __init__(self) -> None:
        self.thread = get_ident()
        self.is_interrupted = False
        """The thread waits no more. The loop has the connection, until the broker has read what was sent."""


class PublishConnection:
    """See the module.

    Args:
        epoch: of the client's connection beside which it was made.
    """

    def __init__(
        self, connected: socket.socket, protocol: ClientProtocol, settings: ClientSettings, epoch: int
    ) -> None:
        self.epoch = epoch
        self.used = 0
        self.pings = 0
        self.claims: deque[Claim] = deque()
        """The first one has it. That of the call that gives the connection up stays, so nobody has it afterwards."""
        self.returned = Event()
        """Given up, and no thread is waiting in it."""
        self.ended = False
        """The broker has said that it takes no more."""
        self.resumable = False
        """A thread that is interrupted now leaves whole frames behind: the next one passes over the answer that is
        still to come."""
        self.slow_at = 0.0
        """When the broker's system has last been seen to take a part of what it is to be told."""
        self._socket = connected
        self._line = TcpLine(connected)
        self._protocol = protocol
        self._timeout_s = settings.command_timeout
        self._patience_s = settings.command_timeout * PATIENCE
        connected.setblocking(True)
        self._wait_at_most(self._patience_s)

    def publish(self, packed: PackedPublish) -> Receipt | VibeMQError:
        """Returns the receipt, or why there is none.

        Raises:
            OSError, VibeMQError: the connection is lost before the answer.
        """
        self.used += 1
        self.resumable = False
        request_id = f"{self.used:x}"
        self._socket.sendall(self._protocol.publish_row(request_id, packed.queue, packed.row, packed.extra))
        self.resumable = True
        try:
            data = self._socket.recv(_READ)
        except _SILENCE:
            return self._wait_on(packed, request_id, time.monotonic() - self._patience_s)
        self.resumable = False
        answer = None
        for frame in self._protocol.receive_data(data) if data else _closed():
            if frame.id == request_id:
                answer = frame
            else:
                self._take_other(frame)
        if answer is None:
            return self._wait_on(packed, request_id, time.monotonic())
        if answer.__class__ is PublishManyAck and not answer.refused and not answer.duplicates:
            return Receipt(packed.queue, answer.first_sequence, duplicate=False)
        return _outcome(packed, answer)

    async def everything_read(self) -> bool:
        """Called in the loop by the claim of a publish whose thread waits no more: returns when the broker has read all
        that was sent. Whether the connection may be used on.

        Raises:
            OSError, VibeMQError: the connection is lost.
        """
        loop = asyncio.get_running_loop()
        self._socket.setblocking(False)
        if not self.resumable:
            # Perhaps half a frame was sent, or half an answer was read.
            self._socket.shutdown(socket.SHUT_WR)
            while await loop.sock_recv(self._socket, _READ):
                pass
            return False
        ping = f"{_READ_ALL}-{self.used}"
        await loop.sock_sendall(self._socket, self._protocol.request(CommandType.PING, ping))
        found = False
        while not found:
            data = await loop.sock_recv(self._socket, _READ)
            found = self._found(list(self._protocol.receive_data(data) if data else _closed()), ping) is not None
        self._socket.setblocking(True)
        self._wait_at_most(self._patience_s)
        return not self.ended

    def interrupt(self) -> None:
        """Whoever waits for an answer gets none."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        # A child that is forked in the middle of the closing has the socket as well: closing alone would not end it.
        self.interrupt()
        self._socket.close()
        self.returned.set()

    # -- inside -------------------------------------------------------------------------------------------------------

    def _wait_on(self, packed: PackedPublish, request_id: str, since: float) -> Receipt | VibeMQError:
        """`since`: about when it was sent."""
        until, pinged_at, looked_at = since + self._timeout_s, 0.0, time.monotonic()
        try:
            while True:
                now = time.monotonic()
                if self.ended:
                    raise ConnectionError("the broker takes no more on this connection")
                if self._line.is_slow():
                    # The ping waits behind the message, which the other end's system takes.
                    self.slow_at = since = now
                    until, pinged_at = until + now - looked_at, pinged_at and now
                looked_at = now
                if pinged_at and now - pinged_at >= self._patience_s:
                    raise ConnectionError("the broker is silent and does not answer a ping")
                if now >= until:
                    return _late(self._timeout_s)
                if not pinged_at and now - since >= self._patience_s:
                    pinged_at = now
                    self._ping()
                frames = self._frames_within(min(self._patience_s, until - now))
                if frames:
                    pinged_at, since = 0.0, time.monotonic()
                answer = self._found(frames, request_id)
                if answer is not None:
                    return _outcome(packed, answer)
        finally:
            self._wait_at_most(self._patience_s)

    def _ping(self) -> None:
        self.resumable = False
        self._socket.sendall(self._protocol.request(CommandType.PING, _PING))
        self.pings += 1

    def _frames_within(self, seconds: float) -> list[Incoming]:
        self._wait_at_most(seconds)
        self.resumable = True
        try:
            data = self._socket.recv(_READ)
        except _SILENCE:
            return []
        self.resumable = False
        return list(self._protocol.receive_data(data) if data else _closed())

    def _found(self, frames: list[Incoming], request_id: str) -> Incoming | None:
        answer = None
        for frame in frames:
            if frame.id == request_id:
                answer = frame
            else:
                self._take_other(frame)
        return answer

    def _take_other(self, frame: Incoming) -> None:
        """The answer to a ping, or to a publish that nobody waits for any more, needs nothing."""
        if not isinstance(frame, WireMessage):
            return
        if frame.type == CommandType.DISCONNECT or frame.error_code == ErrorCode.SHUTTING_DOWN:
            self.ended = True
        elif frame.type == CommandType.ERROR:
            logger.warning("the broker refused something earlier: %s: %s", frame.error_code, frame.error_message)

    def _wait_at_most(self, seconds: float) -> None:
        """From now on, for the socket."""
        seconds = min(max(seconds, 0.001), _WAIT_MAX_S)
        if os.name == "nt":
            self._socket.settimeout(seconds)
            return
        # By the system: Python's own timeouts ask it before each call whether the call would wait.
        timeout = struct.pack("@ll", int(seconds), int(seconds % 1 * 1_000_000))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)


def _closed() -> list[Incoming]:
    raise ConnectionError("the broker closed the connection")


def _late(timeout_s: float) -> RequestTimeout:
    return RequestTimeout(f"no answer to a publish within {timeout_s} s; it may or may not have happened")


def _outcome(packed: PackedPublish, answer: Incoming) -> Receipt | VibeMQError:
    """
    Raises:
        ConnectionError: this broker stops; the next connection carries the message.
        RemoteProtocolError: it is no answer to a publish.
    """
    if isinstance(answer, PublishManyAck):
        if answer.refused:
            return error_of(*answer.refused[min(answer.refused)], packed.queue)
        if answer.duplicates:
            sequence = answer.duplicates[min(answer.duplicates)]
            return Receipt(packed.queue, sequence, duplicate=not packed.own_dedup)
        return Receipt(packed.queue, answer.first_sequence, duplicate=False)
    if not isinstance(answer, WireMessage) or answer.type != CommandType.ERROR:
        raise RemoteProtocolError("the broker answered a publish with something else than a confirm")
    if answer.error_code == ErrorCode.SHUTTING_DOWN:
        raise ConnectionError(answer.error_message or "the broker stops")
    return error_of(answer.error_code or "", answer.error_message or "", answer.queue)
