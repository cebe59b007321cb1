"""Arguments of a `Broker`."""

import os
from collections.abc import Callable
from typing import Any

from vibemq.config import PORT_MAX, Settings, check_folder, check_host
from vibemq.errors import ConfigInvalid
from vibemq.model.arguments import check_callable, check_text, check_whole, misfit, shown
from vibemq.server.clock import TimeSource
from vibemq.server.reload.reloader import SettingsSource


def check_broker_arguments(
    data_dir: object,
    settings: object,
    host: object,
    port: object,
    http_port: object,
    storage: object,
    on_fatal: object,
    on_recovered: object,
    source: object,
    time_source: object,
) -> None:
    """
    Raises:
        ConfigInvalid: an argument of a Broker is of a kind that cannot be used.
    """
    if data_dir is not None:
        _check_path("data_dir", data_dir)
    check_text("host", host, ConfigInvalid)
    _check("host", host, check_host)
    _check_port("port", port)
    if http_port is not None:
        _check_port("http_port", http_port)
    check_text("storage", storage, ConfigInvalid)
    for name, value in (("on_fatal", on_fatal), ("on_recovered", on_recovered)):
        if value is not None:
            check_callable(name, value, ConfigInvalid)
    for name, value, kind in (
        ("settings", settings, Settings),
        ("source", source, SettingsSource),
        ("time_source", time_source, TimeSource),
    ):
        if value is not None and not isinstance(value, kind):
            raise misfit(name, value, f"a {kind.__name__}", ConfigInvalid)


def _check_path(name: str, value: object) -> None:
    """A name that is not UTF-8 is good, as `os.fsdecode` gives it."""
    try:
        if isinstance(value, str | os.PathLike) and isinstance(os.fspath(value), str):
            os.fsencode(value)
            _check(name, os.fspath(value), check_folder)
            return
    except UnicodeEncodeError:
        pass
    raise misfit(name, value, "text or a Path that a folder can have as its name", ConfigInvalid)


def _check(name: str, value: Any, check: Callable[[Any], object]) -> None:
    """As a setting."""
    try:
        check(value)
    except ValueError as error:
        raise ConfigInvalid(f"{name} is {shown(value)}; {error}") from None


def _check_port(name: str, value: object) -> None:
    check_whole(name, value, ConfigInvalid)
    if value not in range(PORT_MAX + 1):
        raise misfit(name, value, f"a whole number from 0 to {PORT_MAX:,}", ConfigInvalid)
