"""What a transaction is called, so that the same write has the same name in every run of its query.

A write of a stream is (query id, queue, batch id); Spark sets the ids in tasks. The queue is the option's: a copy of a
checkpoint has the id of the query, and may write elsewhere. In `foreachBatch` a batch may be written to one
queue several times, and nothing tells these writes apart but their order. So each of them is entered, by its first
task, into a *register* that the broker keeps for the query and the queue: the n-th write of a run of the batch is
write n. A *run* is one attempt at a batch: (application id, root execution id), new with every driver and every start
of the query. The register is an application without stages: its next version is the next entry, which only one of
several callers can write, and the version's tag is the entry itself.

A name that is given (`txnAppId`) belongs to one write of a run. Who commits it a second time is told the tag of the
first; when the first was a replay, that has a tag of another run, and so replays are *claimed*, in a register too.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256

from vibemq.spark.connection.client import BrokerClient
from vibemq.spark.errors import Refused, SourceError, explained

APP_BYTES_MAX = 256
RUN_UNITS = 12
RUNS_REMEMBERED = 14
"""As many as fit into a tag beside the rest."""

NAME_THEM = (
    "Give each write of the batch a txnAppId of its own, the query's id with a word for the write, and the batch id as"
    " txnVersion"
)
NO_IDENTITY = (
    "exactlyOnce needs the name of the batch, and Spark does not tell it here: in a batch write, in foreachBatch over"
    " Spark Connect, and in threads of foreachBatch. Give txnAppId and txnVersion, such as the query's id with a word"
    " for the write, and the batch id; a write that is only to be published as a whole or not at all says atomic=true."
    " Nothing was written"
)


@dataclass(frozen=True)
class BatchWrite:
    """What Spark tells a task about the write that it belongs to."""

    query: str
    batch: int
    run: str
    """Empty: not known."""
    execution: int
    """Larger than that of every earlier write of the run."""

    @classmethod
    def of(cls, told: Callable[[str], str | None]) -> "BatchWrite | None":
        """From the local properties of a task; None outside a stream."""
        query, batch = told("sql.streaming.queryId"), told("streaming.sql.batchId")
        if not query or not batch:
            return None
        application, root = told("spark.app.id"), told("spark.sql.execution.root.id")
        # The job group is the run of the query unless a program has set another one.
        run = f"{application}/{root}" if application and root else told("spark.jobGroup.id") or ""
        short = sha256(run.encode()).hexdigest()[:RUN_UNITS] if run else ""
        return cls(query, int(batch), short, int(told("spark.sql.execution.id") or 0))


@dataclass(frozen=True)
class Entry:
    """The last write of a run that has begun."""

    run: str
    execution: int
    number: int
    done: bool = False
    older: tuple[str, ...] = ()
    """Runs before this one, the latest first."""

    @classmethod
    def parse(cls, tag: str) -> "Entry | None":
        """None for the empty tag of a new register."""
        if not tag:
            return None
        state, number, execution, run, *older = tag.split()
        return cls(run, int(execution), int(number), state == "done", tuple(older))

    def __str__(self) -> str:
        state = "done" if self.done else "open"
        return " ".join((state, f"{self.number}", f"{self.execution}", self.run, *self.older))


@dataclass(frozen=True)
class Place:
    """Where a write stands in its register."""

    register: str
    entry: Entry
    version: int
    """Of the entry."""


def begin(client: BrokerClient, write: BatchWrite, queue: str) -> Place:
    """Enter the write into the register of its query and this queue; the same for all of its tasks.

    Raises:
        SourceError: it is not certain which write of the batch this is.
        Refused, Unreachable: as `BrokerClient.call`.
    """
    register = application(f"{write.query}.writes", queue)
    version, entry = _exchange(client, register, 0, "")
    while True:
        wanted = following(entry, write)
        if wanted == entry:
            return Place(register, wanted, version)
        version, entry = _exchange(client, register, version + 1, str(wanted))


def end(client: BrokerClient, place: Place) -> None:
    """It is committed, and the next one may begin. Without effect when another run has taken over."""
    _exchange(client, place.register, place.version + 1, str(replace(place.entry, done=True)))


def claim(client: BrokerClient, register: str, version: int, run: str, stage: str) -> bool:
    """Whether this write may take the committed version for its own of an earlier run: False when another write of
    this run has done so, with this version or a later one.

    Raises:
        SourceError, Unreachable: as `begin`.
    """
    wanted = f"{version} {run} {stage}"
    last, tag = _exchanged(client, register, 0, "")
    while tag != wanted:
        claimed, by, _ = tag.split() if tag else ("-1", "", "")
        if by == run and int(claimed) >= version:
            return False
        last, tag = _exchanged(client, register, last + 1, wanted)
    return True


def _exchange(client: BrokerClient, register: str, version: int, tag: str) -> tuple[int, Entry | None]:
    last, told = _exchanged(client, register, version, tag)
    return last, Entry.parse(told)


def _exchanged(client: BrokerClient, register: str, version: int, tag: str) -> tuple[int, str]:
    """Write this version if there is none yet; the last version and its tag."""
    try:
        answer = client.call("transaction.commit", "", {"app": register, "version": version, "stages": [], "tag": tag})
    except Refused as error:
        raise explained(error, register) from None
    return int(answer["version"]), str(answer["tag"])


def following(last: Entry | None, write: BatchWrite) -> Entry:
    """The register's entry while this write is under way: `last` itself if it is there already."""
    if last is None or write.run not in (last.run, *last.older):
        older = () if last is None else (last.run, *last.older)[:RUNS_REMEMBERED]
        return Entry(write.run, write.execution, 1, older=older)
    if write.run != last.run:
        raise SourceError(
            f"another run of query {write.query} writes batch {write.batch} or a later one: two drivers have the same"
            " checkpoint. Nothing of this write was published"
        )
    if write.execution == last.execution:
        return last
    if write.execution < last.execution or not last.done:
        raise SourceError(
            f"another exactlyOnce write of batch {write.batch} to this queue has begun and is not committed: it runs at"
            " the same time, or it has failed. Without a name it cannot be told which of them this one is."
            f" {NAME_THEM}. Nothing of this write was published"
        )
    return replace(last, execution=write.execution, number=last.number + 1, done=False)


def application(query: str, queue: str) -> str:
    """Of the writes of a query to a queue; a long name is cut to what an application may have."""
    name = f"{query}/{queue}"
    if len(name.encode()) <= APP_BYTES_MAX:
        return name
    return f"{query}/{sha256(queue.encode()).hexdigest()}"


def application_of(query: str, queue: str, number: int) -> str:
    """Of the n-th write of a batch."""
    return application(query if number == 1 else f"{query}.{number}", queue)
