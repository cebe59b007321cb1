"""What people do by hand to a Spark query, at random, against sinks that know a batch by its number.

The reader is the real one, driven as Spark drives it: an offset log, a commit log, a process that may end anywhere. The
broker is the engine with the real operations over a disk of the simulation. Checkpoints are rolled back and deleted,
drivers and brokers killed, older drivers go on, groups are deleted and sought, and batches are planned under other
limits. `newCheckpoint` stays set when it was heeded. No acknowledged row may be missing from the outputs, and none may
be twice in one; a query may be refused instead.

The mutants at the end break the connector; the same programs must notice.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from tests.simulation.engine_driver import Driver
from tests.simulation.test_range_reads import Disk, finished
from vibemq.errors import VibeMQError
from vibemq.model.commands import DeleteGroup
from vibemq.model.options import Retention
from vibemq.operations.arguments import read
from vibemq.operations.groups import OPERATIONS, Groups
from vibemq.operations.range_reads import FetchArguments, RangeReads
from vibemq.spark.errors import DataLoss, Refused, SourceError
from vibemq.spark.options import STREAM, parse
from vibemq.spark.read import plans, stream
from vibemq.spark.read.cursors import QueryCursors
from vibemq.spark.read.numbering import enter_batch
from vibemq.spark.read.offsets import Positions
from vibemq.spark.read.plans import QueryPlans
from vibemq.spark.schema import read_schema

QUEUES = ("a", "b")
HOLD_MS = 10_000
Row = tuple[str, int]
Result = dict[str, Any] | Refused
_VERBS = {operation.name: operation for operation in OPERATIONS}


class Broker:
    """The engine, asked by verb as the wire would."""

    def __init__(self) -> None:
        self.driver = Driver()
        for queue in QUEUES:
            self.driver.create(queue, retention=Retention.LOG)
        self._local = SimpleNamespace(ask=self._ask)
        self._caller = SimpleNamespace(owned=lambda command: command)
        self._polls = SimpleNamespace(wait=self._wait)

    async def _ask(self, make: Callable[[int, Any], Any]) -> Any:
        answer = self.driver.ask(make(1, None))
        if isinstance(answer, VibeMQError):
            raise answer
        return answer

    async def _wait(self, *_: object) -> None:
        return

    def verb(self, name: str, queue: str, arguments: dict[str, Any]) -> Result:
        self.driver.advance(1)
        engine, disk = self.driver.engine, cast(Any, Disk(self.driver))
        groups = Groups(engine, disk, cast(Any, self._local), cast(Any, self._polls))
        operation = _VERBS[name]
        try:
            wanted = read(operation.arguments, name, {**arguments, "queue": queue})
            return dict(finished(cast(Any, operation.task)(groups, cast(Any, self._caller), wanted)))
        except VibeMQError as error:
            return Refused(error.code, str(error))

    def rows(self, queue: str, group: str, first: int, end: int) -> list[Row]:
        reads = RangeReads(self.driver.engine, cast(Any, Disk(self.driver)), cast(Any, None), cast(Any, None))
        found: list[Row] = []
        while first < end:
            named = {"group": group, "queue": queue, "from": first, "to": end, "max_bytes": 500}
            try:
                answer = finished(reads.fetch(cast(Any, None), read(FetchArguments, "group.fetch", named)))
            except VibeMQError as error:
                raise Refused(error.code, str(error)) from None
            assert not [gap for gap in answer.gaps if gap[2] == "lost"]
            found += [(queue, part.first_sequence) for part in answer.slices]
            first = answer.next
        return found


class Client:
    """In the place of the connector's own, which speaks over a socket."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def ask_verb(self, verb: str, queue: str, arguments: dict[str, Any], **_: object) -> Result:
        return self._broker.verb(verb, queue, arguments)

    def json(self, answer: Result, **_: object) -> dict[str, Any]:
        if isinstance(answer, Refused):
            raise answer
        return answer

    def call(self, verb: str, queue: str, arguments: dict[str, Any], **_: object) -> dict[str, Any]:
        return self.json(self.ask_verb(verb, queue, arguments))

    def forget(self, answer: Result) -> None:
        return

    def close(self) -> None:
        return


