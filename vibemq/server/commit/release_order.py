"""The order in which one session hears what the engine decided.

Every session has a release queue. Effects that may be released at once pass straight through an empty queue. Effects
that wait for their records to be appended or flushed stand in the queue as a hold. Whatever is decided later for the
same session queues behind it, so an immediate effect never overtakes an earlier one that waits. Other sessions do not
wait.

The price: on a connection that publishes to a strong and to a transient queue, the transient confirm waits for the
flush of the strong one before it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, TypeVar

from vibemq.model.effects import Deliver, Effect, Outcome, Reply

Item = TypeVar("Item")
Take = Callable[[Sequence[Effect]], None]


class Hold:
    """Effects of one session that wait; opened when they may be told."""

    __slots__ = ("effects", "open", "release_queue")

    def __init__(self, release_queue: "ReleaseQueue", effects: list[Effect], *, is_open: bool) -> None:
        self.release_queue = release_queue
        self.effects = effects
        self.open = is_open


class ReleaseQueue:
    """One session's queue of effects; `take` receives them in order."""

    __slots__ = ("_holds", "_left", "_take")

    def __init__(self, take: Take, left: Take | None = None) -> None:
        self._take = take
        self._left = left or told_to_nobody
        self._holds: deque[Hold] = deque()

    @property
    def waiting(self) -> bool:
        return bool(self._holds)

    def close(self) -> None:
        """The session is gone: what still opens here it does not hear, and it is not referred to."""
        self._take = self._left

    def take_back(self) -> list[Deliver]:
        """The deliveries that still wait here; they are not told any more."""
        deliveries: list[Deliver] = []
        for hold in self._holds:
            deliveries += [effect for effect in hold.effects if isinstance(effect, Deliver)]
            hold.effects = [effect for effect in hold.effects if not isinstance(effect, Deliver)]
        return deliveries

    def tell(self, effects: list[Effect]) -> None:
        if not self._holds:
            self._take(effects)
        elif self._holds[-1].open:
            self._holds[-1].effects += effects
        else:
            self._holds.append(Hold(self, effects, is_open=True))

    def hold(self, effects: list[Effect]) -> Hold:
        hold = Hold(self, effects, is_open=False)
        self._holds.append(hold)
        return hold

    def open(self, hold: Hold) -> None:
        hold.open = True
        while self._holds and self._holds[0].open:
            effects = self._holds.popleft().effects
            if effects:
                self._take(effects)


class Held(NamedTuple):
    """What an outcome has left in the release queues."""

    after_append: Sequence[Hold]
    gated: Sequence[Hold]


NOTHING_HELD = Held((), ())
LATE = 1 << 30
"""Behind the answers to all commands of a step."""


class EffectRouter:
    """The release queues of all sessions, by session number. Effects for sessions that are gone are dropped."""

    def __init__(self, left: Take | None = None) -> None:
        """`left`: receives, when it may be told, what was decided for sessions that have gone meanwhile."""
        self._left = left or told_to_nobody
        self._release_queues: dict[int, ReleaseQueue] = {}

    def connect(self, session: int, take: Take) -> ReleaseQueue:
        release_queue = self._release_queues[session] = ReleaseQueue(take, self._left)
        return release_queue

    def disconnect(self, session: int) -> None:
        release_queue = self._release_queues.pop(session, None)
        if release_queue is not None:
            release_queue.close()

    def accept(self, outcome: Outcome) -> Held:
        """Tell what may be told at once, and return the holds of what may not.

        Answers go in the order of their commands (`Reply.order`): within one outcome too, an answer that could be told
        keeps behind one that waits and was asked for before it. Deliveries line up last: the Subscribed that announces
        a consumer may wait while its first delivery does not.
        """
        if not (outcome.gated or outcome.after_append):
            self._tell(outcome.effects)
            return NOTHING_HELD
        if not outcome.mixed:
            if outcome.gated:
                return Held([], self.hold(outcome.gated))
            return Held(self.hold(outcome.after_append), [])
        marked = [(_rank(effect, -1), 0, effect) for effect in outcome.effects]
        marked += [(_rank(effect, LATE), 1, effect) for effect in outcome.after_append]
        marked += [(_rank(effect, LATE), 2, effect) for effect in outcome.gated]
        marked.sort(key=itemgetter(0))
        after_append: list[Hold] = []
        gated: list[Hold] = []
        for release_queue, entries in self._grouped(marked, lambda mark: mark[2].session):
            for moment, run in groupby(entries, itemgetter(1)):
                effects = [effect for _, _, effect in run]
                if moment == 0:
                    release_queue.tell(effects)
                else:
                    (after_append if moment == 1 else gated).append(release_queue.hold(effects))
        return Held(after_append, gated)

    def hold(self, effects: Sequence[Effect]) -> list[Hold]:
        """Line effects up behind everything that their sessions have been promised so far."""
        return [release_queue.hold(its_effects) for release_queue, its_effects in self._grouped(effects, _session_of)]

    def release(self, holds: Iterable[Hold]) -> None:
        for hold in holds:
            hold.release_queue.open(hold)

    def _tell(self, effects: Sequence[Effect]) -> None:
        for release_queue, its_effects in self._grouped(effects, _session_of):
            release_queue.tell(its_effects)

    def _grouped(
        self, items: Iterable[Item], session_of: Callable[[Item], int]
    ) -> list[tuple[ReleaseQueue, list[Item]]]:
        groups: dict[int, list[Item]] = {}
        for item in items:
            groups.setdefault(session_of(item), []).append(item)
        return [
            (release_queue, group)
            for session, group in groups.items()
            if (release_queue := self._release_queues.get(session)) is not None
        ]


def told_to_nobody(*ignored: object) -> None:
    """The callback of what is over: it lets go of what it would refer to."""


def _session_of(effect: Effect) -> int:
    return effect.session


def _rank(effect: Effect, unasked: int) -> int:
    """Place among the effects of one outcome."""
    if isinstance(effect, Deliver):
        return LATE + 1
    if isinstance(effect, Reply):
        return effect.order if effect.order >= 0 else unasked
    return LATE
