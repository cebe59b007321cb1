"""A session without a wire: a part of this plug-in asks the engine, and is called with the answers.

Contract: `vibemq.protocols.session.Session`. What is asked is taken in the next turn of the loop.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from typing import Any, TypeVar

from vibemq.errors import VibeMQError
from vibemq.model.commands import Command, Settle, Settlement
from vibemq.model.effects import ConsumerEnded, Deliver, Effect, Reply
from vibemq.model.runs import Run
from vibemq.model.stored import Slice
from vibemq.protocols.session import OptionalVerbs, Principal, Request, SessionContext

COMMANDS_AT_ONCE = 100
"""Decided in about a millisecond; when the broker starts, there may be thousands."""
CALLS_AT_ONCE = 25
"""Of what is due or was put off."""
ACKS_TOGETHER = 16
ACK_WAIT_MS = 5
"""An acknowledgement behind which others follow waits for them, so long at most."""
Delivered = Callable[[Deliver, Sequence[Slice]], None]
Ended = Callable[[VibeMQError], None]
T = TypeVar("T")


class InnerSession(OptionalVerbs):
    """Args:
    parted: the broker has ended the session, for this reason.
    """

    def __init__(
        self,
        context: SessionContext,
        principal: Principal | None,
        *,
        parted: Callable[[str], None],
    ) -> None:
        self._context = context
        self._principal = principal
        self._parted = parted
        self._requests: list[Request] = []
        self._acked: defaultdict[int, list[Run]] = defaultdict(list)
        self._acks = 0
        self._acks_wait_until = 0
        self._watches_acks = False
        self._consumers: dict[int, tuple[Delivered, Ended]] = {}
        self._last_consumer = 0
        self._woken = False
        self._closing = False
        self.works = 0
        """Of the plug-in, that are under way and have something to say to it at their end."""
        self.now = context.now
        self._later: list[tuple[int, int, Callable[[], None]]] = []
        """A heap of (instant, number, what to call)."""
        self._last_call = 0
        self._soon: deque[Callable[[], None]] = deque()
        self._rows: deque[tuple[deque[Any], Callable[[Any], None]]] = deque()
        """Long rows of calls: what is left of the items, and what is called for each."""

    @property
    def number(self) -> int:
        return self._context.session

    @property
    def context(self) -> SessionContext:
        return self._context

    # -- what the plug-in says ----------------------------------------------------------------------------------------

    def ask(self, command: Command) -> None:
        """Its token, if any, is called with the result."""
        self._requests.append(command)
        self.wake()

    def acknowledge(self, consumer: int, sequence: int, *, more: bool = False) -> None:
        """Many become one command.

        Args:
            more: others are going to follow.
        """
        self._acked[consumer].append((sequence, sequence))
        self._acks += 1
        if not more or self._acks >= ACKS_TOGETHER:
            self.hand_in_acks()
        elif self._acks == 1:
            self._acks_wait_until = self.now + ACK_WAIT_MS
            if not self._watches_acks:
                self._watches_acks = True
                self.call_at(self._acks_wait_until, self._look_at_acks)

    def hand_in_acks(self) -> None:
        """None follow."""
        if self._acked:
            self._acks_wait_until = 0
            self.wake()

    def _look_at_acks(self) -> None:
        self._watches_acks = bool(self._acked) and self.now < self._acks_wait_until
        if self._watches_acks:
            self.call_at(self._acks_wait_until, self._look_at_acks)

    def settle(
        self, consumer: int, sequence: int, verb: Settlement, *, delay_ms: int | None = None, reason: str = ""
    ) -> None:
        run = [(sequence, sequence)]
        self.ask(Settle(self.number, None, consumer, verb, run, delay_ms=delay_ms, reason=reason))

    def consumer(self, delivered: Delivered, ended: Ended) -> int:
        """A number for a Subscribe."""
        self._last_consumer += 1
        self._consumers[self._last_consumer] = delivered, ended
        return self._last_consumer

    def forget(self, consumer: int) -> None:
        """What is still handed out to it goes back unharmed."""
        self._consumers.pop(consumer, None)

    def call_at(self, instant: int, what: Callable[[], None]) -> None:
        """Not before the instant."""
        self._last_call += 1
        heappush(self._later, (instant, self._last_call, what))
        self.wake()

    def call_soon(self, what: Callable[[], None]) -> None:
        """In another turn of the loop."""
        self._soon.append(what)
        self.wake()

    def call_for_each(self, items: Iterable[T], what: Callable[[T], None]) -> None:
        """In other turns of the loop, some in each, however many there are."""
        row = deque(items)
        if row:
            self._rows.append((row, what))
            self.wake()

    @property
    def idle(self) -> bool:
        """Nothing is consumed in it, and nothing is left to do or to say."""
        return not (self._consumers or self.works or self._acked or self._later or self.unread)

    def end(self) -> None:
        """Nobody needs it any more."""
        self._parted = _told_before
        self._closing = True
        self.wake()

    def go_on_after(self, other: "InnerSession") -> None:
        """Take over what the other one has still to call."""
        self._soon.extend(other._soon)
        self._rows.extend(other._rows)
        for instant, _, what in sorted(other._later, key=lambda each: each[:2]):
            self.call_at(instant, what)
        self.wake()

    def wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._context.wake()

    # -- what the server says -----------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        """Nothing comes."""

    def commands(self) -> Sequence[Request]:
        self._woken = False
        self._call_some()
        if self._acked and (self._requests or self.now >= self._acks_wait_until):
            # Before what else is asked: that may be the end of a consumer.
            acked = self._acked.items()
            self._requests[:0] = [
                Settle(self.number, None, consumer, Settlement.ACK, sorted(runs)) for consumer, runs in acked
            ]
            self._acked.clear()
            self._acks = 0
        requests = self._requests[:COMMANDS_AT_ONCE]
        del self._requests[:COMMANDS_AT_ONCE]
        return requests

    def _call_some(self) -> None:
        left = CALLS_AT_ONCE
        while left and self._is_due:
            self._soon.append(heappop(self._later)[2])
            left -= 1
        left = CALLS_AT_ONCE
        for _ in range(min(len(self._soon), left)):
            left -= 1
            self._soon.popleft()()
        while left and self._rows:
            left -= 1
            row, what = self._rows[0]
            # Taken out before the call: if that fails, the session that follows goes on behind it.
            item = row.popleft()
            if not row:
                self._rows.popleft()
            what(item)

    @property
    def _is_due(self) -> bool:
        return bool(self._later) and self._later[0][0] <= self.now

    @property
    def unread(self) -> bool:
        return bool(self._requests or self._soon or self._rows) or self._is_due

    def authenticated(self, token: Any, principal: Principal) -> None:
        """It never asks."""

    def refused(self, token: Any, error: VibeMQError) -> None:
        if token is not None:
            token(error)

    def apply(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply) and effect.token is not None:
                effect.token(effect.result)
            elif isinstance(effect, ConsumerEnded):
                found = self._consumers.pop(effect.consumer, None)
                if found is not None:
                    found[1](effect.error)

    def deliver(self, deliver: Deliver, slices: Sequence[Slice]) -> None:
        found = self._consumers.get(deliver.consumer)
        if found is not None:
            found[0](deliver, slices)
            return
        runs = [piece.run for piece in slices]
        self.ask(Settle(self.number, None, deliver.consumer, Settlement.RELEASE, runs))

    @property
    def rows_at_once(self) -> int:
        return 30

    def data_to_send(self) -> bytes:
        return b""

    def tick(self, now: int) -> None:
        self.now = max(self.now, now)

    def next_deadline(self) -> int | None:
        return self._later[0][0] if self._later else None

    def shutdown(self, reason: str) -> None:
        self._end(reason)

    def fail(self, error: VibeMQError) -> None:
        self._closing = True
        self._end(str(error))

    def _end(self, reason: str) -> None:
        parted, self._parted = self._parted, _told_before
        parted(reason)

    @property
    def closing(self) -> bool:
        return self._closing

    @property
    def principal(self) -> Principal | None:
        return self._principal

    @property
    def client_name(self) -> str:
        return "eventmesh-http"


def _told_before(reason: str) -> None:
    """The end is told once."""
