"""Migrations: the kept stores of version 0, refusals, and crashes between any two writes."""

import shutil
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from vibemq.engine.stage_names import stage_name
from vibemq.errors import StorageDamaged, StorageLocked, StoreVersionError
from vibemq.model import records
from vibemq.model.access import ResourceKind, Rule
from vibemq.model.accounts import StoredToken, StoredUser
from vibemq.model.extras import message_extra
from vibemq.model.options import QueueOptions
from vibemq.model.records import (
    Attempts,
    CursorChanged,
    Dropped,
    GroupFiltered,
    MessagesAdded,
    Plan,
    PlanMade,
    PlansForgotten,
    QueueAttended,
    QueueChanged,
    QueueCreated,
    Reason,
    StageMoved,
    TokenStored,
    UserStored,
)
from vibemq.model.rows import Rows, RowView, pack_row
from vibemq.model.staged_batch import unpack_staged_batch
from vibemq.plugins import find
from vibemq.storage.local.lock import DirectoryLock
from vibemq.storage.local.store_file import StoreInfo, check_store, read_store_info, write_store_info
from vibemq.storage.migrate import find_steps, migrate, migrations_folder, refuse_missing, status

FIXTURES = Path(__file__).parents[2] / "fixtures"
PROVIDERS = [name for name in ("sqlite", "lmdb") if find_spec(f"vibemq.storage.{name}.migration")]


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def old(provider: str, tmp_path: Path) -> Path:
    """A copy of the kept store of version 0."""
    return Path(shutil.copytree(FIXTURES / f"store-v0-{provider}", tmp_path / "data"))


def assert_upgraded(data_dir: Path, provider: str) -> None:
    plugin = find("storage", provider)
    storage = plugin.create(data_dir, plugin.settings())
    state = storage.open()
    try:
        orders = state.queues[1]
        assert (orders.name, orders.next_sequence, orders.options.max_attempts) == ("orders", 4, 4)
        assert (orders.groups[0].head, orders.groups[0].pending.runs()) == (3, [(2, 2)])
        assert (state.next_queue_id, state.next_dead_id, state.dead_count) == (3, 2, 1)
        parts = storage.read(1, 1, 99, 1 << 20)
        assert [RowView(row).payload for part in parts for row in part.rows] == [b"order 1", b"order 2", b"order 3"]
        (letter,) = storage.dead_letters()
        assert (RowView(letter.row).message_id, letter.facts.error, letter.queue) == ("l2", "rejected", "mail")
        assert list(storage.check()) == []
    finally:
        storage.close()


def test_a_kept_store_is_upgraded(old: Path, provider: str) -> None:
    plugin = find("storage", provider)
    with pytest.raises(StoreVersionError, match="vibemq-admin migrate"):
        plugin.create(old, plugin.settings()).open()
    before = status(old)
    assert (before.provider, before.version) == (provider, 0)
    assert [step.number for step in before.pending] == list(range(1, before.latest + 1))
    seen: list[tuple[int, int]] = []
    applied = migrate(old, lambda done, total: seen.append((done, total)))
    assert [step.name for step in applied] == [step.name for step in before.pending]
    assert seen[-1] == (len(applied), len(applied))
    assert status(old).pending == ()
    assert migrate(old) == []
    assert_upgraded(old, provider)


def test_a_kept_store_of_version_1_gets_its_tally(provider: str, tmp_path: Path) -> None:
    data_dir = Path(shutil.copytree(FIXTURES / f"store-v1-{provider}", tmp_path / "data"))
    assert [step.number for step in migrate(data_dir)][:1] == [2]
    assert_upgraded(data_dir, provider)


def test_a_kept_store_of_version_2_gets_room_for_owners(provider: str, tmp_path: Path) -> None:
    data_dir = Path(shutil.copytree(FIXTURES / f"store-v2-{provider}", tmp_path / "data"))
    plugin = find("storage", provider)
    with pytest.raises(StoreVersionError, match=r"store version 2, .*`vibemq-admin migrate"):
        plugin.create(data_dir, plugin.settings()).open()
    assert [step.number for step in migrate(data_dir)][:1] == [3]
    assert_upgraded(data_dir, provider)
    for _ in range(2):
        storage = plugin.create(data_dir, plugin.settings())
        state = storage.open()
        try:
            # What only the journal or the write-ahead log had is there too, and everything is of nobody.
            group = state.queues[1].groups[1]
            assert group.cursor is not None
            assert (group.name, group.cursor.owner, group.owner) == ("etl", "somebody", "")
            nightly, hourly = state.transactions["nightly"], state.transactions["hourly"]
            assert [(done.version, done.tag, done.owner) for done in (nightly, hourly)] == [
                (7, "first", ""),
                (9, "second", ""),
            ]
            assert list(storage.check()) == []
            storage.maintain()
        finally:
            storage.close()


