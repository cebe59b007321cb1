"""Reads `Settings` from their places and remembers where each value came from."""

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import EnvSettingsSource

from vibemq.config import Settings
from vibemq.errors import ConfigInvalid

DEFAULT_FILE = Path("/etc/vibemq/vibemq.toml")
SECRETS_DIR = Path("/run/secrets")
KEY_DOTS_MAX = 1000
"""More than any setting's name has, and than any line of text before its first = is likely to have."""

NOT_SETTINGS = frozenset(
    {
        "VIBEMQ_CONFIG",
        "VIBEMQ_URL",
        "VIBEMQ_TIMEOUT",
        "VIBEMQ_TLS_CA",
        "VIBEMQ_TLS_CERT",
        "VIBEMQ_TLS_KEY",
        "VIBEMQ_TLS_SERVER_NAME",
    }
)
"""Variables of our own that are no settings of a broker."""
FROM_KUBERNETES = ("VIBEMQ_PORT", "VIBEMQ_SERVICE_")
"""A Kubernetes service named vibemq puts variables that start so into every pod of its namespace."""


@dataclass(frozen=True, slots=True)
class Loaded:
    settings: Settings
    origins: dict[str, str]
    """Dotted key -> where its value came from; defaults are absent."""


def load(
    config: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    secrets_dir: Path = SECRETS_DIR,
    default_file: Path = DEFAULT_FILE,
) -> Loaded:
    """Read settings once.

    Args:
        config: TOML file; None = the one named by VIBEMQ_CONFIG, else /etc/vibemq/vibemq.toml if there is one.
        overrides: values of the command line, nested like the settings; None values are left out.

    Raises:
        ConfigInvalid: one sentence that names the key, the source and the mend.
    """
    environ = os.environ if environ is None else environ
    try:
        return _load(config, overrides or {}, environ, secrets_dir, default_file)
    except RecursionError:
        raise ConfigInvalid("the settings are nested too deeply; no setting has more than a few levels") from None


def _load(
    config: Path | None,
    overrides: Mapping[str, Any],
    environ: Mapping[str, str],
    secrets_dir: Path,
    default_file: Path,
) -> Loaded:
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, values in (
        *_toml_layers(config, environ, default_file),
        *_secret_layers(environ, secrets_dir),
        ("environment", _from_environment(environ)),
        ("command line", _without_none(overrides)),
    ):
        _overlay(merged, values)
        origins.update(dict.fromkeys(_leaves(values), origin))
    try:
        return Loaded(Settings(**merged), origins)
    except ValidationError as error:
        raise ConfigInvalid(_sentence(error, origins)) from None


def _toml_layers(config: Path | None, environ: Mapping[str, str], default: Path) -> list[tuple[str, dict[str, Any]]]:
    named = config or (Path(environ["VIBEMQ_CONFIG"]) if environ.get("VIBEMQ_CONFIG") else None)
    path = named or default
    if named is None and not path.exists():
        return []
    try:
        text = path.read_text(encoding="utf-8")
        _refuse_endless_keys(text)
        return [(str(path), tomllib.loads(text))]
    except OSError as error:
        raise ConfigInvalid(f"cannot read the settings file {path}: {error.strerror}; correct --config") from error
    except ValueError as error:
        # Not only tomllib's own kind: bytes that are no text, and numbers of more digits than Python reads.
        raise ConfigInvalid(f"{path} is not valid TOML: {error}") from error


def _refuse_endless_keys(text: str) -> None:
    """Raises ValueError. The time that `tomllib` takes for a dotted key grows with the square of its parts."""
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > KEY_DOTS_MAX and line.partition("=")[0].count(".") > KEY_DOTS_MAX:
            raise ValueError(f"a key of more than {KEY_DOTS_MAX} parts (at line {number})")


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    ours: dict[str, str] = {}
    for name, value in environ.items():
        if not name.upper().startswith("VIBEMQ_") or name in NOT_SETTINGS or name.startswith(FROM_KUBERNETES):
            continue
        if name.endswith("_FILE"):
            continue
        key = name.upper().removeprefix("VIBEMQ_").split("__")[0].lower()
        if key not in Settings.model_fields:
            known = ", ".join(f"VIBEMQ_{field.upper()}" for field in Settings.model_fields)
            raise ConfigInvalid(f"environment variable {name} names no setting; known are {known} (nested with __)")
        ours[name.lower()] = value
    return _parse(ours, "environment")


def _secret_layers(environ: Mapping[str, str], folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """The folder's files named like variables (vibemq_auth__token), below the files that VIBEMQ_*_FILE point at."""
    layers: list[tuple[str, dict[str, Any]]] = []
    paths = {path.name.lower(): path for path in sorted(folder.iterdir())} if folder.is_dir() else {}
    found = {name: path for name, path in paths.items() if name.startswith("vibemq_") and path.is_file()}
    named = {
        name.lower().removesuffix("_file"): Path(value)
        for name, value in environ.items()
        if name.upper().startswith("VIBEMQ_") and name.endswith("_FILE")
    }
    for name, path in (*found.items(), *named.items()):
        try:
            text = path.read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise ConfigInvalid(f"cannot read the secret {path} for {name}: {error.strerror}") from error
        layers.append((str(path), _parse({name: text}, str(path))))
    return layers


def _parse(variables: Mapping[str, str], origin: str) -> dict[str, Any]:
    source = EnvSettingsSource(Settings)
    source.env_vars = dict(variables)
    try:
        return source()
    except ValueError as error:
        raise ConfigInvalid(f"{origin}: {error}; lists and tables are written as JSON") from error


def _overlay(base: dict[str, Any], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, Mapping):
            inner = base.setdefault(key, {})
            if isinstance(inner, dict):
                _overlay(inner, value)
                continue
        base[key] = value


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    plain = {key: _without_none(value) if isinstance(value, Mapping) else value for key, value in values.items()}
    return {key: value for key, value in plain.items() if value is not None}


def _leaves(values: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}"


def _sentence(error: ValidationError, origins: Mapping[str, str]) -> str:
    """The first problem, as a person wants to hear it; never the refused value, which may be a secret."""
    first = error.errors(include_url=False, include_input=False)[0]
    key = ".".join(map(str, first["loc"])) or "settings"
    origin = _origin_of(key, origins)
    if first["type"] == "extra_forbidden":
        return f"setting {key} (from {origin}) is unknown; check its spelling"
    message = first["msg"].removeprefix("Value error, ")
    return f"setting {key} (from {origin}) is not valid: {message[:1].lower() + message[1:]}"


def _origin_of(key: str, origins: Mapping[str, str]) -> str:
    while key:
        for known, origin in origins.items():
            if known == key or known.startswith(key + "."):
                return origin
        key = key.rpartition(".")[0]
    return "defaults"
