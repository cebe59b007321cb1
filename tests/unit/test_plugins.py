"""Finding plug-ins by name."""

from importlib.metadata import EntryPoint
from string import ascii_letters

import pytest

from vibemq import plugins
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
