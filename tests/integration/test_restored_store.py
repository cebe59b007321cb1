"""A restored store begins a new timeline: readers that keep their positions elsewhere are refused, not misled."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.conditions import broker_on, check, run, running
from tests.integration.cursor_peer import Peer, Refusal, rows_of
from vibemq.errors import WrongIncarnation

pytestmark = pytest.mark.slow


@pytest.fixture(params=["lmdb", "sqlite"])
def provider(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@contextmanager
def peer_of(data_dir: Path, folder: Path, provider: str) -> Iterator[Peer]:
    with running(broker_on(data_dir, folder, provider=provider)) as broker:
        peer = Peer(broker.port)
        yield peer
        peer.close()
        assert broker.stop() == 0


def incarnation_in(data_dir: Path, folder: Path, provider: str, queue: str = "q") -> str:
    with peer_of(data_dir, folder, provider) as peer:
        return str(peer.ask("group.offsets", queue)["incarnation"])


@pytest.fixture
def published(tmp_path: Path, provider: str) -> tuple[Path, str]:
    """Where the backup of a queue with ten messages is, and the queue's incarnation; five more were published later."""
    with peer_of(tmp_path / "data", tmp_path, provider) as peer:
        peer.admin("queue.create", queue="q", options={"mode": "fan-out-with-ack"})
        peer.publish("q", rows_of(10))
        incarnation = str(peer.ask("group.join", "q", group="etl")["incarnation"])
        peer.ask("group.commit", "q", group="etl", epoch=1, sequence=6)
        peer.admin("storage.backup", target=str(tmp_path / "backup"))
        peer.publish("q", rows_of(5, first=100))
        assert len(peer.read_all("q", 11, 16)) == 5
    return tmp_path / "backup", incarnation


def restore(source: Path, data_dir: Path) -> None:
    said = run("vibemq-admin", "restore", source, "--data-dir", data_dir, "--yes")
    assert said.code == 0, said.err


@pytest.mark.long_where(provider="sqlite")
def test_a_reader_of_the_old_timeline_is_refused(published: tuple[Path, str], tmp_path: Path, provider: str) -> None:
    backup, old = published
    restore(backup, tmp_path / "data")
    with peer_of(tmp_path / "data", tmp_path, provider) as peer:
        # Under the numbers that the reader has read there are other messages now.
        peer.publish("q", rows_of(5, first=200))
        verbs: list[tuple[str, dict[str, object]]] = [
            ("group.offsets", {}),
            ("group.advance", {"from_": 16}),
            ("group.fetch", {"from_": 11, "to": 16, "max_bytes": 1 << 20}),
            ("group.join", {"group": "etl"}),
        ]
        for verb, arguments in verbs:
            with pytest.raises(Refusal, match="restored from a backup") as refusal:
                peer.ask(verb, "q", incarnation=old, **arguments)
            assert refusal.value.code == WrongIncarnation.code
        cursor = peer.ask("group.join", "q", group="etl")
        assert (cursor["committed"], cursor["tail"]) == (6, 16)
        part = peer.ask(
            "group.fetch", "q", group="etl", from_=6, to=16, max_bytes=1 << 20, incarnation=cursor["incarnation"]
        )
        assert part.sequences == list(range(6, 16))
    again = incarnation_in(tmp_path / "data", tmp_path, provider)
    assert again == cursor["incarnation"], "a restart is not a restore"
    assert "sound" in check(tmp_path / "data").out


@pytest.mark.long_where(provider="lmdb")
def test_each_restore_of_a_backup_is_a_timeline_of_its_own(
    published: tuple[Path, str], tmp_path: Path, provider: str
) -> None:
    backup, old = published
    found = {old}
    for number in range(2):
        assert "sound" in check(backup).out
        restore(backup, tmp_path / f"restored-{number}")
        found.add(incarnation_in(tmp_path / f"restored-{number}", tmp_path, provider))
    # A copy made by hand of the backup, and a broker on the backup itself.
    shutil.copytree(backup, tmp_path / "copied")
    found.add(incarnation_in(tmp_path / "copied", tmp_path, provider))
    found.add(incarnation_in(backup, tmp_path, provider))
    assert len(found) == 5


@pytest.mark.long_where(provider="sqlite")
def test_a_stopped_brokers_directory_is_moved_with_its_timeline_and_restored_without(
    published: tuple[Path, str], tmp_path: Path, provider: str
) -> None:
    _, old = published
    shutil.copytree(tmp_path / "data", tmp_path / "moved")
    assert incarnation_in(tmp_path / "moved", tmp_path, provider) == old
    restore(tmp_path / "moved", tmp_path / "restored")
    assert incarnation_in(tmp_path / "restored", tmp_path, provider) != old


@pytest.mark.long_where(provider="lmdb")
def test_a_start_that_is_cut_short_is_made_up_for(published: tuple[Path, str], tmp_path: Path, provider: str) -> None:
    """The new incarnations were written, and the word in the store's file was not removed."""
    backup, old = published
    restore(backup, tmp_path / "data")
    facts = (tmp_path / "data" / "store.json").read_text()
    assert json.loads(facts)["restored"] is True
    first = incarnation_in(tmp_path / "data", tmp_path, provider)
    assert "restored" not in json.loads((tmp_path / "data" / "store.json").read_text())
    (tmp_path / "data" / "store.json").write_text(facts)
    assert len({old, first, incarnation_in(tmp_path / "data", tmp_path, provider)}) == 3
