"""Files that do not answer."""

import threading
from typing import Any, cast

import pytest

from tests.integration.access import cheap_hash
from vibemq.config import Settings
from vibemq.errors import ConfigInvalid
from vibemq.server.reload.reloader import Reloader, SettingsSource
from vibemq.settings import Loaded

pytestmark = pytest.mark.anyio


class Audit:
    def __init__(self) -> None:
        self.failed: list[bool] = []

    def reloaded(self, fields: Any, *, failed: bool) -> None:
        self.failed.append(failed)


class Accounts:
    enabled = False
    has_stored_users = False


def reloader(settings: Settings, source: SettingsSource, audit: Audit, read_timeout_s: float = 60) -> Reloader:
    return Reloader(
        settings,
        source,
        tls={},
        apply=lambda settings: None,
        accounts=cast(Any, Accounts()),
        users=cast(Any, None),
        revocation=cast(Any, None),
        hashing=cast(Any, None),
        audit=cast(Any, audit),
        read_timeout_s=read_timeout_s,
    )


async def test_origins_are_those_of_the_settings_in_use() -> None:
    after = Settings.model_validate({"auto_create": False, "data_dir": "/elsewhere"})
    origins = {"data_dir": "the old file"}
    source = SettingsSource(
        lambda: Loaded(after, {"auto_create": "the new file", "data_dir": "the new file"}), lambda log: None, origins
    )
    told = await reloader(Settings(), source, Audit()).reload("test")
    assert (told["changed"], told["needs_restart"]) == (["auto_create"], ["data_dir"])
    assert origins == {"data_dir": "the old file", "auto_create": "the new file"}


async def test_a_file_that_does_not_answer_fails_one_reload_and_holds_up_no_other() -> None:
    settings, answering, audit = Settings(), threading.Event(), Audit()
    before = set(threading.enumerate())

    def read() -> Loaded:
        answering.wait()
        return Loaded(settings, {})

    unanswered = reloader(settings, SettingsSource(read, lambda log: None), audit, 0.01)
    for _ in range(2):
        with pytest.raises(ConfigInvalid, match=r"not read within 0\.01 s; see that their file system answers"):
            await unanswered.reload("test")
    readers = [thread for thread in set(threading.enumerate()) - before if thread.name == "vibemq-reload"]
    assert len(readers) == 2
    assert all(thread.daemon for thread in readers)
    answering.set()
    for thread in readers:
        thread.join(60)
    assert audit.failed == [True, True]


def test_names_of_users_can_be_shown() -> None:
    for name in ("", "x" * 65, "x\x1b[31m", "a\nb", "anonymous"):
        with pytest.raises(ValueError, match="name"):
            Settings.model_validate({"auth": {"users": {name: {"password_hash": cheap_hash()}}}})
        with pytest.raises(ValueError, match="name"):
            Settings.model_validate({"auth": {"superuser": name, "superuser_password": "x"}})
