"""Waited publishes over a connection of their own, which the thread that waits writes to and reads from itself.

A thread that hands a message to the loop and waits for its answer pays for two hops between threads, more than for the
message. So a client that publishes one message after the other, each waited for, makes a second connection for them,
which one thread at a time may take. Everything else goes through the loop, and so do publishes while the broker may not
have read yet all that this client has sent on the loop's connection (what is sent later never overtakes it).

A lost connection is what it is for the loop: what it had not answered is published again, through the loop.
"""

import contextlib
import logging
import socket
import time
from threading import TIMEOUT_MAX, get_ident

import anyio

from vibemq import client as asynchronous
from vibemq.client import Receipt
from vibemq.client.connecting.connection import PATIENCE
from vibemq.client.connecting.dialing import dial
from vibemq.client.connecting.greenlets import threads_are_greenlets
from vibemq.client.connecting.plain_socket import PlainSocket
from vibemq.client.protocol import ClientProtocol
from vibemq.client.publisher import PackedPublish
from vibemq.errors import ErrorCode, RequestTimeout, VibeMQError
from vibemq.sync.loop_thread import LoopThread
from vibemq.sync.publish_connection import Claim, PublishConnection

logger = logging.getLogger(__name__)

WORTHWHILE = 16
"""Waited publishes within `WITHIN_S` for which a connection is worth making."""
WITHIN_S = 1.0
IDLE_S = 10.0
"""An unused connection is closed after as long, or twice."""
RETRY_S = 30.0
"""After a connection could not be made, or the broker has ended it."""
ROW_BYTES_MAX = 65_536


