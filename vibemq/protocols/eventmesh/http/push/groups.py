"""Messages of one group and topic on their way to its subscribers' URLs.

Messages wait in one line for the whole group, and a URL takes the next one when it is free: so one that is slow or
hangs holds what it has, and no more. Each message has one URL at a time; after a failure another one is tried first.
How often, and what then, is for the queue to say: an answer becomes an acknowledgement, a retry or a rejection.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from vibemq.errors import InvalidMessage, OutboundError, OutboundRefused, VibeMQError
from vibemq.model.commands import SetCapacity, Settlement
from vibemq.model.effects import Deliver
from vibemq.model.stored import Slice
from vibemq.protocols.eventmesh.http.codes import PushOutcome
from vibemq.protocols.eventmesh.http.push.answers import PushVerdict, verdict_of
from vibemq.protocols.eventmesh.http.push.inner_session import InnerSession
from vibemq.protocols.eventmesh.http.push.lanes import UrlLane, UrlLanes
from vibemq.protocols.eventmesh.http.push.requests import push_body, push_headers
from vibemq.protocols.eventmesh.http.push.slots import PushSlot, PushSlots
from vibemq.protocols.eventmesh.http.settings import EventMeshHttpSettings
from vibemq.protocols.session import HttpCalls, Services

WINDOW_MESSAGES = 64
"""Messages of a group that are in the line or under way."""
WINDOW_BYTES = 1 << 20
AROUND_BYTES = 65_536
"""Of a row, around a message of the largest size."""
LAST_TRIES_MAX = 1_024
SLOT_MS = 100
"""So long one URL has a slot, if a push takes no longer."""
PASSED_MAX = 256
"""Messages of the line that are looked at for a URL."""
BEGUN_AT_ONCE = 25
"""Pushes, or wishes for a slot, in one turn of the loop."""
PUSHES_MAX = 48
"""Under way together; other plug-ins may call others beside them."""


@dataclass(frozen=True, slots=True)
class PushTools:
    """What all groups share."""

    services: Services
    calls: HttpCalls
    settings: EventMeshHttpSettings
    slots: PushSlots


@dataclass(slots=True)
class _Line:
    sequence: int
    row: bytes


class PushGroup:
    """`consumer` is its number in the session."""

    def __init__(self, topic: str, session: InnerSession, tools: PushTools) -> None:
        self.topic = topic
        self.consumer = 0
        self.lanes = UrlLanes(tools.settings.push_concurrency)
        self.awaited: list[Callable[[VibeMQError | None], None]] = []
        """Who wants to know when it consumes, or why it does not; empty once it does."""
        self.session = session
        self._user = session.principal.name if session.principal is not None else ""
        self._tools = tools
        self._wishing: dict[UrlLane, None] = {}
        self._line: deque[_Line] = deque()
        self._line_bytes = 0
        self._keeps = False
        """What is handed out does not go back: the queue wants no acknowledgements, and forgets it at once."""
        self._full = False
        """Of such a queue: nothing is handed out until the line is shorter."""
        self._last_tries: dict[int, str] = {}
        """The URL at which a message has failed, by sequence."""
        self._goes_on = False
        """In another turn of the loop."""
        self._ended = False
        self._paused_until = 0
        """No URL can be called before this instant, and nothing is handed out; 0: at least one can."""

    @property
    def _now(self) -> int:
        """In the middle of a push: the session learns the time in its own turns alone."""
        return self._tools.services.now

    def add(self, url: str, *, sync: bool) -> None:
        self.lanes.add(url).sync = sync
        if self._paused_until and self.lanes.has_awake(self._now):
            # A new URL does not wait for those that rest.
            self._resume(self._paused_until)
        else:
            self.go_on()

    def remove(self, url: str) -> None:
        """What is under way to it is still waited for."""
        lane = self.lanes.remove(url)
        if lane is not None:
            self._withdraw(lane)
        self.go_on()

    def end(self) -> None:
        """Nobody is left: what waits goes back unharmed, and what is under way is still settled."""
        self._ended = True
        self.session.call_for_each(list(self._wishing), self._withdraw)
        self._give_back()
        self.session.forget(self.consumer)

    def deliver(self, deliver: Deliver, slices: Sequence[Slice]) -> None:
        self._keeps = deliver.settled
        most = self.session.context.limits.body_bytes_max
        for piece in slices:
            if piece.rows.count == 1 and piece.rows.size > most + AROUND_BYTES:
                self._turn_down(piece.first_sequence, most)
                continue
            for sequence, row in enumerate(piece.rows, piece.first_sequence):
                self._line.append(_Line(sequence, row))
                self._line_bytes += len(row)
        if self._keeps and not self._full and not self._line_has_room(1):
            self._full = True
            self._allow(0, 0)
        self.go_on()

    def _turn_down(self, sequence: int, most: int) -> None:
        """What is larger than a message of this protocol: it would be encoded in one piece."""
        if not self._keeps:
            reason = f"too large for EventMesh: its messages have at most {most:,} bytes"
            self.session.settle(self.consumer, sequence, Settlement.REJECT, reason=reason)

    def _line_has_room(self, share: int) -> bool:
        """Less than the `share`-th part of the window waits."""
        return len(self._line) * share < WINDOW_MESSAGES and self._line_bytes * share < WINDOW_BYTES

    def _take(self, position: int) -> _Line:
        """Out of the line."""
        message = self._line[position]
        del self._line[position]
        self._line_bytes -= len(message.row)
        if self._full and self._line_has_room(2):
            self._full = False
            if not self._paused_until:
                self._allow(WINDOW_MESSAGES, WINDOW_BYTES)
        return message

    def _give_back(self) -> None:
        while self._line:
            self.session.settle(self.consumer, self._line.popleft().sequence, Settlement.RELEASE)
        self._line_bytes = 0

    def _allow(self, messages: int, size: int) -> None:
        """What the queue may hand out."""
        self.session.ask(SetCapacity(self.session.number, None, self.consumer, messages, size))

    def go_on(self) -> None:
        """Give what waits to the URLs that are free, of very many some in each turn of the loop. A URL that waits for a
        slot when nothing is left is called in vain."""
        for _ in range(1 if self._goes_on else BEGUN_AT_ONCE):
            if not self._has_more:
                return
            found = self._next_pushed()
            if found is None:
                return
            self._begin(*found)
        if not self._goes_on:
            self._goes_on = True
            self.session.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._goes_on = False
        self.go_on()

    def _next_pushed(self) -> tuple[UrlLane, int] | None:
        """A URL that is free, and the place in the line of its message: one that has failed at this URL lets others
        pass while it waits for another URL."""
        now = self.session.now
        if not self.lanes.has_awake(now):
            self._pause()
            return None
        for position, message in enumerate(self._line):
            lane = self.lanes.next_free(now, self._last_tries.get(message.sequence))
            if lane is not None:
                return lane, position
            if not self.lanes.has_free or position >= PASSED_MAX:
                break
        return None

    def _pause(self) -> None:
        """What waits goes back to the queue, and comes again in its order."""
        session = self.session
        if self._paused_until or not self.lanes:
            return
        until = self._paused_until = self.lanes.next_awake_at() + 1
        self._allow(0, 0)
        if not self._keeps:
            self._give_back()
        session.call_at(until, partial(self._resume, until))

    def _resume(self, until: int) -> None:
        """`until`: of the pause that ends; another one goes on."""
        if self._ended or self._paused_until != until:
            return
        self._paused_until = 0
        if not self._full:
            self._allow(WINDOW_MESSAGES, WINDOW_BYTES)
        self.go_on()

    def _begin(self, lane: UrlLane, position: int) -> None:
        """The message at this place in the line, or the wish of the URL for a slot."""
        slot = PushSlot(self._user, lane.host, lane.standing(self.session.now), partial(self._slot_came, lane))
        if not self._tools.slots.take(slot):
            lane.wish = slot
            self._wishing[lane] = None
            self._tools.slots.wait(slot)
            self.lanes.changed(lane)
            return
        lane.busy += 1
        self.lanes.changed(lane)
        first = self._take(position)
        self.session.works += 1
        self._tools.services.see_through(self._work, lane, first, slot)

    def _slot_came(self, lane: UrlLane) -> None:
        lane.wish = None
        self._wishing.pop(lane, None)
        self.lanes.changed(lane)
        self.go_on()

    def _withdraw(self, lane: UrlLane) -> None:
        """It has nothing to push: a slot that comes free is for others."""
        if lane.wish is not None:
            self._tools.slots.withdraw(lane.wish)
            lane.wish = None
        self._wishing.pop(lane, None)

    async def _work(self, lane: UrlLane, message: _Line | None, slot: PushSlot) -> None:
        """Push one message after the other, as long as there are some and the URL answers."""
        session = self.session
        try:
            while message is not None:
                async with self._tools.services.outbound:
                    since = self._now
                    if self._tools.services.stopping:
                        return
                    while message is not None and self._now - since < SLOT_MS:
                        answers = await self._push(lane, message)
                        message = self._next(lane) if answers else None
        except Exception as error:
            if message is not None:
                reason = f"the push could not be made: {type(error).__name__}"
                session.settle(self.consumer, message.sequence, Settlement.RETRY, reason=reason)
                message = None
            raise
        finally:
            session.works -= 1
            lane.busy -= 1
            self.lanes.changed(lane)
            if message is not None:
                session.settle(self.consumer, message.sequence, Settlement.RELEASE)
            self._tools.slots.give(slot)
            self.go_on()
            if not self._has_more:
                session.hand_in_acks()

    @property
    def _has_more(self) -> bool:
        """Something waits, and is going to be pushed."""
        return bool(self._line) and not (self._ended or self._tools.services.stopping)

    def _next(self, lane: UrlLane) -> _Line | None:
        """In turn: where the group has other URLs, one of them may be free."""
        if not self._has_more:
            return None
        if len(self.lanes) != 1 or lane not in self.lanes:
            return None
        return self._take(0)

    async def _push(self, lane: UrlLane, message: _Line) -> bool:
        """Whether the URL answers."""
        tools = self._tools
        try:
            body = push_body(self.topic, message.row, message.sequence, self._now, asks=lane.sync)
        except InvalidMessage as error:
            # Of another protocol's publisher: no URL can be told of it.
            self._settle(lane, message.sequence, PushVerdict(PushOutcome.GIVE_UP, str(error)))
            return True
        try:
            headers = push_headers(tools.settings, sync=lane.sync)
            answer = await tools.calls.post(lane.url, headers, body, owner=self._user)
        except OutboundError as error:
            now = self._now
            rest_ms = self.lanes.failed(lane, now)
            delay_ms = 0 if self.lanes.has_awake(now) else rest_ms
            reason = str(error) if isinstance(error, OutboundRefused) else f"{lane.url[:200]}: {error}"
            self._settle(lane, message.sequence, PushVerdict(PushOutcome.RETRY, reason, delay_ms))
            return False
        self.lanes.worked(lane, self._now)
        self._settle(lane, message.sequence, verdict_of(answer, tools.settings.push_retry_after_max_ms))
        return True

    def _settle(self, lane: UrlLane, sequence: int, verdict: PushVerdict) -> None:
        session, consumer = self.session, self.consumer
        if verdict.outcome is PushOutcome.RETRY:
            if len(self._last_tries) >= LAST_TRIES_MAX:
                del self._last_tries[next(iter(self._last_tries))]
            self._last_tries[sequence] = lane.url
            session.settle(consumer, sequence, Settlement.RETRY, delay_ms=verdict.delay_ms, reason=verdict.reason)
            return
        self._last_tries.pop(sequence, None)
        if verdict.outcome is PushOutcome.DONE:
            session.acknowledge(consumer, sequence, more=self._has_more)
        else:
            session.settle(consumer, sequence, Settlement.REJECT, reason=verdict.reason)