class Died(Exception):
    """The driver's process is gone."""


class UnexpectedRefusal(AssertionError):
    """Or one that was expected and did not come: says nothing about rows."""


class Sink:
    """Takes a batch once by its number, as files, transactions and tables of finished batches do."""

    def __init__(self, *, is_lazy: bool = False) -> None:
        self.batches: dict[int, list[Row]] = {}
        self.is_lazy = is_lazy

    def leaves_out(self, number: int) -> bool:
        """Whether it does not even read the batch, as Spark's own sink of files does with a number that it has."""
        return self.is_lazy and number in self.batches

    def write(self, number: int, rows: list[Row]) -> None:
        self.batches.setdefault(number, rows)

    def rows(self) -> list[Row]:
        return [row for rows in self.batches.values() for row in rows]


class World:
    """One query over two queues, its checkpoint, and every output that it ever had."""

    def __init__(self, ack_on: str, hold_ms: int, *, is_lazy: bool = False) -> None:
        self.broker = Broker()
        self._options = {"endpoint": "x:1", "queues": "a,b", "group": "etl", "pollTimeout": "0", "ackOn": ack_on}
        self._options["hold"] = f"{hold_ms}ms"
        self.query = 0
        """The id in the checkpoint."""
        self.queries = 1
        self.without_rows: set[tuple[int, int]] = set()
        """(query, batch): Spark makes these also when the source has nothing, as it does when another source has rows
        or a watermark has moved; again when they are repeated."""
        self.set_aside: list[Any] = []
        """Checkpoints in whose place another one was begun."""
        self.is_handled = False
        """Whether things were done after which the newest checkpoint, too, may be refused."""
        self.offsets: dict[int, str] = {}
        self.commits: set[int] = set()
        self._is_lazy = is_lazy
        self.sink = Sink(is_lazy=is_lazy)
        self.outputs = [self.sink]
        self.published: list[Row] = []
        self.reader: Any = None
        self.older: list[tuple[Any, str]] = []
        self.rerun = True
        self.decision = "refuse"
        """`newCheckpoint`, as it was set last: nobody removes it."""

    # -- Spark ------------------------------------------------------------------------------------------------------

    def start(self, limit: int) -> None:
        """A new process of the driver; the one before may come back."""
        if self.reader is not None and self.offsets:
            self.older.append((self.reader, self.offsets[max(self.offsets)]))
        options = {**self._options, "maxMessagesPerTrigger": f"{limit}", "newCheckpoint": self.decision}
        chosen = parse(options, STREAM)
        self.reader = stream.StreamReader(chosen, read_schema(chosen))
        live = stream._Live(chosen)
        client = cast(Any, Client(self.broker))
        for part in (live, live._cursors, live._plans, live._admission, live._splits):
            cast(Any, part)._client = client
        self.reader._live = live
        self.rerun = True

    def begin(self, number: int) -> dict[str, Any]:
        found = json.loads(self.offsets[number - 1]) if number else self.reader.initialOffset()
        return cast(dict[str, Any], found)

    def trigger(self, dies: str) -> bool:
        """One micro-batch, as MicroBatchExecution does it; whether there was one. Raises Died at the named place."""
        last = max(self.offsets, default=-1)
        if self.rerun and last >= 0 and last not in self.commits:
            number, start = last, self.begin(last)
            end = json.loads(self.offsets[last])
        else:
            number, start = last + 1, self.begin(last + 1)
            end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
            self.rerun = False
            if json.dumps(end) == json.dumps(start) and (self.query, number) not in self.without_rows:
                return False
            _die(dies, "planned")
            self.offsets[number] = json.dumps(end)
            _die(dies, "noted")
            if number:
                self.reader.commit(start)
        self.rerun = False
        rows = []
        if not self.sink.leaves_out(number) and (not number or end != start):
            rows = self.read(number, self.reader.partitions(start, end))
        _die(dies, "read")
        self.sink.write(number, rows)
        _die(dies, "written")
        self.commits.add(number)
        return True

    def read(self, number: int, tasks: list[Any]) -> list[Row]:
        found = []
        for task in tasks:
            client = cast(Any, Client(self.broker))
            if "batch" in task.value:
                enter_batch(client, "etl", task.value["batch"], self.entered_as(), number)
            found += self.broker.rows(task.value["queue"], "etl", task.value["first"], task.value["end"])
        return found

    def entered_as(self) -> str:
        return f"query-{self.query}"

    def run(self, limit: int, dies: str) -> None:
        """Micro-batches until there is nothing, or until the driver dies in one."""
        self.start(limit)
        for _ in range(100):
            try:
                if not self.trigger(dies):
                    return
            except Died:
                return
            except SourceError:
                self.reader = None
                raise
        raise AssertionError("endless batches")

    # -- what people do ---------------------------------------------------------------------------------------------

    def roll_back(self, batches: int) -> None:
        for number in sorted(self.offsets, reverse=True)[:batches]:
            del self.offsets[number]
            self.commits.discard(number)

    def lose_checkpoint(self, how: str, dies: str) -> None:
        """Deleted; what was decided for an earlier loss is still set. Then by the book: with an output that is new."""
        self.forget_checkpoint()
        if self.sink.batches.get(0) == []:
            # As the page says: nobody is refused before anything was acknowledged, and batch 0 may have rows now.
            self.new_output()
        try:
            self.run(100, "")
            return  # The groups were not moved: nothing was ever acknowledged.
        except Refused as error:
            self.decision = _printed(error, how)
        self.new_output()
        self.run(100, dies)

    def forget_checkpoint(self) -> None:
        self.set_aside.append(self.checkpoint())
        self.offsets, self.commits = {}, set()
        self.query, self.queries = self.queries, self.queries + 1

    def checkpoint(self) -> Any:
        return dict(self.offsets), set(self.commits), self.query, self.sink

    def put_back(self, checkpoint: Any) -> None:
        offsets, commits, self.query, self.sink = checkpoint
        self.offsets, self.commits = dict(offsets), set(commits)

    def batch_without_rows(self) -> None:
        """Spark makes one if the source has nothing."""
        self.without_rows.add((self.query, max(self.offsets, default=-1) + 1))

    def stand(self) -> None:
        """Somebody seeks the groups to exactly where the checkpoint is."""
        positions = json.loads(self.offsets[max(self.offsets)])["q"] if self.offsets else {}
        for queue, position in positions.items():
            self.broker.verb("group.seek", queue, {"group": "etl", "start": f"sequence:{position['s']}"})

    def new_output(self) -> None:
        self.sink = Sink(is_lazy=self._is_lazy)
        self.outputs.append(self.sink)

    def seek(self, start: str) -> None:
        """In the place of a decision, when the checkpoint is lost: in all queues, with an output that is new."""
        self.forget_checkpoint()
        self.new_output()
        for queue in QUEUES:
            self.broker.verb("group.seek", queue, {"group": "etl", "start": start})

    def check(self) -> None:
        for sink in self.outputs:
            rows = sink.rows()
            assert len(rows) == len(set(rows)), "a row is twice in one output"
        written = {row for sink in self.outputs for row in sink.rows()}
        for queue, committed in self.committed().items():
            lacking = [row for row in self.published if row[0] == queue and row[1] < committed and row not in written]
            assert not lacking, f"acknowledged and not written: {lacking}"

    def committed(self) -> dict[str, int]:
        found = {}
        for queue in QUEUES:
            answer = self.broker.verb("group.offsets", queue, {"group": "etl"})
            found[queue] = 1 if isinstance(answer, Refused) else int(answer["committed"])
        return found


