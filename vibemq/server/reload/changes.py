"""Which settings differ, and which of them a reload changes. Pure; what each setting says of itself decides."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from vibemq.config import Listener, Settings, Tls, WhenChanged

NAMED_MAX = 50
"""Entries of one table, such as users, that are named one by one."""

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class SettingsChange:
    settings: Settings
    """Those before, with everything new that a reload changes."""
    changed: tuple[str, ...]
    """Names of settings, never values."""
    needs_restart: tuple[str, ...]
    """Names of settings that differ and stay as they were."""


def when_changed(field: FieldInfo) -> WhenChanged | None:
    """What the setting says of itself."""
    return next((mark for mark in field.metadata if isinstance(mark, WhenChanged)), None)


def compare(before: Settings, after: Settings, *, fixed: Collection[str] = ()) -> SettingsChange:
    """`fixed`: groups of settings that need a restart this time, whatever they say."""
    found = _Comparison(fixed)
    settings = found.group(before, after, "", WhenChanged.RESTART)
    return SettingsChange(settings, tuple(found.changed), tuple(found.needs_restart))


def origins_in_use(before: Mapping[str, str], after: Mapping[str, str], change: SettingsChange) -> dict[str, str]:
    """Where each setting comes from, by dotted name: what stays as it was comes from where it came from."""
    held = {re.split(r"[\[ ]", name)[0] for name in change.needs_restart}

    def stays(key: str) -> bool:
        return any(key == name or key.startswith(f"{name}.") or name.startswith(f"{key}.") for name in held)

    new = {key: origin for key, origin in after.items() if not stays(key)}
    return new | {key: origin for key, origin in before.items() if stays(key)}


class _Comparison:
    def __init__(self, fixed: Collection[str]) -> None:
        self.changed: list[str] = []
        self.needs_restart: list[str] = []
        self._fixed = fixed

    def group(self, before: M, after: M, above: str, inherited: WhenChanged, *, fixed: bool = False) -> M:
        """The settings of one table, with those of `after` that a reload changes."""
        taken: dict[str, Any] = {}
        for name, field in type(before).model_fields.items():
            old, new, place = getattr(before, name), getattr(after, name), f"{above}{name}"
            if old == new:
                continue
            when = when_changed(field) or inherited
            held = fixed or place in self._fixed
            if isinstance(old, BaseModel) and isinstance(new, BaseModel):
                taken[name] = self.group(old, new, f"{place}.", when, fixed=held or _must_be_held(old, new))
            elif place == "listeners":
                taken[name] = self._listeners(old, new)
            elif held or when is WhenChanged.RESTART:
                self.needs_restart += _names(place, old, new)
            else:
                self.changed += _names(place, old, new)
                taken[name] = new
        return before.model_copy(update=taken) if taken else before

    def _listeners(self, before: Sequence[Listener], after: Sequence[Listener]) -> tuple[Listener, ...]:
        """None comes or goes. One that stands elsewhere in the list is known by its protocol and address."""
        pairs = _pairs(before, after)
        taken = list(before)
        for old, new in pairs.items():
            taken[old] = self.group(before[old], after[new], f"listeners[{new}].", WhenChanged.RESTART)
        gone = set(range(len(before))) - pairs.keys()
        new_ones = set(range(len(after))) - set(pairs.values())
        self.needs_restart += [f"listeners[{number}]" for number in sorted(gone | new_ones)]
        return tuple(taken)


def _pairs(before: Sequence[Listener], after: Sequence[Listener]) -> dict[int, int]:
    """Places in `before` and in `after` of the same listener: first those that are at the same place."""

    def address(listener: Listener) -> tuple[str, str, int | None]:
        return listener.protocol, listener.host, listener.port

    both = range(min(len(before), len(after)))
    pairs = {number: number for number in both if address(before[number]) == address(after[number])}
    left = [number for number in range(len(after)) if number not in pairs]
    for old in range(len(before)):
        if old not in pairs:
            same = next((new for new in left if address(before[old]) == address(after[new])), None)
            if same is not None:
                pairs[old] = same
                left.remove(same)
    # What is left at the same place has another address.
    pairs.update({number: number for number in both if number not in pairs and number in left})
    return pairs


def _must_be_held(old: BaseModel, new: BaseModel) -> bool:
    """Whether a listener asks for certificates is decided when it is opened: the context that begins a handshake says
    so, whatever context the handshake is handed over to."""
    return isinstance(old, Tls) and isinstance(new, Tls) and (old.client_ca is None) != (new.client_ca is None)


def _names(place: str, old: Any, new: Any) -> list[str]:
    """The entries that differ of a table whose keys people choose, unless they are very many."""
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return [place]
    keys = [key for key in {**old, **new} if key not in old or key not in new or old[key] != new[key]]
    if len(keys) > NAMED_MAX:
        return [f"{place} ({len(keys):,} of them)"]
    return [f"{place}.{key}" for key in keys]
