"""Bring the SQLite file of the .NET VibeMQ into a store of ours.

    queues(name, options_json, created_at)                       -> QueueCreated and its default group
    messages(id, queue_name, payload_json, timestamp,
             headers_json, version, priority, delivery_attempts) -> MessagesAdded, in order of timestamp
    dead_letters(id, message_id, message_json, reason, failed_at) -> MessagesAdded and DeadLettered

Times are ISO-8601 text, options camelCase JSON with integer enums, durations .NET TimeSpan text. A payload is the UTF-8
text that the .NET broker would deliver. Delivery attempts were never kept by the .NET broker (the column is always 0),
so messages start fresh.

A row that cannot be read is reported and left out; the rest goes on. Messages go in batches of one append each. How far
this file has come in a queue is kept with each batch, as the version of an application of its own (`importer_of`), so a
second run with `resume=True` goes on there, whoever has used the queue meanwhile.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from vibemq.errors import ConfigInvalid, QueueExists, VibeMQError
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import check_queue_name
from vibemq.model.records import (
    ALL_GROUPS,
    DEFAULT_GROUP,
    DeadFacts,
    DeadLettered,
    GroupCreated,
    MessagesAdded,
    QueueCreated,
    Record,
    TransactionDecided,
)
from vibemq.model.rows import Rows, pack_row
from vibemq.model.stored import IMPORT_PREFIX, StoredState
from vibemq.storage.importers import dotnet_values as dotnet
from vibemq.storage.interface import IStorageProvider, Progress
from vibemq.storage.state.reducer import DeadTable, apply

TABLES = ("queues", "messages", "dead_letters")
BATCH_ROWS = 500
NOBODY = "*dotnet"
"""In the place of the user to whom an import belongs: `import_of` quotes the star of a user's name."""
BEGUN = 1
"""The position in a queue of which no message has been imported; 0 is that of a queue that has nothing to do with the
file."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BadRow:
    table: str
    key: str
    why: str


@dataclass(slots=True)
class ImportReport:
    queues: int = 0
    messages: int = 0
    dead_letters: int = 0
    skipped: int = 0
    """There already, from an import that was interrupted."""
    bad: list[BadRow] = field(default_factory=list)


def import_dotnet(
    source: Path,
    storage: IStorageProvider,
    state: StoredState,
    *,
    incarnation: Callable[[], str],
    now: int,
    resume: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> ImportReport:
    """Append everything the file holds; `storage` is open and `state` is what its `open()` returned.

    Args:
        state: is kept up to date with what is appended.
        incarnation: random hex for a new queue.
        now: milliseconds; stands in for a time that is missing.
        resume: go on where an earlier run with this file was interrupted.
        dry_run: read and report, append nothing.

    Raises:
        QueueExists: a queue of the file is in the store already and has had messages, which are not of an earlier run
            with this file; or they are, and `resume` is not set.
        ConfigInvalid: the file is missing or is no database of the .NET VibeMQ.
        StorageError: appending failed; run again with `resume=True`.
    """
    with _opened(source) as connection:
        return _Import(connection, storage, state, incarnation, now, resume, dry_run, progress).run()


def check_source(source: Path) -> None:
    """Raises ConfigInvalid where `import_dotnet` would at once; for callers who have no store yet."""
    with _opened(source) as connection:
        for table in TABLES:
            connection.execute(f"SELECT 1 FROM {table} LIMIT 1")  # noqa: S608 - constants


@contextmanager
def _opened(source: Path) -> Iterator[sqlite3.Connection]:
    if not source.is_file():
        raise ConfigInvalid(f"{source} is not a file")
    try:
        with closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            # Damaged text is reported row by row, not raised by the cursor.
            connection.text_factory = lambda raw: raw.decode(errors="replace")
            yield connection
    except sqlite3.Error as exc:
        raise ConfigInvalid(f"{source} cannot be read as a database of the .NET VibeMQ: {exc}") from exc


def _file_id(connection: sqlite3.Connection) -> str:
    """The same wherever the file lies, until somebody changes what is in it."""
    digest = sha256()
    for columns in ("name FROM queues ORDER BY name", "id, queue_name, timestamp FROM messages ORDER BY id",
                    "id, message_id, failed_at FROM dead_letters ORDER BY id"):  # fmt: skip
        for row in connection.execute(f"SELECT {columns}"):
            digest.update(repr(tuple(row)).encode())
    return digest.hexdigest()[:32]


class _Import:
    def __init__(
        self,
        connection: sqlite3.Connection,
        storage: IStorageProvider,
        state: StoredState,
        incarnation: Callable[[], str],
        now: int,
        resume: bool,
        dry_run: bool,
        progress: Progress | None,
    ) -> None:
        self._connection = connection
        self._storage = storage
        self._state = state
        self._incarnation = incarnation
        self._now = now
        self._resume = resume
        self._dry_run = dry_run
        self._progress = progress
        self._dead = DeadTable()
        self._report = ImportReport()
        self._done = 0
        self._total = 0
        self._ids: dict[str, int] = {}
        self._file_id = _file_id(connection)

    def run(self) -> ImportReport:
        self._total = sum(self._count(table) for table in TABLES)
        queues = list(self._connection.execute("SELECT * FROM queues ORDER BY created_at, name"))
        self._refuse_existing([str(row["name"]) for row in queues])
        records = [self._step(self._queue, "queues", str(row["name"]), row) or [] for row in queues]
        if made := [record for several in records for record in several]:
            # Together: what others put into a queue of the file meanwhile would refuse the rest of it.
            self._append(made)
        for name in list(self._ids):
            self._messages(name)
        self._orphans()
        self._dead_letters()
        if not self._dry_run:
            self._storage.sync()
        self._tell(0)
        return self._report

    def _count(self, table: str) -> int:
        return int(self._connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608 - constants

    def _refuse_existing(self, names: list[str]) -> None:
        known = {queue.name: queue for queue in self._state.queues.values() if not queue.deleted}
        for name in names:
            queue = known.get(name)
            if queue is None:
                continue
            if self._position(self._messages_app(queue.queue_id)):
                if not self._resume:
                    raise QueueExists(name, "an earlier run has begun to import this file; go on with resume")
            elif queue.next_sequence > 1 or queue.groups.keys() - {DEFAULT_GROUP}:
                raise QueueExists(
                    name,
                    "it has had messages that are not of this file; import into another store, and bring them together "
                    "with `vibemq-admin queue export` and `queue import`",
                )

    # -- how far the file has come ----------------------------------------------------------------------------------

    def _messages_app(self, queue_id: int) -> str:
        return f"{IMPORT_PREFIX}{queue_id}/{NOBODY}/messages-{self._file_id}"

    def _letters_app(self, queue_id: int) -> str:
        return f"{IMPORT_PREFIX}{queue_id}/{NOBODY}/letters-{self._file_id}"

    def _position(self, app: str) -> int:
        known = self._state.transactions.get(app)
        return known.version if known is not None else 0

    def _at(self, app: str, position: int) -> Record:
        return TransactionDecided(app, position, self._now, [])

    def _append(self, records: list[Record]) -> None:
        if not self._dry_run:
            self._storage.append(records)
        for record in records:
            apply(self._state, record, self._dead)

    def _step(self, act: Callable[[sqlite3.Row], T], table: str, key: str, row: sqlite3.Row) -> T | None:
        """What `act` makes of the row; None when the row is bad, which is then reported."""
        self._tell(1)
        try:
            return act(row)
        except (ValueError, TypeError, KeyError, AttributeError, VibeMQError) as exc:
            if isinstance(exc, VibeMQError) and not exc.code.startswith("INVALID"):
                raise
            self._report.bad.append(BadRow(table, key, str(exc)))
            return None

    def _tell(self, rows: int) -> None:
        self._done += rows
        if self._progress is not None:
            self._progress(self._done, self._total)

    def _instant(self, value: object, missing: int) -> int:
        """Never in the future: what is numbered by time would go on from there."""
        return min(dotnet.instant(value, missing), self._now)

    # -- queues ---------------------------------------------------------------------------------------------------

    def _queue(self, row: sqlite3.Row) -> list[Record]:
        name = check_queue_name(str(row["name"]))
        for queue in self._state.queues.values():
            if queue.name == name and not queue.deleted:
                self._ids[name] = queue.queue_id
                app = self._messages_app(queue.queue_id)
                return [] if self._position(app) else [self._at(app, BEGUN)]
        options = dotnet.options(dotnet.json_object(row["options_json"], "options_json"))
        queue_id = self._state.next_queue_id + self._report.queues
        created_at = self._instant(row["created_at"], self._now)
        self._ids[name] = queue_id
        self._report.queues += 1
        return [
            QueueCreated(queue_id, name, options, created_at, self._incarnation()),
            GroupCreated(queue_id, DEFAULT_GROUP, "", True, 1),
            self._at(self._messages_app(queue_id), BEGUN),
        ]

    # -- messages -------------------------------------------------------------------------------------------------

    def _messages(self, name: str) -> None:
        queue_id = self._ids[name]
        before = position = self._position(self._messages_app(queue_id))
        batch: list[tuple[bytes, int, int]] = []
        # As text, like the .NET broker: that is the order in which it would have delivered them.
        rows = self._connection.execute(
            "SELECT * FROM messages WHERE queue_name = ? ORDER BY timestamp, rowid", (name,)
        )
        for position, row in enumerate(rows, BEGUN + 1):
            message = self._step(self._message, "messages", str(row["id"]), row)
            if message is None:
                continue
            if position <= before:
                self._report.skipped += 1
                continue
            batch.append(message)
            if len(batch) == BATCH_ROWS:
                self._add(queue_id, batch, position)
                batch = []
        self._add(queue_id, batch, position)

    def _message(self, row: sqlite3.Row) -> tuple[bytes, int, int]:
        """(row, published_at, priority)."""
        message_id = dotnet.text(row["id"], "id")
        payload = b"" if row["payload_json"] is None else dotnet.text(row["payload_json"], "payload_json").encode()
        headers = dotnet.headers_text(row["headers_json"])
        return (
            pack_row(message_id, payload, headers),
            self._instant(row["timestamp"], self._now),
            dotnet.priority(row["priority"]),
        )

    def _add(self, queue_id: int, batch: list[tuple[bytes, int, int]], position: int) -> None:
        """One append for the batch and the position of its last row; a record for each stretch of one instant."""
        records: list[Record] = []
        first = self._state.queues[queue_id].next_sequence
        for published_at, stretch in dotnet.stretches(batch):
            extras = {i: MessageExtra(priority=priority) for i, (_, _, priority) in enumerate(stretch) if priority != 1}
            rows = Rows.of([row for row, _, _ in stretch])
            records.append(MessagesAdded(queue_id, first, published_at, rows, extras or None))
            first += len(stretch)
        if records:
            self._append([*records, self._at(self._messages_app(queue_id), position)])
            self._report.messages += len(batch)

    def _orphans(self) -> None:
        marks = ", ".join("?" * len(self._ids))
        for row in self._connection.execute(
            f"SELECT id, queue_name FROM messages WHERE queue_name NOT IN ({marks})",  # noqa: S608 - only marks
            tuple(self._ids),
        ):
            self._tell(1)
            why = f"its queue {row['queue_name']!r} was not imported"
            self._report.bad.append(BadRow("messages", str(row["id"]), why))

    # -- dead letters ---------------------------------------------------------------------------------------------

    def _dead_letters(self) -> None:
        rows = self._connection.execute("SELECT * FROM dead_letters ORDER BY failed_at, id")
        for position, row in enumerate(rows, 1):
            self._step(partial(self._dead_letter, position), "dead_letters", str(row["id"]), row)

    def _dead_letter(self, position: int, row: sqlite3.Row) -> None:
        message = {key.lower(): value for key, value in dotnet.json_object(row["message_json"], "message_json").items()}
        name = dotnet.text(message.get("queuename"), "queueName")
        queue_id = self._ids.get(name)
        if queue_id is None:
            raise ValueError(f"its queue {name!r} was not imported")
        app = self._letters_app(queue_id)
        if position <= self._position(app):
            self._report.skipped += 1
            return
        payload = message.get("payload")
        raw = b"" if payload is None else dotnet.payload_text(payload).encode()
        row_bytes = pack_row(dotnet.text(message.get("id"), "id"), raw, dotnet.headers(message.get("headers")))
        failed_at = self._instant(row["failed_at"], self._now)
        published_at = self._instant(message.get("timestamp"), failed_at)
        sequence = self._state.queues[queue_id].next_sequence
        attempts = message.get("deliveryattempts")
        tries = attempts if isinstance(attempts, int) and attempts >= 0 else 0
        reason = dotnet.reason(row["reason"])
        facts = DeadFacts(self._state.next_dead_id, sequence, reason, "", tries, tries, failed_at, failed_at)
        priority = dotnet.priority(message.get("priority", 1))
        extras = {0: MessageExtra(priority=priority)} if priority != 1 else None
        self._append(
            [
                MessagesAdded(queue_id, sequence, published_at, Rows.of([row_bytes]), extras),
                DeadLettered(queue_id, ALL_GROUPS, [facts]),
                self._at(app, position),
            ]
        )
        self._report.dead_letters += 1
