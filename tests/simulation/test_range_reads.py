"""Readers by range against the engine and the real reducer: whatever happens to the queue, a reader that goes on where
each answer says comes to the end, sees every message once and misses none that was published later."""

from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.engine_driver import Driver
from vibemq.engine.handlers.cursors import ranges
from vibemq.model.commands import CommitCursor, JoinCursor, Quarantine, RejectAt
from vibemq.model.options import DeliveryMode, Durability
from vibemq.model.rows import Rows, pack_row
from vibemq.model.stored import Slice
from vibemq.operations.arguments import read
from vibemq.operations.range_reads import FetchArguments, RangeReads

ROW = pack_row("m", b"x" * 10, ())
FETCHES_MAX = 64
"""More than any range of these tests needs, fewer than crossing a restart's leap number by number would take."""


class Disk:
    """Rows of the driver's disk, as a store and its provider in one."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.provider = SimpleNamespace(read=self.stored)

    async def call(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return work(*arguments)

    read = read_rows = call

    def stored(self, queue_id: int, first: int, last: int, max_bytes: int) -> list[Slice]:
        found = sorted(s for s in self._driver.rows[queue_id] if first <= s <= last)
        return [Slice(sequence, 1, Rows.of([ROW])) for sequence in found[: max(1, max_bytes // len(ROW))]]


class Reader:
    """Keeps its own position, as Spark does."""

    def __init__(self, driver: Driver, group: str | None) -> None:
        self._driver = driver
        self._arguments = {"group": group} if group else {}
        self.at = 1
        self.seen: list[int] = []

    def fetch(self, end: int) -> None:
        """One fetch of [at, end): each sequence of [at, next) is a row or a gap."""
        reads = RangeReads(self._driver.engine, cast(Any, Disk(self._driver)), cast(Any, None), cast(Any, None))
        named = {**self._arguments, "queue": "q", "from": self.at, "to": end, "max_bytes": 200}
        answer = finished(reads.fetch(cast(Any, None), read(FetchArguments, "group.fetch", named)))
        rows = [part.first_sequence for part in answer.slices]
        covered = [(sequence, sequence) for sequence in rows] + [gap[:2] for gap in answer.gaps]
        expected = self.at
        for first, last in sorted(covered):
            assert first == expected, "neither a row nor a gap"
            expected = last + 1
        assert expected == answer.next
        self.seen += rows
        self.at = answer.next

    def drain(self, end: int) -> None:
        tail = self._driver.engine.readers.tail("q")
        assert tail is not None
        for _ in range(FETCHES_MAX):
            if self.at >= min(tail, end):
                return
            self.fetch(end)
        raise AssertionError(f"the reader still stands at {self.at}, the tail is {tail}")


def finished(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that has nothing to wait for."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


STEPS = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 30)),
    st.tuples(st.just("lose"), st.integers(1, 5)),
    st.tuples(st.just("restart"), st.just(0)),
    st.tuples(st.just("drain"), st.sampled_from([1, 10, 1 << 40])),
    st.tuples(st.just("fetch"), st.sampled_from([0, 1, 7, 1 << 40])),
    st.tuples(st.just("reject"), st.integers(0, 5)),
    st.tuples(st.just("quarantine"), st.integers(0, 5)),
    st.tuples(st.just("commit"), st.just(0)),
)


@given(
    durability=st.sampled_from([Durability.STRONG, Durability.WEAK, Durability.ASYNC]),
    steps=st.lists(STEPS),
    runs=st.sampled_from([3, ranges.RUNS_AT_ONCE]),
)
def test_a_reader_by_range_comes_to_the_end_and_misses_nothing(
    durability: Durability, steps: list[tuple[str, int]], runs: int
) -> None:
    with patch.object(ranges, "RUNS_AT_ONCE", runs):
        read_all_of(durability, steps)


def read_all_of(durability: Durability, steps: list[tuple[str, int]]) -> int:
    """How many messages were published and not given back."""
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK, durability=durability)
    driver.ask(JoinCursor(9, None, "q", "etl"))
    readers = [Reader(driver, "etl"), Reader(driver, None)]
    kept: set[int] = set()
    for step, number in [*steps, ("publish", 1), ("drain", 1 << 40)]:
        place = readers[0].at
        match step:
            case "publish":
                first = driver.publish(number).first_sequence
                kept.update(range(first, first + number))
            case "lose":
                driver.hold = True
                driver.publish(number)
                driver.hold = False
                driver.restart()
            case "restart":
                driver.restart()
            case "drain":
                for reader in readers:
                    reader.drain(reader.at + number)
            case "fetch":
                for reader in readers:
                    reader.fetch(reader.at + number)
            case "reject" | "quarantine":
                # Ahead of the reader: what leaves the group is a gap, or a row that it is still given.
                kept.difference_update(range(place + number, place + number + 2))
                if step == "reject":
                    driver.ask(RejectAt(9, None, "q", "etl", [(place + number, "bad"), (place + number + 1, "bad")]))
                else:
                    driver.ask(Quarantine(9, None, "q", "etl", [(place + number, place + number + 1)]))
            case "commit":
                epoch = driver.engine.readers.cursor("q", "etl").epoch
                driver.ask(CommitCursor(9, None, "q", "etl", epoch, place))
    tail = driver.engine.readers.tail("q")
    for reader in readers:
        assert reader.at == tail
        assert reader.seen == sorted(set(reader.seen)), "each once, in order"
    assert kept <= set(readers[0].seen)
    return len(kept)