def test_a_kept_store_of_version_3_gets_room_for_plans(provider: str, tmp_path: Path) -> None:
    data_dir = Path(shutil.copytree(FIXTURES / f"store-v3-{provider}", tmp_path / "data"))
    plugin = find("storage", provider)
    with pytest.raises(
        StoreVersionError,
        match=rf"store version 3, .*cp -a {data_dir} COPY.*`vibemq-admin migrate apply --data-dir {data_dir}`",
    ):
        plugin.create(data_dir, plugin.settings()).open()
    assert [step.number for step in migrate(data_dir)][:1] == [4]
    assert_upgraded(data_dir, provider)
    for _ in range(2):
        storage = plugin.create(data_dir, plugin.settings())
        groups = storage.open().queues[1].groups
        try:
            # Nobody knows whether they were moved: they count as such, and have no plans.
            assert [(groups[number].name, groups[number].owner) for number in (1, 2)] == [("etl", "ann"), ("audit", "")]
            cursors = [groups[number].cursor for number in (1, 2)]
            assert [(c.committed, c.head, c.moved) for c in cursors if c] == [(3, 0, True), (1, 0, True)]
            assert cursors[0] is not None
            assert cursors[0].quarantined == ((2, 2),)
            assert groups[1].plans in ({}, {7: Plan("tag", "end")})
            assert list(storage.check()) == []
            storage.append([PlanMade(1, 1, 7, Plan("tag", "end"))])
            storage.append([PlansForgotten(1, 1, 7)])
            storage.sync()
            storage.maintain()
        finally:
            storage.close()
    assert check_store(data_dir, provider, import_module(f"vibemq.storage.{provider}.migration").VERSION)


def test_a_kept_store_of_version_4_gets_room_for_users(provider: str, tmp_path: Path) -> None:
    data_dir = Path(shutil.copytree(FIXTURES / f"store-v4-{provider}", tmp_path / "data"))
    plugin = find("storage", provider)
    with pytest.raises(StoreVersionError, match=r"store version 4, .*`vibemq-admin migrate"):
        plugin.create(data_dir, plugin.settings()).open()
    assert [step.number for step in migrate(data_dir)][:1] == [5]
    assert_upgraded(data_dir, provider)
    rule = Rule(ResourceKind.QUEUE, "orders.*", frozenset(("publish",)))
    ann = StoredUser("ann", "scrypt$...", False, (rule,), 3_000, 3_000)
    token = StoredToken("t1", "ann", b"key", b"digest", "nightly", 3_000, 0, 0, (rule,))
    for opened in range(2):
        storage = plugin.create(data_dir, plugin.settings())
        state = storage.open()
        try:
            plans = {number: list(group.plans) for number, group in state.queues[1].groups.items()}
            assert plans == {0: [], 1: [2], 2: [1]}
            assert (list(state.users.values()), list(state.tokens.values())) == ([ann] * opened, [token] * opened)
            assert list(storage.check()) == []
            storage.append([UserStored(ann), TokenStored(token)])
            storage.sync()
            storage.maintain()
        finally:
            storage.close()


def test_a_kept_store_of_version_5_gets_room_for_beginnings_and_lifetimes(provider: str, tmp_path: Path) -> None:
    data_dir = Path(shutil.copytree(FIXTURES / f"store-v5-{provider}", tmp_path / "data"))
    plugin = find("storage", provider)
    with pytest.raises(StoreVersionError, match=r"store version 5, .*`vibemq-admin migrate"):
        plugin.create(data_dir, plugin.settings()).open()
    assert [step.number for step in migrate(data_dir)] == [6, 7, 8, 9, 10]
    assert_upgraded(data_dir, provider)
    grown = Plan("tag 5", "end 5", 1, "query", 8, 2, 1, "mark", 3, 4, 5)
    passing = QueueOptions(auto_delete=True, expires_ms=60_000, exclusive=True)
    for opened in range(2):
        storage = plugin.create(data_dir, plugin.settings())
        state = storage.open()
        try:
            assert list(state.users) == ["ann"]
            etl = state.queues[1].groups[1]
            assert etl.cursor is not None
            assert (etl.cursor.owner, etl.cursor.head, etl.cursor.moved) == ("somebody", 3, False)
            assert etl.cursor.begun is bool(opened)
            assert etl.plans[3] == Plan("tag 4", "end 4", 2_800, "query", 7, 2_900, 2, "mark", 2_950)
            assert etl.plans.get(4) == (grown if opened else None)
            assert list(storage.check()) == []
            assert not state.queues[1].options.goes_away
            assert not state.queues[1].attended
            found = state.queues.get(9)
            assert found is None if not opened else found is not None and found.attended and found.options == passing
            storage.append([CursorChanged(1, 1, etl.cursor._replace(begun=True)), PlanMade(1, 1, 4, grown)])
            if not opened:
                storage.append([QueueCreated(9, "passing", passing, 6_000, "09"), QueueAttended(9)])
            storage.sync()
            storage.maintain()
        finally:
            storage.close()