class DirectPublishes:
    """Those of one client. Any thread may publish; no lock is held, as in `LoopThread`."""

    def __init__(self, loop: LoopThread, client: asynchronous.Client) -> None:
        self._loop = loop
        self._link = client.publishing.link
        self._settings = client.settings
        # A greenlet waits in the hub of its thread, which knows nothing of a socket that the loop has made.
        self._possible = self._settings.publish_connection and not self._settings.tls and not threads_are_greenlets()
        self._made: PublishConnection | None = None
        self._making = False
        self._wanted = 0
        self._wanted_since = 0.0
        self._closed = False

    @property
    def under_way(self) -> int:
        made = self._made
        return int(made is not None and any(not claim.is_interrupted for claim in list(made.claims)))

    def publish(self, packed: PackedPublish) -> Receipt | None:
        """None: publish it through the loop, whatever has become of it here.

        Raises:
            VibeMQError: the broker has refused it, or does not answer.
        """
        if not self._possible or self._is_closed() or not self._fits(packed):
            return None
        connection = self._made
        if connection is None:
            self._want()
            return None
        claims, claim = connection.claims, Claim()
        held = sound = False
        try:
            claims.append(claim)
            held = claims[0] is claim
            # A second look at `closed`: who closes looks for claims behind it.
            if not held or self._is_closed():
                sound = True
                return None
            if connection.epoch != self._link.epoch:
                return None
            outcome = connection.publish(packed)
            sound = not connection.ended
            if sound and isinstance(outcome, RequestTimeout):
                self._wait_until_read(connection, claim)
        except (OSError, VibeMQError) as error:
            logger.debug("the connection for waited publishes is given up: %s", error)
            connection.ended = connection.ended or isinstance(error, VibeMQError)
            connection.resumable = False
            return None
        except BaseException:
            if held:
                self._wait_until_read(connection, claim)
            raise
        finally:
            # A signal's handler may raise behind any call, so the claim is withdrawn by the first one.
            if claim.is_interrupted:
                pass  # By the loop.
            elif held and not (sound or connection.resumable):
                if self._made is connection:
                    self._made = None
                self._drop(connection)
            elif claim in claims:
                claims.remove(claim)
            if self._closed:
                self._close_free()
        if isinstance(outcome, Receipt):
            return outcome
        if outcome.code == ErrorCode.RATE_LIMITED:
            self._link.rate_limited = True
        raise outcome

    def begin_closing(self) -> None:
        """Take no more publishes."""
        self._closed = True
        self._close_free()

    def close(self, timeout: float) -> None:
        """Wait for the publish of another thread."""
        self._close_free()
        made = self._made
        if made is None:
            return
        here = get_ident()
        if all(claim.is_interrupted for claim in list(made.claims)):
            # Whoever closes need not know what the broker has read.
            made.interrupt()
            return
        is_awaited = all(claim.thread != here for claim in list(made.claims))
        if is_awaited and not made.returned.wait(min(timeout, TIMEOUT_MAX)):
            made.interrupt()

    def forked(self) -> None:
        """In a forked child: it is the parent's."""
        self._closed = True

    # -- inside -------------------------------------------------------------------------------------------------------

    def _wait_until_read(self, connection: PublishConnection, claim: Claim) -> None:
        """The thread waits no more, and the broker may not have read what it has sent: whatever this client sends from
        now on goes behind that. The loop has the claim then."""
        handed_over = [claim]
        with contextlib.suppress(VibeMQError):  # It takes nothing more, so there is nothing to be overtaken.
            try:
                # First: a second signal's handler may raise when the loop has it already.
                claim.is_interrupted = True
                self._loop.post(lambda: self._begin_waiting(connection, handed_over))
            except BaseException:
                # Unless the loop has taken it. Whoever empties the list, in one step, has it.
                claim.is_interrupted = not _taken_from(handed_over)
                raise

    def _begin_waiting(self, connection: PublishConnection, handed_over: list[Claim]) -> None:
        """Called in the loop, before anything that is handed over later."""
        claim = _taken_from(handed_over)
        if claim is None:
            return
        self._link.put_off_sending()
        self._loop.start(self._read(connection, claim))

    async def _read(self, connection: PublishConnection, claim: Claim) -> None:
        usable = False
        try:
            with anyio.move_on_after(self._settings.command_timeout * PATIENCE):
                usable = await connection.everything_read()
        except (OSError, VibeMQError) as error:
            logger.debug("the connection for waited publishes is given up: %s", error)
        finally:
            try:
                if usable:
                    connection.claims.remove(claim)
                else:
                    self._drop(connection)
            finally:
                self._link.send_again()
            if self._closed:
                self._close_free()

    def _is_closed(self) -> bool:
        # Another thread may close it between two looks. A type checker takes the second look at an attribute for known.
        return self._closed

    def _fits(self, packed: PackedPublish) -> bool:
        # The calls first: what they have handed to the link is seen there once they are gone.
        return (
            not self._loop.has_calls
            and self._link.is_quiet
            and not self._link.rate_limited
            and packed.extra is not None
            and "dedup_id" in packed.extra
            and len(packed.row) <= ROW_BYTES_MAX
        )

    def _want(self) -> None:
        now = time.monotonic()
        if now - self._wanted_since > WITHIN_S:
            self._wanted, self._wanted_since = 0, now
        self._wanted += 1
        # In the future: an attempt has failed.
        if self._wanted >= WORTHWHILE and now >= self._wanted_since and not self._making:
            self._making = True
            try:
                self._loop.post(lambda: self._loop.start(self._make()))
            except BaseException:
                self._making = False
                raise

    async def _make(self) -> None:
        """Called in the loop."""
        try:
            epoch = self._link.epoch
            async with dial(self._settings) as (stream, protocol):
                if self._closed or self._made is not None or not isinstance(stream, PlainSocket):
                    return
                made = self._connection_of(stream.hand_over(), protocol, epoch)
            self._made = made
            if self._is_closed():
                self._close_free()
            self._look_later(made, time.monotonic())
        except (OSError, VibeMQError) as error:
            logger.info("waited publishes have no connection of their own: %s", error)
        finally:
            if self._made is None:
                self._wanted_since = time.monotonic() + RETRY_S
            self._making = False

    def _connection_of(self, connected: socket.socket, protocol: ClientProtocol, epoch: int) -> PublishConnection:
        try:
            return PublishConnection(connected, protocol, self._settings, epoch)
        except BaseException:
            connected.close()
            raise

    def _look_later(self, made: PublishConnection, since: float) -> None:
        self._loop.later(IDLE_S, self._look_after, made, made.used, since)

    def _look_after(self, made: PublishConnection, used: int, since: float) -> None:
        """Called in the loop, now and then. `since`: when it was last found to have been used."""
        if self._made is not made:
            return
        now = time.monotonic()
        if made.used != used:
            since = now
        elif not made.claims:
            self._close_unused(made)
        elif now - max(since, made.slow_at) > 2 * self._settings.command_timeout:
            # Each signal has a read begin anew, with all of its time: this thread may wait for ever.
            made.interrupt()
        self._look_later(made, since)

    def _close_unused(self, made: PublishConnection) -> None:
        claim = Claim()
        made.claims.append(claim)
        if made.claims[0] is claim:
            self._drop(made)
        else:
            made.claims.remove(claim)

    def _close_free(self) -> None:
        """Once this is closed: nobody claims it any more, and whoever has it calls this when it is given back."""
        made = self._made
        if made is not None and not made.claims:
            self._drop(made)

    def _drop(self, connection: PublishConnection) -> None:
        if self._made is connection:
            self._made = None
        self._wanted = 0
        if connection.ended:
            self._wanted_since = time.monotonic() + RETRY_S
        connection.close()


def _taken_from(handed_over: list[Claim]) -> Claim | None:
    try:
        return handed_over.pop()
    except IndexError:
        return None
