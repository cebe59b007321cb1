"""Users change while the disk is full: what was refused is not in force afterwards, and what was answered is."""

from pathlib import Path
from typing import Any

import pytest

import vibemq
from tests.integration.access import cheap_hash
from tests.integration.conditions import broker_on, fill, running, small_disk, small_settings
from vibemq.errors import StorageFull

pytestmark = pytest.mark.slow

TOML = '[auth]\nsuperuser = "root"\nsuperuser_password = "pw"\n[http]\nenabled = false\n'
CHANGES_MAX = 20_000
REFUSALS = 5


class Ledger:
    """What the broker should know of users: their rights by name."""

    def __init__(self) -> None:
        self.known: dict[str, set[str]] = {}
        self.refused = 0

    def change(self, root: vibemq.sync.Client, number: int) -> bool:
        """Whether it was made."""
        name, pattern = f"user-{number % 7}", f"{number:04}.{'x' * 200}"
        operation, arguments, after = "user.grant", {"queues": pattern, "actions": ["publish"]}, {pattern}
        before: Any = self.known.get(name)
        if before is None:
            operation, arguments, after = "user.add", {"password_hash": cheap_hash()}, set()
        elif len(before) > 3:
            operation, arguments, after = "user.remove", {}, None
        try:
            root.admin(operation, user=name, **arguments)
        except StorageFull:
            self.refused += 1
            return False
        if after is None:
            del self.known[name]
        else:
            self.known[name] = (before or set()) | after
        return True


def rights(root: vibemq.sync.Client) -> dict[str, set[str]]:
    names = [user["user"] for user in root.admin("user.list")["users"] if user["source"] == "store"]
    return {name: {rule["queues"] for rule in root.admin("user.show", user=name)["permissions"]} for name in names}


@pytest.mark.parametrize("provider", ["sqlite", pytest.param("lmdb", marks=pytest.mark.long)])
def test_what_a_full_disk_refuses_is_not_in_force_after_a_restart(tmp_path: Path, provider: str) -> None:
    with small_disk(tmp_path / "disk", 12) as disk:
        ledger, ballast = Ledger(), disk / "ballast"
        broker = broker_on(disk / "data", tmp_path, provider=provider, toml=TOML + small_settings(provider))
        with running(broker), vibemq.sync.connect(f"vibemq://root:pw@127.0.0.1:{broker.port}") as root:
            for number in range(50):
                ledger.change(root, number)
            assert ledger.refused == 0
            fill(ballast)
            for number in range(50, CHANGES_MAX):
                ledger.change(root, number)
                if ledger.refused == REFUSALS:
                    break
            assert ledger.refused == REFUSALS
            assert rights(root) == ledger.known
            ballast.unlink()
            while not ledger.change(root, number := number + 1):
                pass
            assert rights(root) == ledger.known
            broker.kill()
        with running(broker), vibemq.sync.connect(f"vibemq://root:pw@127.0.0.1:{broker.port}") as root:
            assert rights(root) == ledger.known
