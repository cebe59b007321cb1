"""What people do by hand to a query, as steps of a program, and what must be true after each."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from hypothesis import strategies as st

from tests.properties.spark_replans.broker import HOLD_MS, QUEUES, Row
from tests.properties.spark_replans.world import UnexpectedRefusal, World, printed
from vibemq.model.commands import DeleteGroup, PurgeQueue
from vibemq.spark.errors import DataLoss, Refused, SourceError

HOUR_MS = 3_600_000

number = st.integers(1, 4)
nothing = st.just(0)
queues = st.sampled_from(QUEUES)
deaths = st.sampled_from(["", "", "planned", "noted", "read", "written"])
starts = st.sampled_from(["earliest", "latest", "sequence:3", "sequence:7"])
after_loss = st.sampled_from(["anew", "careless"])
step = st.one_of(
    st.tuples(st.just("publish"), queues, st.integers(1, 9)),
    st.tuples(st.just("run"), st.integers(1, 12), deaths),
    st.tuples(st.just("run"), st.integers(1, 12), deaths),
    st.tuples(st.just("roll back"), number, nothing),
    st.tuples(st.just("forget commits"), number, nothing),
    st.tuples(st.just("lose"), st.sampled_from(["continue", "replay"]), deaths),
    st.tuples(st.just("lose"), st.sampled_from(["continue", "replay"]), deaths),
    st.tuples(st.just("seek"), starts, nothing),
    st.tuples(st.just("wait"), st.sampled_from([100, HOLD_MS + 1]), nothing),
    st.tuples(st.just("restart broker"), nothing, nothing),
    st.tuples(st.just("older driver"), nothing, nothing),
    st.tuples(st.just("delete group"), queues, nothing),
    st.tuples(st.just("without rows"), st.integers(1, 12), deaths),
    st.tuples(st.just("without rows"), st.integers(1, 12), deaths),
    st.tuples(st.just("count from 0"), st.sampled_from(["", "continue", "replay"]), nothing),
    st.tuples(st.just("roll back and seek"), number, nothing),
    st.tuples(st.just("put back"), nothing, nothing),
    st.tuples(st.just("publish expiring"), queues, st.sampled_from([1, 5, HOLD_MS // 2])),
    st.tuples(st.just("publish delayed"), queues, st.sampled_from([2, 50, HOLD_MS])),
    st.tuples(st.just("copy"), nothing, nothing),
    st.tuples(st.just("other cluster"), st.integers(1, 12), deaths),
    st.tuples(st.just("seek under it"), queues, starts),
    st.tuples(st.just("purge"), queues, after_loss),
    st.tuples(st.just("queue anew"), queues, after_loss),
    st.tuples(st.just("delete queue"), queues, after_loss),
    st.tuples(st.just("new queue"), nothing, nothing),
    st.tuples(st.just("clock"), st.sampled_from([-HOUR_MS, -2_000, 5_000, HOUR_MS]), nothing),
)
programs = st.lists(step, min_size=3, max_size=25)


@contextmanager
def surroundings() -> Iterator[None]:
    """Thousands of queries that are started again and again say so in the log; and patterns are looked up at once."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("cursors", "plans", "admission", "fetching", "stream", "numbering"):
            patch.setattr(f"vibemq.spark.read.{module}.notice", lambda sentence: None)
        patch.setattr("vibemq.spark.read.stream.DISCOVERY_S", -1.0)
        yield


def carry_out(world: World, program: list[tuple[str, Any, Any]]) -> None:
    with surroundings():
        for verb, what, more in program:
            _do(world, verb, what, more)
            world.check()
        _run(world, 100, "")
        world.check()
        world.check_all_arrived()


def _do(world: World, verb: str, what: Any, more: Any) -> None:
    saved, before = (dict(world.offsets), set(world.commits)), world.checkpoint()
    if what in QUEUES and what not in world.broker.queues:
        what = world.broker.queues[0]
    match verb:
        case "publish":
            world.publish(what, more)
        case "publish expiring":
            world.publish(what, 3, expires_in_ms=more)
        case "publish delayed":
            world.publish(what, 3, due_in_ms=more)
        case "run":
            _run(world, what, more)
        case "roll back":
            world.roll_back(what)
            _run(world, 100, "", saved)
        case "forget commits":
            world.commits -= set(sorted(world.offsets, reverse=True)[:1])
            _run(world, 100, "", saved)
        case "lose":
            try:
                world.lose_checkpoint(what, more)
            except DataLoss:
                if not world.is_handled:
                    raise
                _anew(world)
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
        case "clock":
            world.broker.driver.restart(down_ms=what)
        case "older driver":
            _wake(world)
        case "delete group":
            _delete_group(world, what)
        case _:
            _do_to_queues(world, verb, what, more)


