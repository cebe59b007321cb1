"""Waited publishes over a connection of their own, which the thread that waits writes to and reads from itself.

A thread that hands a message to the loop and waits for its answer pays for two hops between threads, more than for the
message. So a client that publishes one message after the other, each waited for, makes a second connection for them,
which one thread at a time may take. Everything else goes through the loop: publishes while anything of this client is
on its way (what is sent later never overtakes it), and all for which the second connection has no plain confirm. Those
are published again, through the loop, which never doubles them: only messages with a dedup id come here.
"""

import contextlib
import logging
import os
import socket
import struct
import time
from collections import deque
from threading import Event, get_ident

from vibemq import client as asynchronous
from vibemq.client import ClientSettings, Receipt
from vibemq.client.connecting.connection import PATIENCE
from vibemq.client.connecting.dialing import dial
from vibemq.client.connecting.forking import detach_sockets
from vibemq.client.connecting.plain_socket import PlainSocket
from vibemq.client.protocol import ClientProtocol
from vibemq.client.publisher import PackedPublish
from vibemq.errors import VibeMQError
from vibemq.protocols.native.codec.extensions import PublishManyAck
from vibemq.sync.loop_thread import LoopThread

logger = logging.getLogger(__name__)

WORTHWHILE = 16
"""Waited publishes within `WITHIN_S` for which a connection is worth making."""
WITHIN_S = 1.0
IDLE_S = 10.0
"""An unused connection is closed after as long, or twice."""
RETRY_S = 30.0
"""After a connection could not be made."""
ROW_BYTES_MAX = 65_536
_UNFIT_MAX = 1_000
_READ = 65_536


class PublishConnection:
    """One blocking connection behind its handshake. One thread at a time uses it.

    Args:
        epoch: of the client's connection beside which it was made.
    """

    def __init__(
        self, connected: socket.socket, protocol: ClientProtocol, settings: ClientSettings, epoch: int
    ) -> None:
        self.epoch = epoch
        self.used = 0
        self.owner = 0
        """The thread that has it, or had it last."""
        self._socket = connected
        self._protocol = protocol
        connected.setblocking(True)
        patience_s = settings.command_timeout * PATIENCE
        if os.name == "nt":
            connected.settimeout(patience_s)
        else:
            # By the system: Python's own timeouts ask it before each call whether the call would wait.
            patience = struct.pack("@ll", int(patience_s), int(patience_s % 1 * 1_000_000) or 1)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)

    @property
    def descriptor(self) -> int:
        return self._socket.fileno()

    def publish(self, packed: PackedPublish) -> Receipt | None:
        """None: it was not simply accepted.

        Raises:
            OSError, VibeMQError: there was no answer, and the connection is of no more use.
        """
        self.used += 1
        request_id = f"{self.used:x}"
        self._socket.sendall(self._protocol.publish_row(request_id, packed.queue, packed.row, packed.extra))
        while True:
            data = self._socket.recv(_READ)
            if not data:
                raise ConnectionError("the broker closed the connection")
            for frame in self._protocol.receive_data(data):
                if not isinstance(frame, PublishManyAck) or frame.id != request_id:
                    raise ConnectionError("the broker sent something else than the confirm")
                if frame.refused or frame.duplicates:
                    return None
                return Receipt(packed.queue, frame.first_sequence, duplicate=False)

    def interrupt(self) -> None:
        """Whoever waits for an answer gets none."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()


class DirectPublishes:
    """Those of one client. Any thread may publish; no lock is held, as in `LoopThread`."""

    def __init__(self, loop: LoopThread, client: asynchronous.Client) -> None:
        self._loop = loop
        self._link = client.publishing.link
        self._settings = client.settings
        self._possible = self._settings.publish_connection and not self._settings.tls
        self._free: deque[PublishConnection] = deque()
        """One at most; whoever takes it out has it."""
        self._made: PublishConnection | None = None
        self._making = False
        self._unfit: set[str] = set()
        """Queues that have not simply accepted a message lately."""
        self._wanted = 0
        self._wanted_since = 0.0
        self._closed = False
        self._returned = Event()

    @property
    def under_way(self) -> int:
        return int(self._made is not None and not self._free)

    def publish(self, packed: PackedPublish) -> Receipt | None:
        """None: publish it through the loop, whatever has become of it here."""
        if not self._possible or self._is_closed() or not self._fits(packed):
            return None
        try:
            connection = self._free.pop()
        except IndexError:
            self._want()
            return None
        receipt, sound = None, False
        try:
            connection.owner = get_ident()
            if connection.epoch == self._link.epoch:
                receipt = connection.publish(packed)
                sound = True
                if receipt is None:
                    self._note_unfit(packed.queue)
        except (OSError, VibeMQError) as error:
            logger.debug("the connection for waited publishes is given up: %s", error)
        finally:
            if sound:
                self._free.append(connection)
            else:  # Also when the thread was interrupted while it waited.
                self._drop(connection)
            if self._is_closed():
                self._drop_free()
        return receipt

    def begin_closing(self) -> None:
        """Take no more publishes."""
        self._closed = True
        self._drop_free()

    def close(self, timeout: float) -> None:
        """Wait for the publish of another thread."""
        made = self._made
        if made is not None and made.owner != get_ident() and not self._returned.wait(timeout):
            made.interrupt()

    def forked(self) -> None:
        """In a forked child: it is the parent's."""
        self._closed = True
        if self._made is not None:
            detach_sockets([self._made.descriptor])

    # -- inside -------------------------------------------------------------------------------------------------------

    def _is_closed(self) -> bool:
        return self._closed

    def _fits(self, packed: PackedPublish) -> bool:
        return (
            self._link.is_quiet
            and not self._loop.has_calls
            and packed.extra is not None
            and "dedup_id" in packed.extra
            and len(packed.row) <= ROW_BYTES_MAX
            and packed.queue not in self._unfit
        )

    def _note_unfit(self, queue: str) -> None:
        if len(self._unfit) < _UNFIT_MAX:
            self._unfit.add(queue)

    def _want(self) -> None:
        now = time.monotonic()
        if now - self._wanted_since > WITHIN_S:
            self._wanted, self._wanted_since = 0, now
        self._wanted += 1
        # In the future: an attempt has failed.
        if self._wanted >= WORTHWHILE and now >= self._wanted_since and self._made is None and not self._making:
            self._making = True
            self._loop.post(lambda: self._loop.start(self._make()))

    async def _make(self) -> None:
        """Called in the loop."""
        try:
            epoch = self._link.epoch
            async with dial(self._settings) as (stream, protocol):
                if self._is_closed() or not isinstance(stream, PlainSocket):
                    return
                made = PublishConnection(stream.hand_over(), protocol, self._settings, epoch)
            self._made = made
            self._free.append(made)
            if self._is_closed():
                self._drop_free()
            self._loop.later(IDLE_S, self._close_unused, made, made.used)
        except (OSError, VibeMQError) as error:
            logger.info("waited publishes have no connection of their own: %s", error)
            self._wanted_since = time.monotonic() + RETRY_S
        finally:
            self._making = False

    def _close_unused(self, made: PublishConnection, used: int) -> None:
        """Called in the loop, now and then."""
        self._unfit.clear()
        if self._made is not made:
            return
        if made.used == used:
            self._drop_free()
        else:
            self._loop.later(IDLE_S, self._close_unused, made, made.used)

    def _drop_free(self) -> None:
        with contextlib.suppress(IndexError):
            self._drop(self._free.pop())

    def _drop(self, connection: PublishConnection) -> None:
        self._wanted = 0
        self._made = None
        connection.close()
        self._returned.set()