@pytest.mark.parametrize(
    "version",
    [2, 3, 4, 5, 6, 7, 8],
    ids=[
        "no owners",
        "no plans",
        "no users",
        "no beginnings and lifetimes",
        "no order of delays",
        "no holding up",
        "no index",
    ],
)
def test_a_store_of_today_is_a_newer_one_to_older_code(provider: str, tmp_path: Path, version: int) -> None:
    plugin = find("storage", provider)
    storage = plugin.create(tmp_path, plugin.settings(ballast_bytes=0))
    storage.open()
    storage.close()
    with pytest.raises(StoreVersionError, match="newer VibeMQ"):
        check_store(tmp_path, provider, version)


STORED = {10: "63b0704c3f0ae097"}
"""Of each version, a digest of the facts that are stored. Others need another version: an older VibeMQ takes what it
does not know for damage, if nothing tells it to refuse the store. Add a step to `migrations`, and a kept store."""


def test_other_facts_need_another_version(provider: str) -> None:
    rooms = (records, message_extra)
    kinds = sorted(
        (
            kind
            for room in rooms
            for kind in vars(room).values()
            if isinstance(kind, type) and kind.__module__ == room.__name__
        ),
        key=lambda kind: kind.__name__,
    )
    facts = [f"{kind.__name__} {list(getattr(kind, '__annotations__', {}))}" for kind in kinds]
    digest = sha256("\n".join(facts).encode()).hexdigest()[:16]
    assert {import_module(f"vibemq.storage.{provider}.migration").VERSION: digest} == STORED


def test_the_code_speaks_the_latest_version(provider: str) -> None:
    module = import_module(f"vibemq.storage.{provider}.migration")
    assert len(find_steps(provider)) == module.VERSION
    assert all(step.summary for step in find_steps(provider))


def test_a_crash_before_the_store_file_is_written_is_made_good(old: Path, provider: str) -> None:
    migrate(old)
    # The step is in the store, but store.json still says 0: the step must not run again.
    write_store_info(old, StoreInfo(provider, 0, 1_000))
    assert migrate(old) == []
    assert status(old).pending == ()
    assert_upgraded(old, provider)


def test_a_step_that_fails_leaves_the_store_as_it_was(old: Path, provider: str, tmp_path: Path) -> None:
    folder = tmp_path / "migrations"
    shutil.copytree(migrations_folder() / provider, folder / provider)
    (folder / provider / f"{len(find_steps(provider)) + 1:04}_broken.py").write_text(
        '"""Never done."""\n\ndef upgrade(transaction):\n    _spoil(transaction)\n    raise OSError("crash")\n\n'
        "def _spoil(transaction):\n"
        "    if hasattr(transaction, 'put'):\n        transaction.put(b'spoiled', b'x')\n"
        "    else:\n        transaction.execute('DELETE FROM kv')\n"
    )
    with pytest.raises(OSError, match="crash"):
        migrate(old, folder=folder)
    # The steps before it are done and stay done.
    assert [step.name for step in status(old, folder).pending] == ["broken"]
    assert_upgraded(old, provider)


def test_a_store_that_lost_its_store_file_keeps_its_content(old: Path, provider: str) -> None:
    migrate(old)
    (old / "store.json").unlink()
    assert_upgraded(old, provider)
    info = read_store_info(old)
    assert info is not None
    assert info.provider == provider


def test_a_store_in_use_is_not_migrated(old: Path) -> None:
    lock = DirectoryLock(old)
    lock.acquire()
    try:
        with pytest.raises(StorageLocked):
            migrate(old)
    finally:
        lock.release()


