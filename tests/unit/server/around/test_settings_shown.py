"""Settings as operators see them: every one, no secret, each with its origin."""

from pathlib import Path
from typing import Any

import orjson
from pydantic import SecretStr

from vibemq.auth.passwords import hash_password
from vibemq.config import Auth, Http, Listener, Permission, Settings, StorageChoice, Tls, User
from vibemq.server.around.settings_shown import SET, shown_settings
from vibemq.settings import load

CANARY = "canary"


def by_name(settings: Settings, origins: dict[str, str] | None = None) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in shown_settings(settings, origins)}


def full() -> Settings:
    user = User(
        password_hash=SecretStr(hash_password(CANARY)), permissions=(Permission(queues="a", actions=("publish",)),)
    )
    return Settings(
        storage=StorageChoice(
            settings={"dsn": f"pg://joe:{CANARY}@host/db", "api_key": CANARY, "deep": {"token": CANARY}}
        ),
        listeners=(
            Listener(port=1, tls=Tls(certificate=Path("c.pem"))),
            Listener(protocol="omq", settings={"password": CANARY}),
        ),
        protocols={"eventmesh": {"secret": CANARY, "durability": "weak"}},
        auth=Auth(token=SecretStr(CANARY), users={"ann": user}, superuser="root", superuser_password=SecretStr(CANARY)),
        http=Http(token=SecretStr(CANARY)),
    )


def test_no_secret_is_shown_and_that_there_is_one_is() -> None:
    shown = orjson.dumps(shown_settings(full(), None)).decode()
    assert CANARY not in shown
    assert "argon2" not in shown
    rows = by_name(full())
    for name in (
        "auth.token",
        "auth.superuser_password",
        "auth.users.ann.password_hash",
        "http.token",
        "listeners[1].settings.password",
        "protocols.eventmesh.secret",
        "storage.settings.api_key",
        "storage.settings.deep.token",
    ):
        assert rows[name]["value"] == SET, name
    assert rows["storage.settings.dsn"]["value"] == "pg://joe:set@host/db"
    assert by_name(Settings())["auth.token"]["value"] is None


def test_every_setting_is_there_with_what_makes_a_change_count() -> None:
    rows = by_name(full())
    assert rows["listeners[0].port"] == {
        "name": "listeners[0].port",
        "value": 1,
        "origin": "the program",
        "when": "restart",
    }
    assert rows["listeners[0].tls.certificate"]["when"] == "new connections"
    assert rows["limits.memory_limit_bytes"] == {
        "name": "limits.memory_limit_bytes",
        "value": 0,
        "origin": "default",
        "when": "reload",
    }
    assert rows["auth.users.ann.permissions[0].actions"]["value"] == ["publish"]
    assert rows["protocols.eventmesh.durability"]["value"] == "weak"
    groups = {"storage", "limits", "auth", "http", "log", "listeners", "protocols"}
    assert set(Settings.model_fields) - groups <= rows.keys()


def test_each_value_has_its_origin(tmp_path: Path) -> None:
    file = tmp_path / "vibemq.toml"
    file.write_text('weak_flush_ms = 5\n[[listeners]]\nport = 7\n[log]\nlevel = "debug"\n', encoding="utf-8")
    loaded = load(
        file,
        {"http": {"port": 9}},
        environ={"VIBEMQ_LIMITS__MAX_CONNECTIONS": "3"},
        secrets_dir=tmp_path / "none",
    )
    rows = by_name(loaded.settings, loaded.origins)
    origins = {name: row["origin"] for name, row in rows.items() if row["origin"] != "default"}
    assert origins == {
        "weak_flush_ms": str(file),
        "log.level": str(file),
        **{name: str(file) for name in rows if name.startswith("listeners[0].")},
        "http.port": "command line",
        "limits.max_connections": "environment variable VIBEMQ_LIMITS__MAX_CONNECTIONS",
    }
