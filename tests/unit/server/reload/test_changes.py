from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from vibemq.config import Settings
from vibemq.server.reload.changes import NAMED_MAX, SettingsChange, compare, origins_in_use
from vibemq.settings import load


@pytest.fixture
def change(tmp_path: Path) -> Any:
    """Of two settings files; of the first when only one is given."""

    def read(text: str) -> Settings:
        file = tmp_path / "vibemq.toml"
        file.write_text(text)
        return load(file, environ={}, secrets_dir=tmp_path / "none").settings

    def compared(before: str, after: str, **more: Any) -> SettingsChange:
        return compare(read(before), read(after), **more)

    return compared


def test_nothing(change: Any) -> None:
    found = change("auto_create = false", "auto_create = false")
    assert (found.changed, found.needs_restart) == ((), ())


def test_what_needs_a_restart_comes_from_where_it_came_from(change: Any) -> None:
    found = change(
        'data_dir = "a"\nhistory_bytes = 5000000\n[limits]\nidle_timeout_ms = 1\n[[listeners]]\nport = 1',
        'auto_create = false\n[limits]\nidle_timeout_ms = 2\n[storage]\nprovider = "memory"',
    )
    names = ("data_dir", "history_bytes", "limits.idle_timeout_ms", "listeners")
    new = dict.fromkeys(("auto_create", "limits.idle_timeout_ms", "storage.provider"), "the new file")
    assert origins_in_use(dict.fromkeys(names, "the old file"), new, found) == {
        "data_dir": "the old file",
        "history_bytes": "the old file",
        "listeners": "the old file",
        "auto_create": "the new file",
        "limits.idle_timeout_ms": "the new file",
    }


def test_each_setting_goes_where_it_belongs(change: Any) -> None:
    found = change(
        'data_dir = "a"\n[limits]\nidle_timeout_ms = 1\n[http]\nport = 1',
        'data_dir = "b"\nauto_create = false\n[limits]\nidle_timeout_ms = 2\nhandshake_timeout_ms = 3\n'
        '[http]\nport = 2\ntoken = "t"\n[storage.settings]\nbuffer_bytes = 5\n[queues.jobs]',
    )
    assert found.changed == ("auto_create", "limits.idle_timeout_ms", "http.token")
    assert found.needs_restart == (
        "data_dir",
        "storage.settings.buffer_bytes",
        "queues.jobs",
        "limits.handshake_timeout_ms",
        "http.port",
    )
    settings = found.settings
    assert (str(settings.data_dir), settings.auto_create, settings.http.port) == ("a", False, 1)
    assert settings.http.token == SecretStr("t")
    assert (settings.limits.idle_timeout_ms, settings.limits.handshake_timeout_ms) == (2, 5_000)


def test_what_is_fixed_stays_and_is_named(change: Any) -> None:
    found = change('[auth]\ntoken = "a"', '[auth]\ntoken = "b"', fixed=("auth",))
    assert (found.changed, found.needs_restart) == ((), ("auth.token",))
    assert found.settings.auth.shared_token == "a"


def test_very_many_entries_are_counted(change: Any) -> None:
    many = "\n".join(f"[queues.q{number}]" for number in range(NAMED_MAX + 1))
    assert change("", many).needs_restart == (f"queues ({NAMED_MAX + 1} of them)",)


LISTENER = '[[listeners]]\nport = {}\ntls = {{ certificate = "{}" }}\n'


def certificates(found: SettingsChange) -> list[str]:
    return [str(listener.tls.certificate) for listener in found.settings.listeners if listener.tls is not None]


def test_listeners_are_known_by_their_address(change: Any) -> None:
    before = LISTENER.format(1, "a") + LISTENER.format(2, "b")
    found = change(before, LISTENER.format(3, "c") + LISTENER.format(1, "new") + LISTENER.format(2, "b"))
    assert (found.changed, found.needs_restart) == (("listeners[1].tls.certificate",), ("listeners[0]",))
    assert certificates(found) == ["new", "b"]


def test_a_listener_with_another_address_is_the_same_and_needs_a_restart(change: Any) -> None:
    found = change(LISTENER.format(1, "a"), LISTENER.format(2, "b"))
    assert found.needs_restart == ("listeners[0].port",)
    assert found.settings.listeners[0].port == 1


def test_a_listener_that_is_gone(change: Any) -> None:
    found = change(LISTENER.format(1, "a") + LISTENER.format(2, "b"), LISTENER.format(1, "a"))
    assert (found.changed, found.needs_restart) == ((), ("listeners[1]",))
    assert certificates(found) == ["a", "b"]


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        ("", 'tls = { certificate = "a" }', ("listeners[0].tls",)),
        ('tls = { certificate = "a" }', "", ("listeners[0].tls",)),
        (
            'tls = { certificate = "a" }',
            'tls = { certificate = "b", client_ca = "c", identity = "cn" }',
            ("listeners[0].tls.certificate", "listeners[0].tls.client_ca", "listeners[0].tls.identity"),
        ),
    ],
)
def test_whether_certificates_are_asked_for_is_decided_when_a_listener_is_opened(
    change: Any, before: str, after: str, names: tuple[str, ...]
) -> None:
    found = change(f"[[listeners]]\n{before}", f"[[listeners]]\n{after}")
    assert (found.changed, found.needs_restart) == ((), names)


def test_no_value_is_shown(change: Any) -> None:
    found = change('[auth]\ntoken = "s3cret1"', '[auth]\ntoken = "s3cret2"\n[http]\ntoken = "s3cret3"')
    assert found.changed == ("auth.token", "http.token")
    assert "s3cret" not in repr(found)
