"""S15: who may read the files of a data directory."""

from pathlib import Path

import pytest

from tests.integration.access import EVERYBODY, connected
from tests.integration.conditions import broker_on, running
from tests.integration.cursor_peer import rows_of

NO_UMASK = ("sh", "-c", 'umask 0; exec "$@"', "sh")


@pytest.mark.parametrize("provider", ["lmdb", "sqlite"])
def test_every_file_is_its_owners_alone(tmp_path: Path, provider: str) -> None:
    data_dir, backup = tmp_path / "new" / "data", tmp_path / "backup"
    (tmp_path / "new").mkdir()
    with running(broker_on(data_dir, tmp_path, provider=provider, toml=EVERYBODY), prefix=NO_UMASK) as broker:
        with connected(broker.port, "root") as root:
            root.admin("queue.create", queue="q")
            root.admin("user.add", user="ann", password="secret")
            root.publish("q", rows_of(10, size=1000))
            root.admin("storage.backup", target=str(backup))
        assert exposed(data_dir) == {}
        assert broker.stop() == 0
    for folder in (data_dir, backup):
        assert exposed(folder) == {}
        assert len(list(folder.rglob("*"))) > 1


def exposed(folder: Path) -> dict[str, str]:
    """What others than the owner could open, and its mode."""
    modes = {path: path.stat().st_mode & 0o777 for path in (folder, *folder.rglob("*"))}
    return {str(path): oct(mode) for path, mode in modes.items() if mode & 0o077}
