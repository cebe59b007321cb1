"""Where the messages of a group go while some of its consumers have selectors."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count

from vibemq.engine.queue.consumer import Consumer, Rotation
from vibemq.engine.queue.routing.line import Line
from vibemq.engine.queue.routing.places import QueuePlaces
from vibemq.engine.queue.routing.sifted import Sifted
from vibemq.errors import InvalidOptions
from vibemq.model.runs import Run, without
from vibemq.model.selector import Selector

SELECTORS_MAX = 512
"""Different ones of a group at a time."""
ASKED_MESSAGES = 512
"""Messages that are looked at together: an answer in which every second one matches takes about 3 ms."""
ASKED_RUNS = 256
ANSWERS_MAX = 2_048
"""To one question: with many lines fewer messages are looked at together."""
KNOWN_RUNS_MAX = 512
"""With more stretches a line that is full is told nothing more: it is asked again when it has room."""
BEHIND_RUNS_MAX = 256
"""Stretches that a line has yet to be asked about; with more of them it is asked about what is between them, too."""

Matched = tuple[int, int, int]
"""First and last sequence, and the bits of the selectors that match them."""


@dataclass(slots=True)
class Question:
    """What the server is asked about, and has not answered yet."""

    number: int
    level: int
    stretches: list[Run]
    runs: list[Run]
    """The messages in them, as they were."""
    lines: list[Line]
    """All that there were, those with a selector first."""
    late: Line | None
    """The line for which it is asked, of messages that others were asked about before; None: they were fresh."""
    unseen: QueuePlaces
    """The stretches."""
    where: Selector | None
    """The filter of the group, which is asked once, about what is fresh."""

    @property
    def selectors(self) -> tuple[Selector, ...]:
        """Those of the lines that have one, and the filter."""
        found = [line.selector for line in self.lines if line.selector is not None]
        return (*found, self.where) if self.where is not None else tuple(found)


@dataclass(slots=True)
class LookedAt:
    """What an answer has brought."""

    unwanted: list[Run]
    """What is for nobody."""
    cost: int
    """How much there was to be remembered, in stretches."""


class Routes:
    """A message goes to the lines of the highest priority among those that match it, and to no other: when their
    consumers are full, it waits for them.

    Everything that is known here can be found out again, so it is forgotten where it would be too much. A line with
    room always goes on: it is asked about the next messages that it has not been asked about, whatever is known of
    others.
    """

    __slots__ = (
        "_asked_until",
        "_by_priority",
        "_late_turns",
        "_meet",
        "lines",
        "question",
        "sifted",
        "where",
    )

    def __init__(self, sifted: Sifted) -> None:
        self.sifted = sifted
        self.lines: dict[str, Line] = {}
        """By the text of the selector, "" without one; in the order in which they came."""
        self.where: Selector | None = None
        """The filter of the group: what it does not match is settled. Everything else is known to match it, but what
        nobody has looked at yet."""
        self.question: Question | None = None
        self._asked_until: dict[int, int] = {}
        """Of each level, the last one that somebody was asked about."""
        self._late_turns = 0
        self._by_priority: list[list[Line]] | None = None
        self._meet: bool | None = None
        """Whether sessions meet; None: it is not known."""

    # -- consumers ----------------------------------------------------------------------------------------------------

    def take_over(self, by_priority: dict[int, Rotation], turn: int) -> None:
        """Those who are there already, and have no selector."""
        if by_priority:
            line = self._open(None)
            line.take_over(by_priority, turn)
            self._forget_order()

    def give_back(self) -> tuple[dict[int, Rotation], int]:
        """The same, when nobody else is there."""
        line = self.lines.get("")
        return (line.by_priority, line.turn) if line is not None else ({}, 0)

    def join(self, consumer: Consumer) -> None:
        line = self.lines.get(_text(consumer.selector))
        if line is None:
            line = self._open(consumer.selector)
        line.join(consumer)
        self._forget_order()

    def _open(self, selector: Selector | None) -> Line:
        taken = {line.key for line in self.lines.values()}
        line = self.lines[_text(selector)] = Line(selector, next(key for key in count(1) if key not in taken))
        self._look_again(line)
        return line

    def retire(self, consumer: Consumer) -> None:
        text = _text(consumer.selector)
        line = self.lines[text]
        line.retire(consumer)
        if not line.by_priority:
            del self.lines[text]
        self._forget_order()

    def _forget_order(self) -> None:
        """Consumers have come or gone: what is known of all of them is found out again when it is asked for."""
        self._by_priority = self._meet = None

    @property
    def sessions_meet(self) -> bool:
        """Whether some session has several consumers here."""
        if self._meet is None:
            consumers = [consumer for line in self.lines.values() for consumer in line.consumers()]
            self._meet = len({consumer.session.number for consumer in consumers}) < len(consumers)
        return self._meet

    def offer(self, consumer: Consumer) -> None:
        self.lines[_text(consumer.selector)].offer(consumer)

    @property
    def active(self) -> int:
        return sum(line.active for line in self.lines.values())

    @property
    def needed(self) -> bool:
        """Whether somebody still has a selector, or the group a filter."""
        return self.where is not None or any(text for text in self.lines)

    def filter_by(self, where: Selector | None) -> None:
        """Another filter, or none. An answer that is on its way counts no more: it was about the one before."""
        self.where = where
        self._drop_question()
        if where is not None:
            self.sifted.look_again()

    def look_anew(self) -> None:
        """Everything is fresh. What is known stays known."""
        self._drop_question()
        self.sifted.look_again()

    def _drop_question(self) -> None:
        question = self.question
        self.question = None
        if question is not None:
            asked = self.sifted.fresh if question.late is None else question.late.behind
            asked.add_all(question.level, question.stretches)

    def check_room_for(self, selector: Selector | None) -> None:
        """Raises InvalidOptions when there are too many different ones."""
        if _text(selector) not in self.lines and len(self.lines) >= SELECTORS_MAX:
            raise InvalidOptions(
                f"the group has consumers with {len(self.lines)} different selectors, and {SELECTORS_MAX} is the most "
                "of one group; let consumers share selectors, or use other groups or queues"
            )

    # -- priorities ---------------------------------------------------------------------------------------------------

    def by_priority(self) -> list[list[Line]]:
        """The lines of each priority, the highest first."""
        if self._by_priority is None:
            self._by_priority = self._ordered()
        return self._by_priority

    def _ordered(self) -> list[list[Line]]:
        """After lines have come or gone, or their priorities changed: what is known is made to hold for the new order.
        Once for any number of changes, before the next look at what is known."""
        levels: dict[int, list[Line]] = {}
        for line in self.lines.values():
            levels.setdefault(line.priority, []).append(line)
        by_priority = [levels[priority] for priority in sorted(levels, reverse=True)]
        above: frozenset[Line] = frozenset()
        for lines in by_priority:
            for line in lines:
                before, line.above = line.above, above
                if before is above or before == above:
                    continue
                if above - before:
                    _doubt(line)
                if before - above:
                    self._look_again(line)
            above = above.union(lines)
        return by_priority

    def _look_again(self, line: Line) -> None:
        """Whatever others were asked about may be the line's."""
        for level, last in self._asked_until.items():
            line.behind.add(level, 0, last)

    # -- hand-out -----------------------------------------------------------------------------------------------------

    def candidates(self, line: Line, most: int) -> tuple[list[Run], int]:
        """As `Sifted.candidates`."""
        unseen = [self.sifted.fresh, line.behind]
        question = self.question
        if question is not None and (question.late is None or question.late is line):
            unseen.append(question.unseen)
        return self.sifted.candidates(line.known, unseen, most)

    # -- questions ----------------------------------------------------------------------------------------------------

    def ask(self, number: int) -> Question | None:
        """What has to be looked at next, so that consumers with room get something, or nothing waits that the filter
        does not match; None when nothing has, or a question is open. `number`: of the question, which no other of any
        group has."""
        if self.question is not None:
            return None
        # What is known of the lines has to hold.
        self.by_priority()
        fresh = self.sifted.has_some_of(self.sifted.fresh)
        hungry = [line for line in self.lines.values() if self._is_hungry(line, fresh=fresh)]
        if not hungry and self.where is None:
            return None
        # Those that are behind, one after the other, and what is fresh have their turns.
        turns = [line for line in hungry if line.behind]
        self._late_turns += 1
        at = self._late_turns // 2 % len(turns) if turns else 0
        late: list[Line | None] = [*turns[at:], *turns[:at]]
        for line in [*late, None] if self._late_turns % 2 else [None, *late]:
            if self._ask(number, line):
                break
        return self.question

    def _is_hungry(self, line: Line, *, fresh: bool) -> bool:
        # Whoever has no room may stand in line for it, and be called: only when there is something to look at, or
        # those who share their room would call each other for ever.
        unseen = fresh or self.sifted.has_some_of(line.behind)
        return unseen and not self.candidates(line, 1)[0] and line.has_room()

    def _ask(self, number: int, late: Line | None) -> bool:
        unseen = self.sifted.fresh if late is None else late.behind
        share = ANSWERS_MAX // (len(self.lines) + 1)
        level, stretches, runs = self.sifted.next_unseen(unseen, min(ASKED_MESSAGES, share), min(ASKED_RUNS, share))
        if not runs:
            return False
        unseen.remove(level, stretches)
        asked = QueuePlaces()
        asked.add_all(level, stretches)
        lines = sorted(self.lines.values(), key=lambda line: line.selector is None)
        where = self.where if late is None else None
        self.question = Question(number, level, stretches, runs, lines, late, asked, where)
        self._asked_until[level] = max(self._asked_until.get(level, 0), stretches[-1][1])
        return True

    def unfit(self, number: int, matched: Iterable[Matched]) -> list[Run]:
        """What of the messages in question the filter does not match. To be called before `answer`."""
        question = self.question
        if question is None or question.number != number or question.where is None:
            return []
        bit = 1 << len(question.selectors) - 1
        return without(question.runs, sorted((first, last) for first, last, bits in matched if bits & bit))

    def answer(self, number: int, matched: Iterable[Matched]) -> LookedAt | None:
        """The bits of `matched` are the places of those lines of the question that have selectors. None for an answer
        to no question."""
        question = self.question
        if question is None or question.number != number:
            return None
        self.question = None
        by_priority = self.by_priority()
        there = [line if self.lines.get(_text(line.selector)) is line else None for line in question.lines]
        were_asked = set(there)
        unasked = [line for line in self.lines.values() if line not in were_asked]
        learners = self._learners(question, there, unasked)
        places = {line: place for place, line in enumerate(there) if line is not None}
        masks = [sum(1 << places[line] for line in lines if line in places) for lines in by_priority]
        everything = 1 << len(there) - 1 if there and there[-1] is not None and there[-1].selector is None else 0
        asked = (1 << sum(line.selector is not None for line in question.lines)) - 1
        found: dict[int, list[Run]] = {}
        wanted: list[Run] = []
        cost = 0
        for first, last, bits in sorted(matched):
            targets = next((both for mask in masks if (both := (bits & asked | everything) & mask)), 0)
            if not targets:
                continue
            wanted.append((first, last))
            targets &= learners
            while targets:
                place = (targets & -targets).bit_length() - 1
                targets &= targets - 1
                found.setdefault(place, []).append((first, last))
                cost += 1
        left = without(question.runs, wanted)
        if everything & learners:
            place = len(there) - 1
            found[place] = sorted([*found.get(place, ()), *left])
        for place, runs in found.items():
            question.lines[place].known.add_all(question.level, runs)
        return LookedAt([] if everything or unasked else left, cost)

    def _learners(self, question: Question, there: list[Line | None], unasked: list[Line]) -> int:
        """The bits of those who are told the answer; the others are asked again when they need it."""
        learners = 0
        level, stretches = question.level, question.stretches
        for place, line in enumerate(there):
            if line is None:
                continue
            if self._learns(question, line, unasked):
                learners |= 1 << place
                if question.late is not None and question.late is not line:
                    line.behind.remove(level, stretches)
            elif question.late is None or question.late is line:
                line.behind.add_all(level, stretches, BEHIND_RUNS_MAX)
        if question.late is None:
            for line in unasked:
                line.behind.add_all(level, stretches, BEHIND_RUNS_MAX)
        return learners

    def _learns(self, question: Question, line: Line, unasked: list[Line]) -> bool:
        if any(other.priority > line.priority for other in unasked):
            # It may be for one that came meanwhile.
            return False
        if question.late is line:
            return True
        if line.known.run_count >= KNOWN_RUNS_MAX:
            return False
        first = line.behind.first_at(question.level, self.sifted.members_of(question.level))
        if question.late is None:
            # What comes after others that it has yet to be asked about is asked about with these.
            return question.stretches[-1][1] < first
        return question.stretches[0][0] <= first <= question.stretches[-1][1]


def _doubt(line: Line) -> None:
    """What it knows may be for a line that is above it now."""
    for level in line.known.levels():
        known = line.known.of(level)
        line.behind.add_all(level, [(known.first, known.last)], BEHIND_RUNS_MAX)
    line.known.clear()


def _text(selector: Selector | None) -> str:
    return "" if selector is None else selector.text
