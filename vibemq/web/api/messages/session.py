"""The engine's session of one principal that works over HTTP, without a socket or a clock. Contract:
`vibemq.protocols.session.Session`; instead of bytes, requests come by `ask` and `fetch`.

A fetch is a subscription that comes and goes: it ends with the first messages that come, or when its time is over. What
it was given stays its consumer's own until it is settled or its ack timeout is over, whatever becomes of the request
that has asked for it: so the session lives on as long as anything is held.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from vibemq.errors import MessageTooLarge, RateLimited, ShuttingDown, VibeMQError
from vibemq.model.commands import Command, SetCapacity, Settle, Settlement, Subscribe, Unsubscribe
from vibemq.model.effects import ConsumerEnded, ConsumerLeft, Deliver, Effect, Reply, Subscribed
from vibemq.model.options import QueueOptions
from vibemq.model.rows import LARGE_ROW_BYTES, RowView
from vibemq.model.stored import Slice
from vibemq.protocols.session import Goodbye, OptionalVerbs, Principal, Request, SessionContext
from vibemq.web.api.messages.held import HeldLeases

HELD_MAX = 10_000
"""Messages that are fetched and not settled, of one principal."""
FETCH_BYTES = 1_048_576
"""Of one fetch; the last message may exceed it."""
IDLE_MS = 60_000
"""A session that holds nothing and is asked for nothing for so long ends."""
GRACE_MS = 2_000
"""The engine takes back what is overdue; the session knows of it so much later."""

_TOO_LARGE = f"too large for HTTP: its messages have at most {LARGE_ROW_BYTES:,} bytes"

Told = Callable[[Any], None]
"""Gets the engine's result, or an error of the family. Called once."""


@dataclass(slots=True)
class FetchedMessage:
    sequence: int
    published_at: int
    row: bytes
    attempts: int
    """Hand-outs so far, this one included."""
    failed: int


@dataclass(slots=True)
class FetchedBatch:
    """What has come of a fetch."""

    consumer: int
    queue: str
    group: str
    ack_timeout_ms: int
    messages: list[FetchedMessage]
    now: int
    """The instant of the session."""
    settled: bool = False
    """The queue takes a hand-out for a settlement: nothing is held."""


@dataclass(slots=True, eq=False)
class Fetch:
    """One that is under way."""

    consumer: int
    queue: str
    most: int
    ack_timeout_ms: int
    until: int
    """It waits no longer than that."""
    told: Told
    keeps_letters: bool
    group: str = ""
    subscribed: bool = False
    ending: bool = False
    done: bool = False
    unwanted: bool = False
    """Whoever asked has gone: what comes goes back unharmed."""
    messages: list[FetchedMessage] = field(default_factory=list)
    settled: bool = False
    refusal: VibeMQError | None = None
    """Why nothing comes, where nothing has."""


