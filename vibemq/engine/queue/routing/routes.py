"""Where the messages of a group go while some of its consumers have selectors."""

from collections.abc import Iterable
from dataclasses import dataclass

from vibemq.engine.queue.consumer import Consumer
from vibemq.engine.queue.routing.line import Line
from vibemq.engine.queue.routing.sifted import Matched, Sifted
from vibemq.errors import InvalidOptions
from vibemq.model.runs import Run, RunSet
from vibemq.model.selector import Selector

SELECTORS_MAX = 64
"""Different ones of a group at a time."""
LOOK_AHEAD_RUNS_MAX = 50_000
"""Runs that a group keeps; with more of them it does not look further ahead, until some of them have gone."""
ASKED_MESSAGES = 512
"""Messages that are looked at together: an answer in which every second one matches takes about 3 ms."""
ASKED_RUNS = 256
_HIGHEST_MAX = 4_096
ASKED_IF_MANY = 64
"""Instead of `ASKED_MESSAGES`, beyond `LOOK_AHEAD_RUNS_MAX`."""


@dataclass(slots=True)
class Question:
    """What the server is asked about, and has not answered yet."""

    number: int
    runs: list[Run]
    lines: list[Line]
    late: bool
    """Whether others have been asked about these messages before."""
    where: Selector | None = None
    """The filter of the group, which is asked once, with the first."""

    @property
    def selectors(self) -> tuple[Selector, ...]:
        """Those of the lines that have one, and the filter."""
        found = [line.selector for line in self.lines if line.selector is not None]
        return (*found, self.where) if self.where is not None else tuple(found)


