"""Plug-ins by group and name: protocols and storage providers."""

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

KINDS = {"protocols": "protocol", "storage": "storage provider"}
"""What a plug-in of each group is."""


def find(group: str, name: str) -> Any:
    """Load the folder `vibemq.<group>.<name>`, else an installed plug-in of that name.

    Only the named one is imported, so the optional dependencies of others stay optional.

    Raises:
        LookupError: neither exists, or its own imports fail; the cause says which.
    """
    try:
        if any(_is_plugin(place / name) for place in _places(group) if name.isidentifier()):
            return import_module(f"vibemq.{group}.{name}").PLUGIN
        for plugin in [plugin for plugin in _installed()[group] if plugin.name == name]:
            return plugin.load()
    except (ImportError, AttributeError) as exc:
        raise LookupError(f"{KINDS[group]} {name!r}: {exc}") from exc
    raise LookupError(f"there is no {KINDS[group]} {name!r}; choose one of {', '.join(names(group))}")


def names(group: str) -> list[str]:
    """Of the installed plug-ins and of the folders, sorted. Imports none of them."""
    modules = (module for place in _places(group) for module in iter_modules([str(place)]) if module.ispkg)
    folders = {m.name for m in modules if any(_is_plugin(place / m.name) for place in _places(group))}
    return sorted(folders | {plugin.name for plugin in _installed()[group]})


def _places(group: str) -> Iterator[Path]:
    return map(Path, import_module(f"vibemq.{group}").__path__)


def _is_plugin(folder: Path) -> bool:
    """The other folders hold what plug-ins share."""
    try:
        return "PLUGIN" in (folder / "__init__.py").read_text(encoding="utf-8")
    except OSError:
        return False


@cache
def _installed() -> "dict[str, list[EntryPoint]]":
    """By group. Looked up once for all of them, and only for what is not among our own folders: every installed package
    is read for it."""
    from importlib.metadata import entry_points

    everything = entry_points()
    return {group: list(everything.select(group=f"vibemq.{group}")) for group in KINDS}
