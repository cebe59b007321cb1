"""Modes: what VibeMQ keeps is its owner's alone, and nobody else's files are touched."""

from functools import partial
from pathlib import Path

import pytest

from vibemq.errors import StoreVersionError
from vibemq.plugins import find
from vibemq.server.access.audit_file import FOLDER as AUDIT
from vibemq.server.around.backup_log import NAME as BACKUPS
from vibemq.server.jobs.export_folder import FOLDER as EXPORTS
from vibemq.server.jobs.export_folder import ExportName
from vibemq.server.monitoring.history.history_file import NAME as HISTORY
from vibemq.storage.local.store_file import StoreInfo, write_store_info


@pytest.fixture(params=["lmdb", "sqlite"])
def provider(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def modes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mode & 0o777 for path in (folder, *folder.rglob("*"))}


def share(folder: Path) -> None:
    """What somebody else keeps in the folder, some of it under names that look like those of a store."""
    (folder / "theirs" / "deep").mkdir(parents=True)
    (folder / "store").mkdir()
    for name in ("theirs/deep/file", "store/file", "journal.txt", "store.txt"):
        (folder / name).write_text("theirs")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)


def open_and_close(folder: Path, provider: str) -> None:
    plugin = find("storage", provider)
    storage = plugin.create(folder, plugin.settings(ballast_bytes=0))
    storage.open()
    storage.close()


@pytest.mark.parametrize("info", [StoreInfo("papyrus", 1, 0), StoreInfo("", 99, 0)], ids=["provider", "newer"])
@pytest.mark.parametrize("verb", ["open", "repair"])
def test_a_folder_that_is_refused_stays_as_it_was(tmp_path: Path, provider: str, info: StoreInfo, verb: str) -> None:
    share(tmp_path)
    write_store_info(tmp_path, StoreInfo(info.provider or provider, info.version, 0))
    (tmp_path / "store.json").chmod(0o644)
    before = modes(tmp_path)
    plugin = find("storage", provider)
    assert plugin.repair is not None
    storage = plugin.create(tmp_path, plugin.settings())
    call = storage.open if verb == "open" else partial(plugin.repair, tmp_path, plugin.settings())
    with pytest.raises(StoreVersionError):
        call()
    assert modes(tmp_path) == before


def test_in_a_shared_folder_only_the_store_becomes_private(tmp_path: Path, provider: str) -> None:
    share(tmp_path)
    theirs = modes(tmp_path)
    open_and_close(tmp_path, provider)
    found = modes(tmp_path)
    assert {name: found[name] for name in theirs} == theirs
    ours = {name: mode for name, mode in found.items() if name not in theirs}
    assert "store.json" in ours
    assert not any(mode & 0o077 for mode in ours.values())


def test_a_folder_with_nothing_else_becomes_private(tmp_path: Path, provider: str) -> None:
    folder = tmp_path / "data"
    (folder / "lost+found").mkdir(parents=True)
    open_and_close(folder, provider)
    (folder / "lost+found").rmdir()
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    open_and_close(folder, provider)
    assert not any(mode & 0o077 for mode in modes(folder).values())


def test_what_the_broker_keeps_beside_its_store_becomes_private(tmp_path: Path, provider: str) -> None:
    """As in a copy that was made with the modes of its maker."""
    folder = tmp_path / "data"
    open_and_close(folder, provider)
    job = ExportName(1, 2)
    beside = (f"{AUDIT}/audit-000001.jsonl", f"{EXPORTS}/{job.whole}", f"{EXPORTS}/{job.part}", HISTORY, BACKUPS)
    for name in beside:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("what nobody else may read")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    open_and_close(folder, provider)
    assert not any(mode & 0o077 for mode in modes(folder).values())


def test_what_an_earlier_repair_has_kept_of_a_compaction_becomes_private(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    open_and_close(folder, "lmdb")
    kept = folder / "store.damaged-20261127-210000" / "compacting" / "data.mdb"
    kept.parent.mkdir(parents=True)
    kept.write_text("what nobody else may read")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    open_and_close(folder, "lmdb")
    assert not any(mode & 0o077 for mode in modes(folder).values())