def test_a_store_without_its_file_is_not_made_anew(old: Path, provider: str) -> None:
    file = {"lmdb": "store/data.mdb", "sqlite": "vibemq.sqlite"}[provider]
    for lack in (lambda: (old / file).unlink(), (old / file).touch):
        lack()
        for refuse in (refuse_missing, migrate):
            with pytest.raises(StorageDamaged, match="missing or empty"):
                refuse(old)
        info = read_store_info(old)
        assert info is not None
        assert info.version == 0


def test_an_interrupted_repair_is_completed_before_a_store_is_migrated(old: Path, provider: str) -> None:
    """As it leaves the store between its renames."""
    place = old / {"lmdb": "store", "sqlite": "vibemq.sqlite"}[provider]
    place.rename(place.with_name(f"{place.name}.repaired"))
    refuse_missing(old)
    assert not place.exists(), "that changes nothing"
    assert migrate(old)
    assert_upgraded(old, provider)


def test_a_newer_store_is_refused(old: Path, provider: str) -> None:
    write_store_info(old, StoreInfo(provider, 99, 0))
    for refuse in (status, migrate):
        with pytest.raises(StoreVersionError, match="newer VibeMQ"):
            refuse(old)


def test_a_newer_store_is_known_by_its_content(old: Path, provider: str, tmp_path: Path) -> None:
    migrate(old)
    (tmp_path / "none" / provider).mkdir(parents=True)
    write_store_info(old, StoreInfo(provider, 0, 0))
    with pytest.raises(StoreVersionError, match="newer VibeMQ"):
        migrate(old, folder=tmp_path / "none")


def test_a_directory_without_a_store(tmp_path: Path) -> None:
    assert read_store_info(tmp_path) is None
    assert not check_store(tmp_path, "sqlite", 1)
    with pytest.raises(StoreVersionError, match="no store"):
        status(tmp_path)


def test_an_unknown_provider(tmp_path: Path) -> None:
    write_store_info(tmp_path, StoreInfo("papyrus", 0, 0))
    with pytest.raises(StoreVersionError, match="papyrus"):
        migrate(tmp_path)


def test_gaps_in_the_numbers_are_refused(tmp_path: Path) -> None:
    (tmp_path / "sqlite").mkdir()
    (tmp_path / "sqlite" / "0002_second.py").write_text('"""Second."""\n\ndef upgrade(transaction): pass\n')
    with pytest.raises(StoreVersionError, match="numbered"):
        find_steps("sqlite", tmp_path)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"provider": "sqlite"}', '{"provider": "sqlite", "version": "x"}']
)
def test_a_broken_store_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "store.json").write_text(text)
    with pytest.raises(StorageDamaged, match=r"store\.json"):
        read_store_info(tmp_path)


def test_the_store_file_is_replaced_whole(tmp_path: Path) -> None:
    info = StoreInfo("sqlite", 3, 5)
    write_store_info(tmp_path, StoreInfo("lmdb", 1, 4))
    write_store_info(tmp_path, info)
    assert read_store_info(tmp_path) == info
    assert [path.name for path in tmp_path.iterdir()] == ["store.json"]


def test_a_store_of_another_version_is_not_repaired_but_migrated(old: Path, provider: str) -> None:
    plugin = find("storage", provider)
    assert plugin.repair is not None
    before = {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}
    with pytest.raises(StoreVersionError, match="vibemq-admin migrate"):
        plugin.repair(old, plugin.settings())
    assert {path: path.read_bytes() for path in before} == before


def test_a_kept_store_of_version_6_gets_the_order_of_delays(provider: str, tmp_path: Path) -> None:
    data_dir = Path(shutil.copytree(FIXTURES / f"store-v6-{provider}", tmp_path / "data"))
    plugin = find("storage", provider)
    with pytest.raises(StoreVersionError, match=r"store version 6, .*`vibemq-admin migrate"):
        plugin.create(data_dir, plugin.settings()).open()
    assert [step.number for step in migrate(data_dir)] == [7, 8, 9, 10]
    for opened in range(2):
        storage = plugin.create(data_dir, plugin.settings())
        state = storage.open()
        try:
            later = state.queues[7]
            assert later.delayed == {1: 7_000}
            # The last one was published a second later, but apart from those before.
            assert [chunk.first for chunk in later.chunks] == [1, 3, *[4] * opened]
            assert list(storage.check()) == []
            storage.append([MessagesAdded(7, 4, 501_000, Rows.of([b"c"]), apart=True)])
            storage.sync()
            storage.maintain()
        finally:
            storage.close()


