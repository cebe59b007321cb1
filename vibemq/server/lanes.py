"""The order in which one session hears what the engine decided.

Every session has a lane. What may be told at once passes straight through an empty lane. What waits for its records
to be kept (`gated`) stands in the lane as a hold; whatever is decided later for the same session queues behind it, so
an immediate effect never overtakes an earlier gated one. Other sessions do not wait.

The price: on a connection that publishes to a strong and to a transient queue, the transient confirm waits for the
flush of the strong one before it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from vibemq.model.effects import Deliver, Effect, Outcome

Take = Callable[[Sequence[Effect]], None]


class Hold:
    """Effects of one session that wait; opened when they may be told."""

    __slots__ = ("effects", "lane", "open")

    def __init__(self, lane: "Lane", effects: list[Effect], *, is_open: bool) -> None:
        self.lane = lane
        self.effects = effects
        self.open = is_open


class Lane:
    """One session's queue of effects; `take` receives them in order."""

    __slots__ = ("_holds", "_take")

    def __init__(self, take: Take) -> None:
        self._take = take
        self._holds: deque[Hold] = deque()

    @property
    def waiting(self) -> bool:
        return bool(self._holds)

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


class Switchboard:
    """The lanes of all sessions, by session number. Effects for sessions that are gone are dropped."""

    def __init__(self) -> None:
        self._lanes: dict[int, Lane] = {}

    def connect(self, session: int, take: Take) -> Lane:
        lane = self._lanes[session] = Lane(take)
        return lane

    def disconnect(self, session: int) -> None:
        self._lanes.pop(session, None)

    def accept(self, outcome: Outcome) -> list[Hold]:
        """Tell what may be told at once, and return the holds of what may not.

        Deliveries of the same outcome line up behind the holds: the Subscribed that announces a consumer may be
        gated while its first delivery is not.
        """
        if not outcome.gated:
            self._tell(outcome.effects)
            return []
        self._tell([effect for effect in outcome.effects if type(effect) is not Deliver])
        holds = [lane.hold(effects) for lane, effects in self._by_lane(outcome.gated)]
        self._tell([effect for effect in outcome.effects if type(effect) is Deliver])
        return holds

    def release(self, holds: Iterable[Hold]) -> None:
        for hold in holds:
            hold.lane.open(hold)

    def drop(self, holds: Iterable[Hold]) -> None:
        """The records were refused: nobody hears of these effects, what stands behind them moves up."""
        for hold in holds:
            hold.effects = []
            hold.lane.open(hold)

    def _tell(self, effects: Sequence[Effect]) -> None:
        for lane, its_effects in self._by_lane(effects):
            lane.tell(its_effects)

    def _by_lane(self, effects: Sequence[Effect]) -> list[tuple[Lane, list[Effect]]]:
        groups: dict[int, list[Effect]] = {}
        for effect in effects:
            groups.setdefault(effect.session, []).append(effect)
        return [(lane, group) for session, group in groups.items() if (lane := self._lanes.get(session)) is not None]
