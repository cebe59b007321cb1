"""Plug-ins by group and name: protocols and storage providers."""

from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

KINDS = {"protocols": "protocol", "storage": "storage provider"}
"""What a plug-in of each group is."""


def find(group: str, name: str) -> Any:
    """Load an installed plug-in of that name, else the folder `vibemq.<group>.<name>`.

    Only the named one is imported, so the optional dependencies of others stay optional.

    Raises:
        LookupError: neither exists, or its own imports fail; the cause says which.
    """
    try:
        for plugin in [plugin for plugin in _installed()[group] if plugin.name == name]:
            return plugin.load()
        if name not in (known := names(group)):
            raise LookupError(f"there is no {KINDS[group]} {name!r}; choose one of {', '.join(known)}")
        return import_module(f"vibemq.{group}.{name}").PLUGIN
    except (ImportError, AttributeError) as exc:
        raise LookupError(f"{KINDS[group]} {name!r}: {exc}") from exc


def names(group: str) -> list[str]:
    """Of the installed plug-ins and of the folders, sorted. Imports none of them."""
    places = [Path(place) for place in import_module(f"vibemq.{group}").__path__]
    modules = (module for place in places for module in iter_modules([str(place)]) if module.ispkg)
    # The other folders hold what plug-ins share.
    folders = {m.name for m in modules if any("PLUGIN" in _source(place / m.name) for place in places)}
    return sorted(folders | {plugin.name for plugin in _installed()[group]})


@cache
def _installed() -> dict[str, list[EntryPoint]]:
    """By group. Looked up once for all of them: every installed package is read for it."""
    everything = entry_points()
    return {group: list(everything.select(group=f"vibemq.{group}")) for group in KINDS}


def _source(folder: Path) -> str:
    try:
        return (folder / "__init__.py").read_text(encoding="utf-8")
    except OSError:
        return ""