class HttpPeerSession(OptionalVerbs):
    """See `vibemq.protocols.session.Session` for what each verb means."""

    def __init__(
        self, context: SessionContext, principal: Principal, consumers: Callable[[int], Collection[int]]
    ) -> None:
        """`consumers`: see `vibemq.web.api.services.MessageServices`."""
        self._context = context
        self._principal = principal
        self._consumers = consumers
        self._now = context.now
        self._requests: list[Request] = []
        self._woken = False
        self._asked: set[_Asked] = set()
        """Not answered yet."""
        self._fetches: dict[int, Fetch] = {}
        self._held = HeldLeases()
        self._last_consumer = 0
        self._idle_since = context.now
        self._farewell: VibeMQError | None = None
        """Why nothing is taken any more."""
        self._closing = False

    # -- what requests ask for --------------------------------------------------------------------------------------

    @property
    def number(self) -> int:
        return self._context.session

    @property
    def now(self) -> int:
        return self._now

    @property
    def usable(self) -> bool:
        return self._farewell is None and not self._closing

    @property
    def held(self) -> int:
        """Messages that are fetched and not known to be settled."""
        return self._held.count

    @property
    def idle(self) -> bool:
        return not (self._asked or self._fetches or self._held or self._requests)

    @property
    def queue_defaults(self) -> QueueOptions:
        """Of a queue that is created because somebody publishes to it or fetches from it."""
        return self._context.queue_defaults

    def new_id(self) -> str:
        return self._context.new_id()

    def ask(self, command: Callable[[int, Any], Command], told: Told) -> None:
        """Have `command(session, token)` decided."""
        asked = _Asked(told)
        self._asked.add(asked)
        self._say(command(self.number, partial(self._answered, asked)))

    def fetch(
        self,
        queue: str,
        group: str | None,
        most: int,
        *,
        wait_ms: int,
        ack_timeout_ms: int,
        keeps_letters: bool,
        now: int,
        told: Told,
    ) -> Fetch | None:
        """`told` gets a `FetchedBatch`. None: it was refused, and told so.

        Args:
            keeps_letters: what the session turns down is not lost.
        """
        pending = sum(fetch.most for fetch in self._fetches.values())
        if self.held + pending + most > HELD_MAX:
            self._forget_gone()
        if self.held + pending + most > HELD_MAX:
            told(
                RateLimited(
                    f"{self.held:,} messages are fetched and not settled, and {pending:,} are being waited for; "
                    f"{HELD_MAX:,} are the most of one user: settle some first"
                )
            )
            return None
        self._last_consumer += 1
        fetch = Fetch(
            self._last_consumer, queue, most, ack_timeout_ms, max(now, self._now) + wait_ms, told, keeps_letters
        )
        self._fetches[fetch.consumer] = fetch
        self._say(
            Subscribe(
                self.number,
                partial(self._subscribed, fetch),
                fetch.consumer,
                queue,
                group=group,
                capacity_messages=most,
                capacity_bytes=FETCH_BYTES,
                credit=most,
                ack_timeout_ms=ack_timeout_ms,
            )
        )
        return fetch

    def _forget_gone(self) -> None:
        """What went with its queue or group: of a fetch that is over, nobody says so."""
        self._held.keep(set(self._consumers(self.number)))

    def abandon(self, fetch: Fetch) -> None:
        """Nobody waits for it any more."""
        fetch.unwanted = True
        self._end(fetch)

    def give_back(self, batch: FetchedBatch) -> None:
        """What was fetched could not be handed on: others get it, and no attempt is counted."""
        if batch.messages and not batch.settled and self.usable:
            runs = [(message.sequence, message.sequence) for message in batch.messages]
            told = partial(self._given_back, batch.consumer)
            self._say(Settle(self.number, told, batch.consumer, Settlement.RELEASE, runs))

    def settled(self, consumer: int, count: int) -> None:
        """So many messages of the consumer are not held any more."""
        self._held.settle(consumer, count)

    def extended(self, consumer: int, ack_timeout_ms: int | None) -> int:
        """Some messages of the consumer may be held for so long from now on (None: as long as at first). When their
        time is over; 0 = not known."""
        fetched_for_ms = self._held.ack_timeout_ms(consumer)
        if fetched_for_ms is None:
            return 0
        until = self._now + (fetched_for_ms if ack_timeout_ms is None else ack_timeout_ms)
        self._held.extend(consumer, until + GRACE_MS)
        return until

    def leave(self) -> None:
        """End it, if it is idle."""
        if self.idle and self.usable:
            self._farewell = ShuttingDown("the session has ended because it was idle; ask again")
            self._say(Goodbye())

    def _say(self, request: Request) -> None:
        self._requests.append(request)
        self._idle_since = self._now
        if not self._woken:
            self._woken = True
            self._context.wake()

    # -- what the engine says ---------------------------------------------------------------------------------------

    def _answered(self, asked: "_Asked", result: Any) -> None:
        self._asked.discard(asked)
        asked.told(result)

    def _subscribed(self, fetch: Fetch, result: Any) -> None:
        if not isinstance(result, Subscribed):
            self._finish(fetch, result)
            return
        fetch.group, fetch.subscribed = result.group, True
        if fetch.ending:
            fetch.ending = False
            self._end(fetch)
        elif self._now >= fetch.until:
            self._end(fetch)

    def _end(self, fetch: Fetch) -> None:
        """Have nothing more handed out to it; what is on its way comes before the answer."""
        if fetch.ending or fetch.done:
            return
        fetch.ending = True
        if fetch.subscribed:
            self._say(Unsubscribe(self.number, partial(self._finish, fetch), fetch.consumer))

    def _finish(self, fetch: Fetch, result: Any) -> None:
        if fetch.done:
            return
        fetch.done = True
        self._fetches.pop(fetch.consumer, None)
        refusal = result if isinstance(result, VibeMQError) else fetch.refusal
        if refusal is not None and (refusal is result or not fetch.messages):
            fetch.told(refusal)
            return
        if fetch.messages and not fetch.settled:
            until = self._now + fetch.ack_timeout_ms + GRACE_MS
            self._held.add(fetch.consumer, len(fetch.messages), fetch.ack_timeout_ms, until)
        batch = FetchedBatch(
            fetch.consumer, fetch.queue, fetch.group, fetch.ack_timeout_ms, fetch.messages, self._now, fetch.settled
        )
        if fetch.unwanted:
            self.give_back(batch)
        fetch.told(batch)

    def _given_back(self, consumer: int, result: Any) -> None:
        self._held.drop(consumer)

    def apply(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply) and effect.token is not None:
                effect.token(effect.result)
            elif isinstance(effect, ConsumerLeft):
                self._held.drop(effect.consumer)
            elif isinstance(effect, ConsumerEnded):
                self._held.drop(effect.consumer)
                fetch = self._fetches.get(effect.consumer)
                if fetch is not None:
                    self._finish(fetch, effect.error)

    def deliver(self, deliver: Deliver, slices: Sequence[Slice]) -> None:
        fetch = self._fetches.get(deliver.consumer)
        acquired, failed = deliver.acquired or {}, deliver.failed or {}
        for piece in slices:
            if fetch is None:
                # The queue is gone, or the subscription was taken away: so are these.
                self._say(Settle(self.number, None, deliver.consumer, Settlement.RELEASE, [piece.run]))
                continue
            if _is_too_large(piece) and not fetch.unwanted:
                self._turn_down(fetch, piece, deliver)
                continue
            fetch.messages += [
                FetchedMessage(sequence, piece.published_at, row, acquired.get(sequence, 1), failed.get(sequence, 0))
                for sequence, row in enumerate(piece.rows, piece.first_sequence)
            ]
        if fetch is not None and fetch.messages:
            fetch.settled = fetch.settled or deliver.settled
            self._end(fetch)

    def _turn_down(self, fetch: Fetch, piece: Slice, deliver: Deliver) -> None:
        """The fetch may have another one for it, but where the message would be dropped: it stays for others."""
        if not deliver.settled and not fetch.keeps_letters:
            # First the end: else it would come again.
            self._end(fetch)
            self._say(Settle(self.number, None, fetch.consumer, Settlement.RELEASE, [piece.run]))
            fetch.refusal = MessageTooLarge(
                f"message {piece.first_sequence} of queue {fetch.queue!r} has more than {LARGE_ROW_BYTES:,} bytes, the "
                "most over HTTP, and the queue keeps no dead letters; fetch it with a client of the native protocol"
            )
            return
        if not deliver.settled:
            settle = Settle(self.number, None, fetch.consumer, Settlement.REJECT, [piece.run], reason=_TOO_LARGE)
            self._say(settle)
        if not fetch.ending:
            self._say(SetCapacity(self.number, None, fetch.consumer, fetch.most, FETCH_BYTES, add_credit=1))

    @property
    def rows_at_once(self) -> int:
        return 1_000

    def commands(self) -> Sequence[Request]:
        self._woken = False
        requests, self._requests = self._requests, []
        return requests

    @property
    def unread(self) -> bool:
        return False

    def refused(self, token: Any, error: VibeMQError) -> None:
        if token is not None:
            token(error)

    def authenticated(self, token: Any, principal: Principal) -> None:
        """It asks for no login: the request's was checked."""

    def receive_data(self, data: bytes) -> None:
        """Nothing comes in bytes."""

    def data_to_send(self) -> bytes:
        return b""

    # -- time -------------------------------------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        self._now = max(self._now, now)
        for fetch in [fetch for fetch in self._fetches.values() if not fetch.ending and fetch.until <= self._now]:
            self._end(fetch)
        self._held.expire(self._now)
        if not self.idle:
            self._idle_since = self._now
        elif self._now >= self._idle_since + IDLE_MS:
            self.leave()

    def next_deadline(self) -> int | None:
        if self._closing:
            return None
        if self._requests:
            return self._now
        deadlines = [fetch.until for fetch in self._fetches.values() if not fetch.ending]
        if (end := self._held.next_end()) is not None:
            deadlines.append(end)
        if self.idle and self.usable:
            deadlines.append(self._idle_since + IDLE_MS)
        return min(deadlines, default=None)

    # -- the end ----------------------------------------------------------------------------------------------------

    def shutdown(self, reason: str) -> None:
        text = "the broker is stopping" if reason == "server_shutdown" else reason
        self._let_go(ShuttingDown(f"{text}; whether the request was carried out is not known, ask again"))

    def fail(self, error: VibeMQError) -> None:
        self._let_go(error)
        self._closing = True

    def _let_go(self, error: VibeMQError) -> None:
        """Nobody waits in vain."""
        self._farewell = self._farewell or error
        for fetch in list(self._fetches.values()):
            self._finish(fetch, error)
        asked, self._asked = self._asked, set()
        for one in asked:
            one.told(error)

    @property
    def closing(self) -> bool:
        return self._closing

    @property
    def principal(self) -> Principal | None:
        return self._principal

    @property
    def client_name(self) -> str:
        return "HTTP API"


class _Asked:
    """A request that waits for its answer."""

    __slots__ = ("told",)

    def __init__(self, told: Told) -> None:
        self.told = told


def _is_too_large(piece: Slice) -> bool:
    """Its body fits into no answer. Whoever got it without would take it for empty, and settle it."""
    rows = piece.rows
    return rows.count == 1 and rows.size > LARGE_ROW_BYTES and RowView(rows.data).payload_size > LARGE_ROW_BYTES
