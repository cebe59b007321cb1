"""The importer against a file laid out as docs/spec/native.md, section 8.2, says."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from vibemq.errors import ConfigInvalid, QueueExists, StorageFull
from vibemq.model.options import DeliveryMode, Overflow, QueueOptions
from vibemq.model.records import DEFAULT_GROUP, GroupCreated, MessagesAdded, QueueCreated, Reason, Record
from vibemq.model.rows import Rows, RowView, pack_row
from vibemq.storage.importers.dotnet import ImportReport, import_dotnet
from vibemq.storage.importers.dotnet_values import instant, options, time_span_ms
from vibemq.storage.memory.provider import MemoryStorage

SCHEMA = """
CREATE TABLE queues (name TEXT PRIMARY KEY, options_json TEXT NOT NULL, created_at TEXT NOT NULL);
CREATE TABLE messages (
    id TEXT PRIMARY KEY, queue_name TEXT NOT NULL REFERENCES queues(name) ON DELETE CASCADE, payload_json TEXT,
    timestamp TEXT NOT NULL, headers_json TEXT, version INTEGER NOT NULL DEFAULT 1,
    priority INTEGER NOT NULL DEFAULT 1, delivery_attempts INTEGER NOT NULL DEFAULT 0);
CREATE TABLE dead_letters (
    id INTEGER PRIMARY KEY AUTOINCREMENT, message_id TEXT NOT NULL, message_json TEXT NOT NULL,
    reason INTEGER NOT NULL, failed_at TEXT NOT NULL);
