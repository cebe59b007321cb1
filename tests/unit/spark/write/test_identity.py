"""Which write of a batch is which, in every run."""

from itertools import count
from typing import Any

import pytest

pytest.importorskip("pyspark")

from hypothesis import given
from hypothesis import strategies as st

from tests.crash.ledger import BrokerProcess
from tests.unit.spark.hand import options_of
from vibemq.spark.connection.client import BrokerClient
from vibemq.spark.errors import SourceError
from vibemq.spark.options import parse
from vibemq.spark.write.identity import (
    RUNS_REMEMBERED,
    BatchWrite,
    Entry,
    application,
    application_of,
    begin,
    end,
    following,
)

TOLD = {
    "sql.streaming.queryId": "q",
    "streaming.sql.batchId": "7",
    "spark.app.id": "local-1",
    "spark.sql.execution.root.id": "4",
    "spark.sql.execution.id": "5",
    "spark.jobGroup.id": "mine",
}


def told(**other: str | None) -> BatchWrite | None:
    return BatchWrite.of((TOLD | {name.replace("__", "."): value for name, value in other.items()}).get)


def a_write(run: str, execution: int, query: str = "q") -> BatchWrite:
    return BatchWrite(query, 7, run, execution)


def test_what_spark_tells() -> None:
    one = told()
    assert one is not None
    assert (one.query, one.batch, one.execution) == ("q", 7, 5)
    same = [told(spark__sql__execution__id="9"), told(spark__jobGroup__id="another")]
    assert [found and found.run for found in same] == [one.run, one.run]
    for other in (told(spark__app__id="local-2"), told(spark__sql__execution__root__id="5")):
        assert other is not None
        assert other.run != one.run
    assert told(sql__streaming__queryId=None) is None
    assert told(streaming__sql__batchId=None) is None
    nameless = told(spark__app__id=None, spark__jobGroup__id=None)
    assert nameless is not None
    assert nameless.run == ""


def test_names_of_applications() -> None:
    assert application_of("q", "orders", 1) == "q/orders"
    assert application_of("q", "orders", 2) == "q.2/orders"
    long = application("q", "x" * 256)
    assert len(long.encode()) <= 256
    assert long != application("q", "x" * 255 + "y")


def test_entries_are_read_as_written_and_fit_into_a_tag() -> None:
    entry: Entry | None = None
    for execution in range(10**12, 10**12 + 3 * RUNS_REMEMBERED):
        entry = following(entry, a_write(f"{execution:012x}"[-12:], execution))
        assert Entry.parse(str(entry)) == entry
        assert len(str(entry)) <= 256
    assert Entry.parse("") is None


class Register:
    """The writes of one query, without a broker."""

    def __init__(self) -> None:
        self.last: Entry | None = None

    def begin(self, run: str, execution: int) -> int:
        self.last = following(self.last, a_write(run, execution))
        return self.last.number

    def end(self) -> None:
        assert self.last is not None
        self.last = Entry(self.last.run, self.last.execution, self.last.number, True, self.last.older)


@given(st.lists(st.integers(min_value=0, max_value=4), min_size=1, max_size=8))
def test_the_nth_write_of_a_run_is_write_n_wherever_the_runs_before_it_ended(runs: list[int]) -> None:
    """Each number: how many writes a run commits before it dies in the middle of the next."""
    register, executions = Register(), count(1)
    for run, committed in enumerate(runs):
        for number in range(1, committed + 2):
            execution = next(executions)
            tasks = [register.begin(f"run-{run}", execution) for _ in range(2)]
            assert tasks == [number, number]
            if number <= committed:
                register.end()


def test_what_is_not_certain_is_refused() -> None:
    register = Register()
    assert register.begin("a", 10) == 1
    with pytest.raises(SourceError, match="runs at the same time, or it has failed"):
        register.begin("a", 11)
    register.end()
    assert register.begin("a", 11) == 2
    with pytest.raises(SourceError, match="txnAppId"):
        register.begin("a", 10)  # A task of the first write that comes late.
    assert register.begin("b", 3) == 1
    with pytest.raises(SourceError, match="two drivers have the same checkpoint"):
        register.begin("a", 12)
    register.end()
    assert register.begin("b", 4) == 2


def test_the_register_is_the_brokers(broker: BrokerProcess, queue: str) -> None:
    def client() -> Any:
        return BrokerClient(parse(options_of(broker, queue=queue)))

    one, other = client(), client()
    first = begin(one, a_write("a", 1, queue), queue)
    assert begin(other, a_write("a", 1, queue), queue) == first
    with pytest.raises(SourceError, match="has failed"):
        begin(other, a_write("a", 2, queue), queue)
    end(other, first)
    second = begin(one, a_write("a", 2, queue), queue)
    assert (first.entry.number, second.entry.number) == (1, 2)
    replayed = begin(one, a_write("b", 1, queue), queue)
    assert replayed.entry.number == 1
    end(one, second)  # Of a run that is over.
    with pytest.raises(SourceError, match="has failed"):
        begin(one, a_write("b", 2, queue), queue)
    end(one, replayed)
    assert begin(one, a_write("b", 2, queue), queue).entry.number == 2
    assert begin(one, a_write("b", 2, queue), f"{queue}.other").entry.number == 1