class Routes:
    """A message goes to the lines of the highest priority among those that match it, and to no other: when their
    consumers are full, it waits for them."""

    __slots__ = ("_by_priority", "_known_highest", "_late_turn", "lines", "question", "sifted", "stalled", "where")

    def __init__(self, sifted: Sifted) -> None:
        self.sifted = sifted
        self.lines: dict[str, Line] = {}
        """By the text of the selector, "" without one; in the order in which they came."""
        self.where: Selector | None = None
        """The filter of the group: what it does not match is settled. Everything else is known to match it, but what
        nobody has looked at yet."""
        self.question: Question | None = None
        self.stalled = False
        """It keeps so much that it does not look further ahead."""
        self._late_turn = False
        self._by_priority: list[list[Line]] | None = None
        self._known_highest: dict[int, int] = {}
        """Of classes, until a priority changes."""

    # -- consumers ----------------------------------------------------------------------------------------------------

    def join(self, consumer: Consumer) -> None:
        text = _text(consumer.selector)
        line = self.lines.get(text)
        if line is None:
            line = self.lines[text] = Line(consumer.selector, self._free_bit())
            self.sifted.open(line.bit)
        line.join(consumer)
        self._forget_order()

    def retire(self, consumer: Consumer) -> None:
        text = _text(consumer.selector)
        line = self.lines[text]
        line.retire(consumer)
        if not line.by_priority:
            del self.lines[text]
            self.sifted.close(line.bit)
        self._forget_order()

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
        self.question = None
        if where is not None:
            self.sifted.look_again()

    def check_room_for(self, selector: Selector | None) -> None:
        """Raises InvalidOptions when there are too many different ones."""
        if _text(selector) not in self.lines and len(self.lines) >= SELECTORS_MAX:
            raise InvalidOptions(
                f"the group has consumers with {len(self.lines)} different selectors, and {SELECTORS_MAX} is the most "
                "of one group; let consumers share selectors, or use other groups or queues"
            )

    def _free_bit(self) -> int:
        taken = sum(line.bit for line in self.lines.values())
        return ~taken & (taken + 1)

    # -- hand-out -----------------------------------------------------------------------------------------------------

    def by_priority(self) -> list[list[Line]]:
        """The lines of each priority, the highest first."""
        if self._by_priority is None:
            levels: dict[int, list[Line]] = {}
            for line in self.lines.values():
                levels.setdefault(line.priority, []).append(line)
            self._by_priority = [levels[priority] for priority in sorted(levels, reverse=True)]
        return self._by_priority

    def candidates(self, line: Line, kinds: list[int], most: int) -> list[Run]:
        """What the line may be given now, in order: about `most` runs of each of these classes."""
        there = [bits for bits in kinds if bits in self.sifted.classes]
        return self.sifted.candidates(line.bit, there, most) if there else []

    def kinds(self, lines: Iterable[Line]) -> dict[int, list[int]]:
        """Of these lines, bit -> the classes whose messages go to it."""
        wanted = sum(line.bit for line in lines)
        found: dict[int, list[int]] = {}
        for bits in self.sifted.classes:
            left = self._highest(bits) & wanted
            while left:
                bit = left & -left
                left ^= bit
                found.setdefault(bit, []).append(bits)
        return found

    def _highest(self, bits: int) -> int:
        """The lines of the highest priority among those that match a class."""
        known = self._known_highest.get(bits)
        if known is None:
            some = [line for line in self.lines.values() if line.bit & bits]
            highest = max((line.priority for line in some), default=0)
            known = sum(line.bit for line in some if line.priority == highest)
            if len(self._known_highest) >= _HIGHEST_MAX:
                self._known_highest.clear()
            self._known_highest[bits] = known
        return known

    def _forget_order(self) -> None:
        self._by_priority = None
        self._known_highest.clear()

    # -- questions ----------------------------------------------------------------------------------------------------

    def ask(self, number: int) -> Question | None:
        """What has to be looked at next, so that consumers with room get something, or nothing waits that the filter
        does not match; None when nothing has, or a question is open. `number`: of the question, which no other of any
        group has."""
        if self.question is not None:
            return None
        open_lines = [line for line in self.lines.values() if line.has_room()]
        if not open_lines and self.where is None:
            return None
        ahead, late = True, [line for line in open_lines if self.sifted.behind[line.bit].count]
        most = ASKED_MESSAGES
        if self.sifted.kept_runs > LOOK_AHEAD_RUNS_MAX:
            # What is held up by messages that nobody has looked at yet would never go otherwise.
            most = ASKED_IF_MANY
            kinds = self.kinds(open_lines)
            ahead = bool(kinds)
            if self.sifted.told_runs > 2 * LOOK_AHEAD_RUNS_MAX:
                late = [line for line in late if line.bit in kinds]
        self.stalled = not (ahead or late)
        if self.stalled:
            return None
        self._late_turn = bool(late) and (not self._late_turn or not (ahead and self.sifted.fresh.count))
        if self._late_turn:
            line = late[0]
            runs = self.sifted.behind[line.bit].next(most)[:ASKED_RUNS]
            self.question = Question(number, runs, [line], late=True)
        elif ahead and self.sifted.fresh.count:
            runs = self.sifted.fresh.next(most)[:ASKED_RUNS]
            self.question = Question(number, runs, list(self.lines.values()), late=False, where=self.where)
        return self.question

    def unfit(self, number: int, matched: Iterable[Matched]) -> list[Run]:
        """What of the messages in question the filter does not match. Once they are gone, `answer` is about the
        others."""
        question = self.question
        if question is None or question.number != number or question.where is None:
            return []
        place = len(question.selectors) - 1
        unfit = RunSet([part for run in question.runs for part in sorted(self.sifted.fresh.overlap(*run))])
        for first, last, places in matched:
            if places >> place & 1:
                unfit.remove(first, last)
        return unfit.runs()

    def answer(self, number: int, matched: Iterable[Matched]) -> list[Run] | None:
        """The bits of `matched` are the places of those lines of the question that have selectors. Returns which
        messages nobody wants; None for an answer to no question."""
        question = self.question
        if question is None or question.number != number:
            return None
        self.question = None
        bits = _Bits(question.lines, {line.bit for line in self.lines.values() if line in question.lines})
        if question.late:
            return self._answer_late(question, matched)
        everything = bits.without_selector
        known = [(first, last, bits.of(places)) for first, last, places in matched]
        if everything:
            left = self.sifted.sift(question.runs, _with_rest(known, question.runs, everything), bits.asked)
        else:
            left = self.sifted.sift(question.runs, [part for part in known if part[2]], bits.asked)
        return left

    def _answer_late(self, question: Question, matched: Iterable[Matched]) -> list[Run]:
        line = question.lines[0]
        if self.lines.get(_text(line.selector)) is not line:
            return []
        found = matched if line.selector is not None else [(first, last, 1) for first, last in question.runs]
        for first, last, _ in found:
            self.sifted.tell(line.bit, first, last)
        self.sifted.caught_up(line.bit, question.runs)
        return []


class _Bits:
    """From places in a question to the bits of the lines that are still there."""

    def __init__(self, lines: list[Line], there: set[int]) -> None:
        self.asked = sum(there)
        self._bits = [line.bit if line.bit in there else 0 for line in lines if line.selector is not None]
        self.without_selector = sum(line.bit for line in lines if line.selector is None and line.bit in there)
        self._known: dict[int, int] = {}

    def of(self, places: int) -> int:
        found = self._known.get(places)
        if found is None:
            found = sum(bit for place, bit in enumerate(self._bits) if places >> place & 1) | self.without_selector
            self._known[places] = found
        return found


def _with_rest(known: list[Matched], runs: list[Run], bits: int) -> list[Matched]:
    """What nothing is known of is wanted by those who take everything."""
    # The pieces that come first count: what is left of each run goes to the last ones.
    return [*known, *((first, last, bits) for first, last in runs)]


def _text(selector: Selector | None) -> str:
    return "" if selector is None else selector.text