"""
ORDERS = {
    "mode": 3,
    "maxQueueSize": 500,
    "messageTtl": "1.02:03:04.5000000",
    "enableDeadLetterQueue": True,
    "deadLetterQueueName": "orders.dlq",
    "overflowStrategy": 1,
    "maxRetryAttempts": 7,
}
T0 = "2026-01-02T03:04:05.0000000Z"
T0_MS = 1_767_323_045_000
NOW = T0_MS + 86_400_000


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "vibemq.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript(SCHEMA)
        db.execute("INSERT INTO queues VALUES ('orders', ?, ?)", (json.dumps(ORDERS), T0))
        db.execute("INSERT INTO queues VALUES ('mail', '{}', ?)", (T0,))
    return path


@pytest.fixture
def storage() -> Iterator[MemoryStorage]:
    memory = MemoryStorage()
    memory.open()
    yield memory
    memory.close()


def put(source: Path, sql: str, *values: object) -> None:
    with closing(sqlite3.connect(source)) as db, db:
        db.execute(sql, values)


def message(
    source: Path,
    *keys: str,
    queue: str = "orders",
    payload: str | None = '{"n":1}',
    at: str = T0,
    headers: str | None = None,
    priority: object = 1,
) -> None:
    with closing(sqlite3.connect(source)) as db, db:
        rows = [(key, queue, payload, at, headers, priority) for key in keys]
        db.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?, 1, ?, 0)", rows)


def run(source: Path, storage: MemoryStorage, *, resume: bool = False, dry_run: bool = False) -> ImportReport:
    return import_dotnet(
        source, storage, storage.open(), incarnation=lambda: "ab", now=NOW, resume=resume, dry_run=dry_run
    )


def views(storage: MemoryStorage, queue_id: int) -> list[RowView]:
    return [RowView(row) for part in storage.read(queue_id, 1, 1 << 40, 1 << 40) for row in part.rows]


def test_queues_keep_their_options(source: Path, storage: MemoryStorage) -> None:
    assert run(source, storage).queues == 2
    state = storage.open()
    by_name = {queue.name: queue for queue in state.queues.values()}
    orders = by_name["orders"].options
    assert orders.mode is DeliveryMode.PRIORITY_BASED
    assert (orders.max_messages, orders.message_ttl_ms, orders.max_attempts) == (500, 93_784_500, 7)
    assert (orders.dead_letter, orders.dead_letter_name, orders.overflow) == (True, "orders.dlq", Overflow.DROP_NEWEST)
    assert by_name["orders"].created_at == T0_MS
    mail = by_name["mail"].options
    assert (mail.max_messages, mail.dead_letter, mail.overflow) == (10_000, False, Overflow.DROP_OLDEST)
    assert set(by_name["mail"].groups) == {0}


def test_messages_come_in_order_of_time(source: Path, storage: MemoryStorage) -> None:
    message(source, "late", at="2026-01-02T03:04:07.1234567Z", priority=3)
    message(source, "early", at="2026-01-02T03:04:05.5000000+00:00", headers='{"a":"ä","b":""}', payload="[1, 2]")
    message(source, "middle", at="2026-01-02T03:04:06Z", payload=None)
    report = run(source, storage)
    assert (report.messages, report.bad) == (3, [])
    queue = next(q for q in storage.open().queues.values() if q.name == "orders")
    got = views(storage, queue.queue_id)
    assert [view.message_id for view in got] == ["early", "middle", "late"]
    assert got[0].payload == b"[1, 2]"
    assert got[0].headers == {"a": "ä"}
    assert got[1].payload == b""
    assert {p: list(runs) for p, runs in queue.priorities.items()} == {3: [3]}
    parts = storage.read(queue.queue_id, 1, 9, 1 << 20)
    assert [part.published_at for part in parts] == [T0_MS + 500, T0_MS + 1_000, T0_MS + 2_123]


def test_dead_letters_come_with_message_and_reason(source: Path, storage: MemoryStorage) -> None:
    letter = {"id": "m1", "queueName": "orders", "payload": {"ü": 1}, "timestamp": T0, "headers": {"h": "v"},
              "priority": 2, "deliveryAttempts": 3}  # fmt: skip
    put(source, "INSERT INTO dead_letters VALUES (NULL, 'm1', ?, 1, '2026-01-02T03:05:05Z')", json.dumps(letter))
    assert run(source, storage).dead_letters == 1
    (dead,) = storage.dead_letters()
    view = RowView(dead.row)
    assert (view.message_id, view.payload, view.headers) == ("m1", '{"ü":1}'.encode(), {"h": "v"})
    assert (dead.queue, dead.priority, dead.published_at) == ("orders", 2, T0_MS)
    assert dead.facts.reason is Reason.EXPIRED
    assert (dead.facts.failed, dead.facts.dead_at) == (3, T0_MS + 60_000)
    assert list(storage.check()) == []


def test_a_time_of_the_future_is_now(source: Path, storage: MemoryStorage) -> None:
    """Sequences of transient queues begin with the latest time that the store knows."""
    message(source, "m1", at="9999-12-31T23:59:59.9999999")
    letter = {"id": "m2", "queueName": "orders", "timestamp": "9999-12-31T23:59:59.9999999"}
    put(source, "INSERT INTO dead_letters VALUES (NULL, 'm2', ?, 1, '9999-12-31T00:00:00Z')", json.dumps(letter))
    run(source, storage)
    assert storage.open().instant == NOW


def test_damaged_rows_are_reported_and_left_out(source: Path, storage: MemoryStorage) -> None:
    message(source, "good")
    message(source, "time", at="yesterday")
    message(source, "headers", headers="[]")
    message(source, "deep", headers="[" * 100_000)
    message(source, "priority", priority="high")
    message(source, "lost", queue="unknown")
    message(source, "x" * 70_000)
    put(source, "INSERT INTO queues VALUES ('bad name', '{}', ?)", T0)
    put(source, "INSERT INTO queues VALUES ('enum', '{\"mode\": 9}', ?)", T0)
    put(source, "INSERT INTO dead_letters VALUES (NULL, 'm', 'not json', 1, ?)", T0)
    put(source, 'INSERT INTO dead_letters VALUES (NULL, \'m\', \'{"queueName": "nowhere", "id": "m"}\', 1, ?)', T0)
    report = run(source, storage)
    assert (report.queues, report.messages, report.dead_letters) == (2, 1, 0)
    assert sorted((bad.table, bad.key[:8]) for bad in report.bad) == [
        ("dead_letters", "1"), ("dead_letters", "2"),
        ("messages", "deep"), ("messages", "headers"), ("messages", "lost"), ("messages", "priority"),
        ("messages", "time"), ("messages", "xxxxxxxx"),
        ("queues", "bad name"), ("queues", "enum"),
    ]  # fmt: skip


class Full(MemoryStorage):
    """Has no room after so many batches."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self.room = batches

    def append(self, records: list[Record]) -> int:  # type: ignore[override]
        if self.room == 0:
            raise StorageFull("no room")
        self.room -= 1
        return super().append(records)


@pytest.mark.parametrize("room", range(8))
def test_an_interrupted_import_goes_on_without_doubling(source: Path, room: int) -> None:
    message(source, *(f"m{number:05}" for number in range(1_700)))
    put(source, "UPDATE messages SET timestamp = 'bad' WHERE id = 'm00003'")
    for number in range(3):
        text = json.dumps({"id": f"d{number}", "queueName": "mail", "payload": None})
        put(source, "INSERT INTO dead_letters VALUES (NULL, ?, ?, 0, ?)", f"d{number}", text, T0)
    storage = Full(room)
    storage.open()
    with pytest.raises(StorageFull):
        run(source, storage)
    storage.room = 1_000
    report = run(source, storage, resume=True)
    orders = next(q for q in storage.open().queues.values() if q.name == "orders")
    assert [view.message_id for view in views(storage, orders.queue_id)] == [f"m{n:05}" for n in range(1_700) if n != 3]
    assert [RowView(dead.row).message_id for dead in storage.dead_letters()] == ["d0", "d1", "d2"]
    assert report.messages + report.dead_letters + report.skipped == 1_702
    storage.close()


def test_a_second_import_is_refused(source: Path, storage: MemoryStorage) -> None:
    message(source, "m1")
    run(source, storage)
    with pytest.raises(QueueExists, match="resume"):
        run(source, storage)
    again = run(source, storage, resume=True)
    assert (again.messages, again.skipped) == (0, 1)


