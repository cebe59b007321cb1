"""Finding plug-ins by name."""

import pickle
from importlib import import_module
from importlib.metadata import EntryPoint
from string import ascii_letters

import pytest

from vibemq import plugins
from vibemq.model.extras.message_extra import Extras, MessageExtra
from vibemq.model.shared.queue_info import GroupInfo, QueueInfo
from vibemq.model.shared.settlement import Settlement
from vibemq.plugins import find
from vibemq.storage.interface import StoragePlugin


@pytest.mark.parametrize("name", ["memory", "sqlite"])
def test_folders_are_found_without_being_installed(name: str) -> None:
    plugin = find("storage", name)
    assert isinstance(plugin, StoragePlugin)
    assert plugin.name == name


@pytest.mark.parametrize("name", ["papyrus", "../etc", "a.b", "", "state"])
def test_unknown_names_are_lookup_errors_that_say_which(name: str) -> None:
    with pytest.raises(LookupError, match="storage provider"):
        find("storage", name)


def test_no_package_takes_the_name_of_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = EntryPoint("memory", "string:ascii_letters", "vibemq.storage")
    other = EntryPoint("other", "string:ascii_letters", "vibemq.storage")
    monkeypatch.setattr(plugins, "_installed", lambda: {"storage": [theirs, other]})
    assert isinstance(find("storage", "memory"), StoragePlugin)
    assert find("storage", "other") == ascii_letters
    assert {"memory", "other"} <= set(plugins.names("storage"))


@pytest.mark.parametrize(
    ("module", "name", "now"),
    [
        ("vibemq.model.records", "MessageExtra", MessageExtra),
        ("vibemq.model.records", "Extras", Extras),
        ("vibemq.model.effects", "GroupInfo", GroupInfo),
        ("vibemq.model.effects", "QueueInfo", QueueInfo),
        ("vibemq.model.commands", "Settlement", Settlement),
        ("vibemq.model.commands.consumers", "Settlement", Settlement),
    ],
)
def test_a_name_that_moved_is_the_same_at_its_old_place(module: str, name: str, now: object) -> None:
    """Plug-ins from outside import it from there."""
    assert getattr(import_module(module), name) is now


def test_a_value_that_was_pickled_at_the_old_place_is_read() -> None:
    old = b"cvibemq.model.effects\nGroupInfo\n."
    assert pickle.loads(old) is GroupInfo
