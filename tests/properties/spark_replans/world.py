"""One query, driven as Spark drives it: an offset log, a commit log, a process that may end anywhere; its checkpoint,
and every output that it ever had."""

import json
import re
from typing import Any, cast

from tests.properties.spark_replans.broker import QUEUES, Broker, Client, Row
from vibemq.spark.errors import Refused, SourceError
from vibemq.spark.options import STREAM, parse
from vibemq.spark.read import stream
from vibemq.spark.read.fetching import PlannedBatch
from vibemq.spark.read.numbering import enter_batch
from vibemq.spark.schema import read_schema


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
    """One query, its checkpoint, and every output that it ever had."""

    def __init__(
        self, ack_on: str, hold_ms: int, *, is_lazy: bool = False, queue_count: int = 2, has_pattern: bool = False
    ) -> None:
        """`has_pattern`: the query reads whichever queues there are; others may come."""
        self.broker = Broker(QUEUES[:queue_count])
        self.has_pattern = has_pattern
        self._options = {"endpoint": "x:1", "group": "etl", "pollTimeout": "0", "ackOn": ack_on}
        self._options |= {"queuePattern": "*"} if has_pattern else {"queues": ",".join(self.broker.queues)}
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
        self.published: set[Row] = set()
        self.expiring: dict[Row, int] = {}
        """When what its sender lets expire does."""
        self.excused: set[Row] = set()
        """Rows that nobody has promised any more: expired, or skipped, purged or deleted by hand, and the query was
        refused where it had to be."""
        self.due_at = 0
        """When the last delayed message is."""
        self.copies: list[Any] = []
        self.latest = 0
        """The latest instant that the broker has had."""
        self.reader: Any = None
        self.older: list[tuple[Any, str]] = []
        self.rerun = True
        self.fails_on_loss = True
        self.decision = "refuse"
        """`newCheckpoint`, as it was set last: nobody removes it."""

    # -- Spark ------------------------------------------------------------------------------------------------------

    def start(self, limit: int, **more: str) -> None:
        """A new process of the driver; the one before may come back."""
        self.fails_on_loss = more.get("failOnDataLoss") != "false"
        if self.reader is not None and self.offsets:
            self.older.append((self.reader, self.offsets[max(self.offsets)]))
        options = {**self._options, "maxMessagesPerTrigger": f"{limit}", "newCheckpoint": self.decision, **more}
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
            if "batch" in task.value:
                self._enter(task.value["batch"], number)
            found += self.broker.rows(task.value, fails_on_loss=self.fails_on_loss)
        return found

    def _enter(self, planned: PlannedBatch, number: int) -> None:
        try:
            enter_batch(cast(Any, Client(self.broker)), "etl", planned, self.entered_as(), number)
        except SourceError as error:
            if self.fails_on_loss or not error.says_queue_is_gone:
                raise

    def entered_as(self) -> str:
        return f"query-{self.query}"

    def run(self, limit: int, dies: str, **more: str) -> None:
        """Micro-batches until there is nothing, or until the driver dies in one. A query that cannot begin because
        delayed messages wait is started again when they are due."""
        try:
            self._run(limit, dies, **more)
        except Refused as error:
            driver = self.broker.driver
            if "has delayed messages" not in str(error) or driver.now > self.due_at:
                raise
            driver.advance(self.due_at + 1 - driver.now)
            self._run(limit, dies, **more)

    def _run(self, limit: int, dies: str, **more: str) -> None:
        self.start(limit, **more)
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

    # -- producers --------------------------------------------------------------------------------------------------

    def publish(self, queue: str, count: int, *, expires_in_ms: int = 0, due_in_ms: int = 0) -> None:
        driver, extra = self.broker.driver, {}
        if expires_in_ms:
            extra["expires_at"] = driver.now + expires_in_ms
        if due_in_ms:
            extra["deliver_at"] = driver.now + due_in_ms
        answer = driver.publish(count, queue=queue, **extra)
        if isinstance(answer, Exception):
            assert due_in_ms, answer  # A queue that a cursor reads takes no delayed messages.
            return
        generation = self.broker.generation_now(queue)
        rows = {(queue, generation, answer.first_sequence + index) for index in range(count)}
        self.published |= rows
        if expires_in_ms:
            self.expiring |= dict.fromkeys(rows, extra["expires_at"])
        if due_in_ms:
            self.due_at = max(self.due_at, extra["deliver_at"])

    def unread(self, queue: str, below: int = 1 << 60) -> set[Row]:
        """What is in no output, of the queue that has the name now."""
        generation = self.broker.generation_now(queue)
        of_queue = {row for row in self.published if row[:2] == (queue, generation) and row[2] < below}
        return of_queue - self.written() - self.excused

    def knows(self, queue: str) -> bool:
        """Whether the newest checkpoint has a position of the queue of that name."""
        return bool(self.offsets) and queue in json.loads(self.offsets[max(self.offsets)])["q"]

    def owns(self, reader: Any) -> bool:
        """Whether nobody has joined since."""
        joined = reader._live._cursors._joined
        now = {queue: self.broker.verb("group.offsets", queue, {"group": "etl"}) for queue in joined}
        return any(
            not isinstance(answer, Refused) and answer["epoch"] == joined[queue].epoch for queue, answer in now.items()
        )

    def has_group(self, queue: str) -> bool:
        return not isinstance(self.broker.verb("group.offsets", queue, {"group": "etl"}), Refused)

    def written(self) -> set[Row]:
        return {row for sink in self.outputs for row in sink.rows()}

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
            if error.code in ("PLAN_UNKNOWN", "BATCH_CHANGED") and self.has_pattern:
                # Queues have come before anything was acknowledged: the group is sought, as the error says.
                self.seek("earliest")
            else:
                self.decision = printed(error, how)
                self.new_output()
        try:
            self.run(100, dies)
        except Refused as error:
            if not self.due_at:
                raise
            # Delayed messages kept it from joining all queues: it is asked once more.
            self.decision = printed(error, how)
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
        for queue in self.broker.queues:
            self.excused |= self.seek_queue(queue, start)

    def seek_queue(self, queue: str, start: str) -> set[Row]:
        """Returns what is skipped, and has not been read; if the query goes on from there, that was meant."""
        word, _, at = start.partition(":")
        if at:
            start = f"{word}:{min(int(at), self.broker.tail(queue))}"
        answer = self.broker.verb("group.seek", queue, {"group": "etl", "start": start})
        return set() if isinstance(answer, Refused) else self.unread(queue, int(answer["committed"]))

    def check(self) -> None:
        for sink in self.outputs:
            rows = sink.rows()
            assert len(rows) == len(set(rows)), "a row is twice in one output"
        self.note_expired()
        for queue, committed in self.committed().items():
            lacking = self.unread(queue, committed)
            assert not lacking, f"acknowledged and not written: {sorted(lacking)}"

    def check_all_arrived(self) -> None:
        self.note_expired()
        written = self.written()
        assert written <= self.published, f"nobody has published: {sorted(written - self.published)}"
        lacking = self.published - written - self.excused
        assert not lacking, f"not everything arrived: {sorted(lacking)}"

    def note_expired(self) -> None:
        self.latest = max(self.latest, self.broker.driver.now)
        self.excused |= {row for row, at in self.expiring.items() if at <= self.latest}

    def committed(self) -> dict[str, int]:
        found = {}
        for queue in self.broker.queues:
            answer = self.broker.verb("group.offsets", queue, {"group": "etl"})
            found[queue] = 1 if isinstance(answer, Refused) else int(answer["committed"])
        return found


def printed(error: Refused, how: str) -> str:
    """The value of the option that the refusal names."""
    found = re.search(rf"newCheckpoint=({how}:[0-9a-f]{{16}}), ", str(error))
    if found is None:
        raise UnexpectedRefusal(f"no value for {how}") from error
    return found[1]


def _die(dies: str, here: str) -> None:
    if dies == here:
        raise Died
