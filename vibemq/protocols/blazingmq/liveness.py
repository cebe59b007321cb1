"""Whether a client is still there: how long it may be silent."""

from vibemq.protocols.blazingmq.codec.events import HEARTBEAT_REQ
from vibemq.protocols.blazingmq.state import BlazingmqState


class ClientLiveness:
    def __init__(self, state: BlazingmqState) -> None:
        self._state = state
        self._heard_at = state.now
        self._waits_since = state.now
        """For the next step of the client's way in."""
        self._pings = 0
        """Heartbeats that the client has not answered."""

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
        if state.negotiated and not state.context.is_read():
            # Its answers wait in the kernel.
            self.heard()
        elif not state.negotiated or self._pings >= state.settings.missed_pings_max:
            state.close()
        else:
            self._pings += 1
            state.send(HEARTBEAT_REQ)
