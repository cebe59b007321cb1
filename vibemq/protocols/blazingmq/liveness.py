"""Whether a client is still there: how long it may be silent, and how fast a large message of it has to come."""

from vibemq.errors import RemoteProtocolError
from vibemq.protocols.blazingmq.codec.events import HEARTBEAT_REQ
from vibemq.protocols.blazingmq.state import BlazingmqState

LARGE_PROGRESS_BYTES = 65_536
"""Of a large message, what a client has to send within `limits.message_timeout_ms`."""


class ClientLiveness:
    def __init__(self, state: BlazingmqState) -> None:
        self._state = state
        self._heard_at = state.now
        self._waits_since = state.now
        """For the next step of the client's way in."""
        self._pings = 0
        """Heartbeats that the client has not answered."""
        self._progress: tuple[int, int] | None = None
        """When a large message has last come on by a piece worth counting, and what was left of it."""

    def heard(self) -> None:
        self._heard_at, self._pings = self._state.now, 0

    def step_done(self) -> None:
        """The client has been answered on its way in, and it may take its time for the next step."""
        self._heard_at = self._waits_since = self._state.now

    def silence_deadline(self) -> int | None:
        """When `look` has something to do. None: the client need not say anything."""
        state = self._state
        if not state.negotiated:
            return self._waits_since + state.context.limits.handshake_timeout_ms
        if not state.knows_heartbeats:
            return None
        return self._heard_at + (self._pings + 1) * state.settings.ping_interval_ms

    def look(self) -> None:
        """It has been silent until the deadline: ask it for a sign of life, or give it up."""
        state = self._state
        if not state.negotiated or self._pings >= state.settings.missed_pings_max:
            state.close()
        else:
            self._pings += 1
            state.send(HEARTBEAT_REQ)

    def stall_deadline(self) -> int | None:
        if self._progress is None:
            return None
        return self._progress[0] + self._state.context.limits.message_timeout_ms

    def note_large(self, left: int) -> bool:
        """So many bytes of a large message have not come, 0: none is under way. Return whether it has stalled: a
        client that does not come on with it holds memory that others wait for."""
        if not left:
            self._progress = None
        elif self._progress is None or not 0 <= self._progress[1] - left < LARGE_PROGRESS_BYTES:
            self._progress = self._state.now, left
        deadline = self.stall_deadline()
        return deadline is not None and self._state.now >= deadline

    def stall_error(self) -> RemoteProtocolError:
        wait_ms = self._state.context.limits.message_timeout_ms
        return RemoteProtocolError(
            f"less than {LARGE_PROGRESS_BYTES:,} B of a large message have come within {wait_ms} ms"
            " (limits.message_timeout_ms); send it faster, or in smaller messages"
        )