def test_a_kept_store_of_version_7_has_no_queue_that_holds_up(provider: str, tmp_path: Path) -> None:
    data_dir = Path(shutil.copytree(FIXTURES / f"store-v7-{provider}", tmp_path / "data"))
    plugin = find("storage", provider)
    with pytest.raises(StoreVersionError, match=r"store version 7, .*`vibemq-admin migrate"):
        plugin.create(data_dir, plugin.settings()).open()
    assert [step.number for step in migrate(data_dir)] == [8, 9, 10]
    for holds in (False, True):
        storage = plugin.create(data_dir, plugin.settings())
        state = storage.open()
        try:
            failed = state.queues[8]
            assert failed.options == QueueOptions(max_attempts=5, hold_behind_failed=holds)
            assert failed.groups[0].attempts == {1: Attempts(1, 1, 6_000, 6_000, 0, "connection lost")}
            assert list(storage.check()) == []
            assert failed.groups[0].where == ("n > 3" if holds else "")
            storage.append([QueueChanged(8, failed.options.with_changes(hold_behind_failed=True))])
            storage.append([GroupFiltered(8, 0, "n > 3")])
            storage.sync()
            storage.maintain()
        finally:
            storage.close()


def test_a_kept_store_of_version_9_has_stages_of_staged_batches(provider: str, tmp_path: Path) -> None:
    data_dir = Path(shutil.copytree(FIXTURES / f"store-v9-{provider}", tmp_path / "data"))
    plugin = find("storage", provider)
    with pytest.raises(StoreVersionError, match=r"store version 9, .*`vibemq-admin migrate"):
        plugin.create(data_dir, plugin.settings()).open()
    assert [step.number for step in migrate(data_dir)] == [10]
    storage = plugin.create(data_dir, plugin.settings())
    state = storage.open()
    try:
        assert state.transactions["job"].stages == [12]
        assert [state.queues[queue_id].name for queue_id in (12, 13)] == [
            stage_name("job", 1, name) for name in ("won", "open")
        ]
        [part] = storage.read(12, 1, 1, 1 << 20)
        assert unpack_staged_batch(part.rows[0])[0] == "target"
        assert list(storage.check()) == []
        # What a version 9 cannot read.
        plain = [QueueCreated(14, "plain", QueueOptions(), 9_000, ""), records.GroupCreated(14, 0, "", True, 1)]
        storage.append([*plain, MessagesAdded(14, 1, 9_000, Rows.of([pack_row("m", b"body", ())]))])
        storage.append([StageMoved(11, 1, 9_500, 14, 1, 1), Dropped(14, [(1, 1)], Reason.MOVED)])
    finally:
        storage.close()
    storage = plugin.create(data_dir, plugin.settings())
    storage.open()
    try:
        assert [(part.first_sequence, part.published_at) for part in storage.read(11, 1, 1, 1 << 20)] == [(1, 9_500)]
        assert list(storage.check()) == []
    finally:
        storage.close()


def test_the_log_of_a_step_is_folded_before_the_next_one_begins(tmp_path: Path) -> None:
    """Else a large store has all steps in its log, with room for neither on the disk."""
    data_dir = Path(shutil.copytree(FIXTURES / "store-v0-sqlite", tmp_path / "data"))
    folder = Path(shutil.copytree(migrations_folder(), tmp_path / "migrations"))
    [database] = data_dir.glob("*.sqlite")
    log, found = database.with_name(database.name + "-wal"), tmp_path / "found"
    step = f"""\"\"\"Writes a megabyte.\"\"\"

from pathlib import Path

log, found = Path({str(log)!r}), Path({str(found)!r})

def upgrade(transaction):
    with found.open("a") as file:
        print(log.stat().st_size if log.exists() else 0, file=file)
    transaction.execute("CREATE TABLE IF NOT EXISTS much (bytes BLOB)")
    transaction.execute("INSERT INTO much VALUES (randomblob(1000000))")
"""
    latest = len(find_steps("sqlite"))
    for number in range(latest + 1, latest + 4):
        (folder / "sqlite" / f"{number:04}_much.py").write_text(step)
    assert len(migrate(data_dir, folder=folder)) == latest + 3
    assert found.read_text().split() == ["0", "0", "0"]
