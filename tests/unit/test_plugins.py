"""Finding plug-ins by name."""

import pytest

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
