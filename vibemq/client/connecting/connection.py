"""One connection, whatever carries its bytes: from the handshake to its end. The rest is `ClientLink` and
`ClientProtocol`."""

from abc import abstractmethod

import anyio

from vibemq.client.connecting.line import TcpLine
from vibemq.client.link import ClientLink
from vibemq.client.protocol import ClientProtocol
from vibemq.errors import VibeMQError

PIECE_BYTES = 262_144
"""Of a large message: so much is written at once."""
GOODBYE_SECONDS = 2.0
"""For the last bytes out, and the broker's hanging up."""
PATIENCE = 0.4
"""Share of the command timeout: how long a peer that owes an answer may be silent before it is pinged, and how long
the ping may go unanswered. Below one half, so that what a dead connection swallowed is sent again, not timed out."""


class ClientConnection:
    """Carries a link's traffic until it breaks."""

    def __init__(self, protocol: ClientProtocol, link: ClientLink) -> None:
        self._protocol = protocol
        self._link = link
        self._scope = anyio.CancelScope()
        self._why = ""
        self._heard_at = self._spoke_at = anyio.current_time()
        self._pinged_at: float | None = None
        self._ticked_at = self._heard_at
        self._stood_still = False
        self._line = TcpLine(None)
        self._sending_row = False
        self._row_begun = 0.0
        self._fault: Exception | None = None
        """Of ours, noticed where nobody would hear of it."""

    @abstractmethod
    async def _carry(self) -> None:
        """Read and write until cancelled."""

    async def run(self) -> str:
        """Read and write until the connection ends; why it did."""
        self._link.online(self._protocol, anyio.current_time())
        try:
            with self._scope:
                await self._carry()
            if self._fault is not None:
                raise self._fault
        finally:
            self._link.carried_by(None)
            now = anyio.current_time()
            if self._sending_row:
                # As long as something of it was taken, nothing else could be asked for or answered.
                self._link.postpone(max(0.0, self._spoke_at - self._row_begun), now)
            self._link.offline(now, self._why or "the client closed it")
        return self._why

    def end(self, why: str) -> None:
        """Give the connection up; `run` returns soon."""
        self._why = self._why or why
        self._scope.cancel()

    def tick(self, now: float) -> None:
        """Send a ping into a long silence, give up on a peer that does not answer one, fail what is overdue."""
        if self._why:
            return
        if self._sending_row:
            self._tick_sending(now)
            return
        settings = self._link.settings
        patience = settings.command_timeout * PATIENCE
        self._wait_for_line(now, patience)
        if self._pinged_at is not None and now - self._pinged_at > patience:
            self.end(f"the broker has been silent for {now - self._heard_at:.1f} s and does not answer a ping")
            return
        silence_max = min(settings.keep_alive, patience) if self._link.waiting_for_peer else settings.keep_alive
        if self._pinged_at is None and (now - self._heard_at > silence_max or now - self._spoke_at > silence_max):
            self._pinged_at = now
            self._spoke_at = now
            self._link.ping()
        try:
            self._link.tick(now)
        except VibeMQError as exc:
            self.end(str(exc))

    def _wait_for_line(self, now: float, patience: float) -> None:
        """Frames are not mixed: on a line that needs long for what is on its way, nothing else can be said or
        answered before that is through. Nor can it while this process stands still, or its loop is busy: what has
        become of the peer meanwhile is asked for. Not twice in a row, or a loop that is always late would never know.
        """
        passed, self._ticked_at = now - self._ticked_at, now
        is_slow = self._line.is_slow()
        stood_still = self._stood_still = passed > patience and not self._stood_still
        if stood_still:
            self._pinged_at = None
        if is_slow:
            self._heard_at = now
            self._pinged_at = None if self._pinged_at is None else now
        if is_slow or stood_still or self._protocol.receives_large:
            self._link.postpone(passed, now)

    def _tick_sending(self, now: float) -> None:
        """Frames are not mixed: there is no ping before the end of a large message. A broker that makes it wait says so
        now and then."""
        silence = now - max(self._heard_at, self._spoke_at)
        if silence > self._link.settings.command_timeout:
            self.end(f"the broker has taken nothing of a large message for {silence:.1f} s")

    def _heard(self, data: bytes, now: float) -> None:
        """
        Raises:
            VibeMQError: this connection is of no more use.
        """
        self._heard_at = now
        self._pinged_at = None
        for frame in self._protocol.receive_data(data):
            self._link.receive(frame)

    def _row_sent(self, now: float) -> None:
        """Nothing could be asked for or answered in the meantime."""
        self._sending_row = False
        self._pinged_at = None
        self._ticked_at = now
        self._link.postpone(now - self._row_begun, now)