def _printed(error: Refused, how: str) -> str:
    """The value of the option that the refusal names."""
    found = re.search(rf"newCheckpoint=({how}:[0-9a-f]{{16}}), ", str(error))
    if found is None:
        raise UnexpectedRefusal(f"no value for {how}") from error
    return found[1]


def _die(dies: str, here: str) -> None:
    if dies == here:
        raise Died


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """Thousands of queries that are started again and again say so in the log."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vibemq.spark.read.cursors.notice", lambda sentence: None)
        yield


# -- programs -------------------------------------------------------------------------------------------------------

number = st.integers(1, 4)
deaths = st.sampled_from(["", "", "planned", "noted", "read", "written"])
step = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from(QUEUES), st.integers(1, 9)),
    st.tuples(st.just("run"), st.integers(1, 12), deaths),
    st.tuples(st.just("run"), st.integers(1, 12), deaths),
    st.tuples(st.just("roll back"), number, st.just(0)),
    st.tuples(st.just("forget commits"), number, st.just(0)),
    st.tuples(st.just("lose"), st.sampled_from(["continue", "replay"]), deaths),
    st.tuples(st.just("lose"), st.sampled_from(["continue", "replay"]), deaths),
    st.tuples(st.just("seek"), st.just("earliest"), st.just(0)),
    st.tuples(st.just("wait"), st.sampled_from([100, HOLD_MS + 1]), st.just(0)),
    st.tuples(st.just("restart broker"), st.just(0), st.just(0)),
    st.tuples(st.just("older driver"), st.just(0), st.just(0)),
    st.tuples(st.just("delete group"), st.sampled_from(QUEUES), st.just(0)),
    st.tuples(st.just("without rows"), st.integers(1, 12), deaths),
    st.tuples(st.just("without rows"), st.integers(1, 12), deaths),
    st.tuples(st.just("count from 0"), st.sampled_from(["", "continue", "replay"]), st.just(0)),
    st.tuples(st.just("roll back and seek"), number, st.just(0)),
    st.tuples(st.just("put back"), st.just(0), st.just(0)),
)
programs = st.lists(step, min_size=3, max_size=25)


def carry_out(world: World, program: list[tuple[str, Any, Any]]) -> None:
    for verb, what, more in program:
        saved = dict(world.offsets), set(world.commits)
        before = world.checkpoint()
        match verb:
            case "publish":
                first = world.broker.driver.engine.readers.queue(what).tail
                world.broker.driver.publish(more, queue=what)
                world.published += [(what, first + index) for index in range(more)]
            case "run":
                _run(world, what, more)
            case "roll back":
                world.roll_back(what)
                _run(world, 100, "", saved)
            case "forget commits":
                world.commits -= set(sorted(world.offsets, reverse=True)[:1])
                _run(world, 100, "", saved)
            case "lose":
                world.lose_checkpoint(what, more)
            case "seek":
                world.seek(what)
                _run(world, 100, "")
            case "without rows":
                world.batch_without_rows()
                _run(world, what, more)
            case "count from 0":
                world.offsets, world.commits = {}, set()
                _try_by_hand(world, before, what)
            case "roll back and seek":
                world.roll_back(what)
                world.stand()
                _try_by_hand(world, before, "")
            case "put back":
                if world.set_aside:
                    world.put_back(world.set_aside[-1])
                    _try_by_hand(world, before, "")
            case "wait":
                world.broker.driver.advance(what)
            case "restart broker":
                world.broker.driver.restart()
            case "older driver":
                _wake(world)
            case "delete group":
                # Of an uncommitted first batch the group of the first queue alone knows how it was cut; nobody asks it
                # if the sink has the batch and leaves it out.
                if 0 in world.commits or (world.offsets and what == QUEUES[0] and not world.sink.leaves_out(0)):
                    world.broker.driver.ask(DeleteGroup(1, None, what, "etl"))
                    _expect_refusal(world)
                    _anew(world)
        world.check()
    _run(world, 100, "")
    world.check()
    written = {row for sink in world.outputs for row in sink.rows()}
    assert written == set(world.published), "not everything arrived"


def _run(world: World, limit: int, dies: str, saved: Any = None) -> None:
    """A refused query gets its newest checkpoint back, as its error says."""
    try:
        world.run(limit, dies)
    except SourceError as error:
        world.check()
        if world.is_handled or world.without_rows:
            _anew(world)
            return
        if saved is None:
            raise UnexpectedRefusal("refused with the newest checkpoint") from error
        world.offsets, world.commits = saved
        world.run(100, "")


def _try_by_hand(world: World, before: Any, how: str) -> None:
    """What the documentation warns of; then the newest checkpoint is put back."""
    world.is_handled = True
    try:
        try:
            world.run(100, "")
        except Refused as error:
            if not how or "newCheckpoint=" not in str(error) or "no checkpoint" not in str(error):
                raise
            world.decision = _printed(error, how)
            world.offsets, world.commits = {}, set()
            world.run(100, "")
    except SourceError:
        pass
    world.check()
    world.put_back(before)
    _run(world, 100, "")


def _wake(world: World) -> None:
    """A driver that was frozen goes on where it was, and knows nothing of the others."""
    for reader, start in world.older:
        with suppress(SourceError):
            end = reader.latestOffset(json.loads(start), reader.getDefaultReadLimit())
            reader.commit(end)
            assert reader is world.reader or end == json.loads(start), "an older driver got a batch"
    world.older.clear()


def _expect_refusal(world: World) -> None:
    world.start(100)
    try:
        if world.trigger(""):
            world.trigger("")
    except (Refused, DataLoss):
        return
    raise UnexpectedRefusal("a query went on whose group is gone")


def _anew(world: World) -> None:
    """As the error says: a new checkpoint and a new output, the groups from the beginning."""
    for queue in QUEUES:
        world.broker.driver.ask(DeleteGroup(1, None, queue, "etl"))
    world.forget_checkpoint()
    world.new_output()
    world.is_handled, world.without_rows = False, set()
    _run(world, 100, "")


@example(
    program=[("without rows", 1, ""), ("publish", "a", 1), ("roll back", 1, 0)], ack_on="auto", hold_ms=0, is_lazy=False
)
@given(programs, st.sampled_from(["auto", "auto", "commit", "never"]), st.sampled_from([0, HOLD_MS]), st.booleans())
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_no_acknowledged_row_is_missing_and_none_is_twice(
    program: list[Any], ack_on: str, hold_ms: int, is_lazy: bool
) -> None:
    carry_out(World(ack_on, hold_ms, is_lazy=is_lazy), program)


# -- negative controls ----------------------------------------------------------------------------------------------


def forget_the_plan(patch: pytest.MonkeyPatch) -> None:
    """Nor can a batch be entered that nobody has planned."""
    patch.setattr(QueryPlans, "settle", lambda self, start, end: end)
    patch.setattr(QueryPlans, "planned", lambda self, start, end: None)


def acknowledge_early(patch: pytest.MonkeyPatch) -> None:
    advance = stream._Live.advance

    def eager(self: Any, start: Positions, limits: Any) -> Positions:
        end = advance(self, start, limits)
        self._cursors.acknowledge(end, plans.tag_of(end))
        return end

    patch.setattr(stream._Live, "advance", eager)


def ignore_the_epoch(patch: pytest.MonkeyPatch) -> None:
    ask, wait = QueryCursors.ask_to_acknowledge, QueryCursors.acknowledged
    asked_last: dict[int, tuple[Positions, str]] = {}

    def remember(self: Any, positions: Positions, tag: str, **more: Any) -> Any:
        asked_last[id(self)] = positions, tag
        return ask(self, positions, tag, **more)

    def stubborn(self: Any, asked: Any, **more: Any) -> None:
        try:
            wait(self, asked, **more)
        except SourceError:
            positions, tag = asked_last[id(self)]
            self._joined.clear()
            for queue, position in positions.items():
                self.of(queue, position)
            wait(self, ask(self, positions, tag, **more), **more)

    patch.setattr(QueryCursors, "ask_to_acknowledge", remember)
    patch.setattr(QueryCursors, "acknowledged", stubborn)


def go_on_without_a_checkpoint(patch: pytest.MonkeyPatch) -> None:
    join = QueryCursors._join

    def careless(self: Any, queue: str, at: Any) -> Any:
        return join(self, queue, at, "" if at else "continue")

    patch.setattr(QueryCursors, "decide", lambda self, queues: None)
    patch.setattr(QueryCursors, "_join", careless)


def heed_the_option_again(patch: pytest.MonkeyPatch) -> None:
    """Whatever loss it was set for."""
    decide = QueryCursors.decide

    def forgetful(self: Any, queues: Any) -> None:
        chosen = self._settings.new_checkpoint
        if not chosen.loss:
            decide(self, queues)
        for found in self._look_at([queue for queue in queues if chosen.loss and queue not in self._joined]):
            self._decided[found.queue] = found

    patch.setattr(QueryCursors, "decide", forgetful)


PHASES = (Phase.generate,)
FINDINGS = "acknowledged and not written|twice in one output|older driver got a batch|not everything arrived"


def compare_no_numbers(patch: pytest.MonkeyPatch) -> None:
    """Tasks only say that they read."""
    patch.setattr(World, "entered_as", lambda self: "")


def acknowledge_what_nobody_has_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QueryPlans, "check_read", lambda self, start: None)


def forget_batches_without_rows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QueryPlans, "note_empty", lambda self, start, mark, patient: None)


several, limit = st.integers(4, 9), st.integers(1, 3)
published = st.tuples(st.just("publish"), st.just("a"), several)
ran = st.tuples(st.just("run"), limit, st.just(""))
died = st.tuples(st.just("run"), limit, st.sampled_from(["planned", "noted", "read"]))
lost = st.tuples(st.just("lose"), st.sampled_from(["continue", "replay"]), st.just(""))
back = st.sampled_from([("count from 0", "continue", 0), ("roll back and seek", 1, 0)])
without_rows = st.just(("without rows", 1, ""))
one_back = st.just(("roll back", 1, 0))
AIMED = {
    forget_the_plan: [published, ran, published, st.tuples(st.just("roll back"), st.integers(1, 2), st.just(0))],
    acknowledge_early: [published, died],
    ignore_the_epoch: [published, ran, ran, published, st.just(("older driver", 0, 0))],
    go_on_without_a_checkpoint: [published, ran, published, st.just(("lose", "continue", ""))],
    heed_the_option_again: [published, ran, published, lost, published, lost],
    compare_no_numbers: [published, ran, published, back],
    acknowledge_what_nobody_has_read: [published, ran, published, back],
    forget_batches_without_rows: [published, ran, without_rows, published, one_back],
}
LAZY = {acknowledge_what_nobody_has_read}
"""Programs that come to where the defect shows: chance alone rarely does."""


@pytest.mark.parametrize("mutant", AIMED)
def test_a_broken_connector_is_noticed(mutant: Callable[[pytest.MonkeyPatch], None]) -> None:
    """By what becomes of the rows; that it refuses too much would be no proof."""

    @given(st.lists(step, max_size=2), st.tuples(*AIMED[mutant]))
    @settings(
        max_examples=60,
        deadline=None,
        database=None,
        derandomize=True,
        phases=PHASES,
        report_multiple_bugs=False,
    )
    def same(before: list[Any], aimed: tuple[Any, ...]) -> None:
        with suppress(SourceError, UnexpectedRefusal):
            carry_out(World("auto", HOLD_MS, is_lazy=mutant in LAZY), [*before, *aimed])

    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        with pytest.raises(AssertionError, match=FINDINGS):
            same()


@pytest.mark.parametrize("mutant", AIMED)
def test_the_sound_connector_passes_where_a_broken_one_is_noticed(
    mutant: Callable[[pytest.MonkeyPatch], None],
) -> None:
    @given(st.lists(step, max_size=2), st.tuples(*AIMED[mutant]))
    @settings(max_examples=30, deadline=None, database=None)
    def same(before: list[Any], aimed: tuple[Any, ...]) -> None:
        carry_out(World("auto", HOLD_MS, is_lazy=mutant in LAZY), [*before, *aimed])

    same()