def _do_to_queues(world: World, verb: str, what: Any, more: Any) -> None:
    match verb:
        case "copy":
            world.copies.append(world.checkpoint())
        case "other cluster":
            if world.copies:
                _go_on_elsewhere(world, world.copies[-1], what, more)
        case "seek under it":
            skipped = world.seek_queue(what, more)
            if not world.offsets:
                world.excused |= skipped  # The query begins where the group was moved.
            _run_after_loss(world, skipped, "anew", may=True)
        case "purge":
            lost = world.unread(what)
            world.broker.driver.ask(PurgeQueue(1, None, what))
            if not world.has_group(what):
                world.excused |= lost
            _run_after_loss(world, lost, more)
            # What a checkpoint that is rolled back, or lost, would repeat may be gone.
            world.is_handled = True
        case "queue anew":
            _lose_queue(world, what, more)
            world.broker.create(what)
            _run_after_loss(world, set(), more, must=world.knows(what))
        case "delete queue":
            if world.has_pattern and len(world.broker.queues) > 1:
                knew = world.knows(what)
                _lose_queue(world, what, more)
                _run_after_loss(world, set(), more, must=knew)
        case "new queue":
            for queue in QUEUES:
                if world.has_pattern and queue not in world.broker.queues:
                    world.broker.create(queue)
        case _:
            raise AssertionError(verb)


def _lose_queue(world: World, queue: str, how: str) -> None:
    """Whoever deletes a queue does not want what is in it; the query must not take other rows for them."""
    world.excused |= world.unread(queue)
    world.broker.delete(queue)


def _run_after_loss(world: World, lost: set[Row], how: str, *, must: bool = False, may: bool = False) -> None:
    """The query is refused, if something was lost for it; then it begins anew, or goes on behind the loss.

    Args:
        lost: what nobody has read, and is gone.
        must: whether the query has to be refused also if nothing is.
        may: whether it may.
    """
    is_pending = max(world.offsets, default=-1) not in world.commits
    try:
        world.run(100, "")
    except SourceError as error:
        if may:
            world.excused |= lost
        world.check()
        if not (lost or must or may or is_pending or world.is_handled or world.without_rows):
            raise UnexpectedRefusal("refused, and nothing was lost") from error
        world.excused |= lost
        if how == "careless" and isinstance(error, DataLoss):
            _run_carelessly(world)
        else:
            _anew(world)
        return
    if must:
        raise UnexpectedRefusal("a query went on whose queue is gone")


def _run_carelessly(world: World) -> None:
    """The query goes on, but where it has come among batches without rows."""
    try:
        world.run(100, "", failOnDataLoss="false")
    except Refused:
        if not (world.is_handled or world.without_rows):
            raise
    world.check()
    # Until it has made a batch its checkpoint knows the queue, and without the option it is refused again.
    world.is_handled = True
    _run(world, 100, "")


def _go_on_elsewhere(world: World, copy: Any, limit: int, dies: str) -> None:
    """Another cluster has a copy of the checkpoint."""
    before = world.checkpoint()
    world.put_back(copy)
    if copy[2] == before[2]:
        _run(world, limit, dies, before[:2])
    else:
        _try_by_hand(world, before, "")


def _delete_group(world: World, queue: str) -> None:
    # Of an uncommitted first batch the group of the first queue alone knows how it was cut; nobody asks it if the sink
    # has the batch and leaves it out.
    is_first = world.offsets and queue == world.broker.queues[0] and not world.sink.leaves_out(0)
    if world.knows(queue) and (0 in world.commits or is_first):
        world.broker.driver.ask(DeleteGroup(1, None, queue, "etl"))
        _expect_refusal(world)
        _anew(world)


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
            world.decision = printed(error, how)
            world.offsets, world.commits = {}, set()
            world.run(100, "")
    except SourceError:
        pass
    world.check()
    world.put_back(before)
    if 0 not in world.commits and world.sink.batches.get(0) == []:
        # Two queries count from 0: the page says that a table of finished batches must tell them apart.
        world.new_output()
    _run(world, 100, "")


def _wake(world: World) -> None:
    """A driver that was frozen goes on where it was, and knows nothing of the others."""
    for reader, start in world.older:
        if world.owns(reader):
            continue  # The next driver has not asked the broker for anything yet.
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
    for queue in world.broker.queues:
        world.broker.driver.ask(DeleteGroup(1, None, queue, "etl"))
    world.forget_checkpoint()
    world.new_output()
    world.is_handled, world.without_rows = False, set()
    _run(world, 100, "")