def own_messages(storage: MemoryStorage, queue: str, count: int) -> None:
    """As a broker stores what is published there."""
    found = next(q for q in storage.open().queues.values() if q.name == queue)
    rows = Rows.of([pack_row(f"own{number}", b"", {}) for number in range(count)])
    storage.append([MessagesAdded(found.queue_id, found.next_sequence, NOW, rows, None)])


@pytest.mark.parametrize("resume", [False, True])
def test_a_queue_with_messages_of_its_own_is_refused(source: Path, storage: MemoryStorage, resume: bool) -> None:
    message(source, "m1", "m2", "m3")
    storage.append(
        [QueueCreated(1, "orders", QueueOptions(), T0_MS, "cd"), GroupCreated(1, DEFAULT_GROUP, "", True, 1)]
    )
    own_messages(storage, "orders", 2)
    with pytest.raises(QueueExists, match="not of this file"):
        run(source, storage, resume=resume)
    assert [view.message_id for view in views(storage, 1)] == ["own0", "own1"]


def test_what_a_broker_took_after_an_interruption_hides_no_row(source: Path) -> None:
    message(source, *(f"m{number:05}" for number in range(1_200)))
    storage = Full(2)
    storage.open()
    with pytest.raises(StorageFull):
        run(source, storage)
    storage.room = 1_000
    for queue in ("orders", "mail"):
        own_messages(storage, queue, 300)
    report = run(source, storage, resume=True)
    assert (report.messages, report.skipped) == (700, 500)
    orders = next(q for q in storage.open().queues.values() if q.name == "orders")
    imported = [view.message_id for view in views(storage, orders.queue_id) if view.message_id.startswith("m")]
    assert imported == [f"m{number:05}" for number in range(1_200)]
    storage.close()


def test_a_file_that_has_changed_is_another_one(source: Path) -> None:
    message(source, *(f"m{number:05}" for number in range(700)))
    storage = Full(2)
    storage.open()
    with pytest.raises(StorageFull):
        run(source, storage)
    storage.room = 1_000
    put(source, "DELETE FROM messages WHERE id = 'm00001'")
    with pytest.raises(QueueExists, match="not of this file"):
        run(source, storage, resume=True)
    storage.close()


@pytest.mark.parametrize("room", [1, 2])
def test_a_message_that_died_twice_is_two_letters(source: Path, room: int) -> None:
    text = json.dumps({"id": "m1", "queueName": "orders", "payload": None})
    for _ in range(2):
        put(source, "INSERT INTO dead_letters VALUES (NULL, 'm1', ?, 0, ?)", text, T0)
    storage = Full(room)
    storage.open()
    with pytest.raises(StorageFull):
        run(source, storage)
    storage.room = 1_000
    run(source, storage, resume=True)
    assert [RowView(dead.row).message_id for dead in storage.dead_letters()] == ["m1", "m1"]
    storage.close()


def test_a_dry_run_changes_nothing(source: Path, storage: MemoryStorage) -> None:
    message(source, "m1")
    report = run(source, storage, dry_run=True)
    assert (report.queues, report.messages) == (2, 1)
    assert storage.open().queues == {}


def test_big_queues_go_in_batches(source: Path, storage: MemoryStorage) -> None:
    message(source, *(f"m{number:05}" for number in range(1_200)))
    seen: list[int] = []
    plain = storage.append

    def spy(records: list[Record]) -> int:
        seen.extend(r.rows.count for r in records if isinstance(r, MessagesAdded))
        return plain(records)

    storage.append = spy  # type: ignore[assignment,method-assign]
    run(source, storage)
    assert seen == [500, 500, 200]


def test_another_file_is_refused(tmp_path: Path, storage: MemoryStorage) -> None:
    (tmp_path / "text").write_text("hello, I am no database at all, just some text")
    for name in ("text", "missing"):
        with pytest.raises(ConfigInvalid, match=name):
            run(tmp_path / name, storage)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("00:00:01", 1_000), ("1.00:00:00", 86_400_000), ("00:00:00.0000001", 1), ("00:01:00.5009999", 60_500)],
)
def test_time_spans(text: str, ms: int) -> None:
    assert time_span_ms(text) == ms


@pytest.mark.parametrize("text", ["", "1", "-00:00:01", "00:00", 5, None])
def test_other_time_spans_are_refused(text: object) -> None:
    with pytest.raises(ValueError, match="duration"):
        time_span_ms(text)


def test_times_without_offset_are_utc() -> None:
    assert instant("2026-01-02T03:04:05", 0) == T0_MS
    assert instant(None, 7) == 7


def test_a_redirect_switches_the_dlq_on() -> None:
    assert options({"overflowStrategy": 3}).dead_letter


@pytest.mark.parametrize("size", [2**63, 10**30, -1, 1.5, True])
def test_sizes_that_no_store_holds_are_refused(size: object) -> None:
    with pytest.raises(ValueError, match="maxQueueSize"):
        options({"maxQueueSize": size})
    assert options({"maxQueueSize": 2**63 - 1}).max_messages == 2**63 - 1
