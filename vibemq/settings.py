"""Reads `Settings` from their places and remembers where each value came from."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, cast, get_args

from pydantic import BaseModel, ValidationError

from vibemq import plugins
from vibemq.config import Settings, number_beyond
from vibemq.errors import ConfigInvalid
from vibemq.model.options import TEXT_OPTIONS

DEFAULT_FILE = Path("/etc/vibemq/vibemq.toml")
SECRETS_DIR = Path("/run/secrets")
COMMAND_LINE = "command line"
"""An origin of settings."""
KEY_DOTS_MAX = 1000
"""More than any setting's name has, and than any line of text before its first = is likely to have."""

NOT_SETTINGS = frozenset(
    {
        "VIBEMQ_CONFIG",
        "VIBEMQ_URL",
        "VIBEMQ_HTTP_URL",
        "VIBEMQ_TIMEOUT",
        "VIBEMQ_ACCESS_TOKEN",
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
    files: tuple[Path, ...] = ()
    """Files that were read."""


class SettingsReader:
    """Reads settings again and again from the places that `load` knows.

    Files of the settings in use must still be there: without one, its settings would fall back to others in silence.
    """

    def __init__(
        self,
        config: Path | None = None,
        overrides: Mapping[str, Any] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        secrets_dir: Path = SECRETS_DIR,
        default_file: Path = DEFAULT_FILE,
    ) -> None:
        """As `load`."""
        self._load = partial(
            load, config, overrides, environ=environ, secrets_dir=secrets_dir, default_file=default_file
        )
        self._files: tuple[Path, ...] = ()

    def read(self) -> Loaded:
        """Raises ConfigInvalid as `load`."""
        gone = next((path for path in self._files if _is_missing(path)), None)
        if gone is not None:
            raise ConfigInvalid(
                f"the file {gone}, which settings were read from before, is gone; put it back, or restart the broker "
                "to run without it"
            )
        return self._load()

    def require(self, files: tuple[Path, ...]) -> None:
        """The settings in use were read from these: from now on each of them must be there. Not those of settings that
        were refused, which may go again."""
        self._files = files


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
        ConfigInvalid: one sentence that names the key, its source and the remedy.
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
    files: list[Path] = []
    for origin, values in (
        *_toml_layers(config, environ, default_file, files),
        *_secret_layers(environ, secrets_dir, files),
        *_environment_layers(environ),
        (COMMAND_LINE, _without_none(overrides)),
    ):
        _overlay(merged, values)
        origins.update(dict.fromkeys(_leaves(values), origin))
    try:
        settings = Settings(**merged)
    except ValidationError as error:
        raise ConfigInvalid(_sentence(error, Settings, origins)) from None
    return Loaded(settings, origins, tuple(files))


def check_plugins(loaded: Loaded) -> None:
    """Check what `load` leaves to the plug-ins: their names, the options of the chosen ones, and that no two listen at
    the same place.

    Raises:
        ConfigInvalid: as `load`.
    """
    storage, listeners = loaded.settings.storage, loaded.settings.listeners
    _check_plugin(loaded.origins, "storage", ("storage",), "provider", storage.provider, storage.settings)
    for name, options in loaded.settings.protocols.items():
        _check_plugin(loaded.origins, "protocols", ("protocols", name), "", name, options)
    for number, listener in enumerate(listeners):
        place: tuple[str | int, ...] = ("listeners", number)
        options = loaded.settings.protocol_options(listener)
        _check_plugin(loaded.origins, "protocols", place, "protocol", listener.protocol, options)
    _refuse_shared_addresses(loaded)


def _refuse_shared_addresses(loaded: Loaded) -> None:
    """Raises ConfigInvalid. The system would call it an address that is in use, as by another broker."""
    taken: list[tuple[str, str, int]] = []
    for place, host, port in _addresses(loaded.settings):
        for before, other, same_port in taken:
            if port == same_port and _overlap(host, other):
                raise ConfigInvalid(
                    f"{place_of((*place, 'port'), loaded.origins)} is not valid: {before} listens at port {port} of "
                    f"{other}, too; choose another port"
                )
        taken.append(("".join(f"[{part}]" if isinstance(part, int) else part for part in place), host, port))


def _addresses(settings: Settings) -> Iterator[tuple[tuple[str | int, ...], str, int]]:
    """(place in the settings, host, port) of all that listens at a port that is known."""
    for number, listener in enumerate(settings.listeners):
        plugin = plugins.find("protocols", listener.protocol)
        port = plugin.port if listener.port is None else listener.port
        if plugin.create is not None and port:
            yield ("listeners", number), listener.host, port
    if settings.http.enabled and settings.http.port:
        yield ("http",), settings.http.host, settings.http.port


def _overlap(host: str, other: str) -> bool:
    """Whether they are the same, or one is every address of the other's family."""
    return host == other or any(
        every in (host, other) and (":" in host) == (":" in other)
        for every in ("0.0.0.0", "::")  # noqa: S104
    )


def _check_plugin(
    origins: Mapping[str, str],
    group: str,
    place: tuple[str | int, ...],
    kind: str,
    name: str,
    options: Mapping[str, Any],
) -> None:
    try:
        model = plugins.find(group, name).settings
    except LookupError as error:
        named = (*place, kind) if kind else place
        raise ConfigInvalid(f"{place_of(named, origins)} is not valid: {error}") from error
    above = (*place, "settings") if kind else place
    try:
        made = model(**options)
    except ValidationError as error:
        raise ConfigInvalid(_sentence(error, model, origins, above=above)) from None
    if (found := number_beyond(made)) is not None:
        raise ConfigInvalid(f"{place_of((*above, *found[0]), origins)} is not valid: it must be at most {found[1]}")


def _toml_layers(
    config: Path | None, environ: Mapping[str, str], default: Path, files: list[Path]
) -> list[tuple[str, dict[str, Any]]]:
    """The file that is read is added to `files`."""
    named = config or (Path(environ["VIBEMQ_CONFIG"]) if environ.get("VIBEMQ_CONFIG") else None)
    path = named or default
    if named is None and _is_missing(path):
        return []
    import tomllib  # An embedded broker has no such file, and does not wait for its reader.

    try:
        # Some editors put a mark before the text, which is no part of it.
        text = path.read_text(encoding="utf-8-sig")
        files.append(path)
        _refuse_endless_keys(text)
        return [(str(path), tomllib.loads(text))]
    except OSError as error:
        source = "--config" if config is not None else "VIBEMQ_CONFIG" if named is not None else "its owner or mode"
        raise ConfigInvalid(f"cannot read the settings file {path}: {error.strerror}; correct {source}") from error
    except ValueError as error:
        # Not only tomllib's own kind: bytes that are no text, and numbers of more digits than Python reads.
        raise ConfigInvalid(f"{path} is not valid TOML: {error}") from error


def _is_missing(path: Path) -> bool:
    """Not one that cannot be looked at: why not is told when it is read."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _refuse_endless_keys(text: str) -> None:
    """Raises ValueError. The time that `tomllib` takes for a dotted key grows with the square of its parts."""
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > KEY_DOTS_MAX and line.partition("=")[0].count(".") > KEY_DOTS_MAX:
            raise ValueError(f"a key of more than {KEY_DOTS_MAX} parts (at line {number})")


def _environment_layers(environ: Mapping[str, str]) -> list[tuple[str, dict[str, Any]]]:
    """One layer for each variable, those of whole tables first, so that variables of single settings override them."""
    ours: dict[str, str] = {}
    for name in environ:
        if not name.upper().startswith("VIBEMQ_") or name in NOT_SETTINGS or name.startswith(FROM_KUBERNETES):
            continue
        if name.endswith("_FILE"):
            continue
        _check_name(name, f"environment variable {name}")
        ours[name] = environ[name]
    names = sorted(ours, key=lambda name: name.count("__"))
    return [
        (origin, _parse({name.lower(): ours[name]}, origin))
        for name, origin in ((name, f"environment variable {name}") for name in names)
    ]


def _check_name(name: str, origin: str, suffix: str = "") -> None:
    """The name is that of a variable, without the `suffix` that stands behind it.

    Raises:
        ConfigInvalid: it names no setting, and pydantic would ignore it without a word.
    """
    key, *below = name.upper().removeprefix("VIBEMQ_").split("__")
    if key.lower() not in Settings.model_fields:
        rest = "".join(f"__{part}" for part in below) + suffix
        raise ConfigInvalid(f"{origin} names no setting{_known(key.lower(), rest)}")


def _known(key: str, rest: str) -> str:
    """`rest`: what follows the key in the variable's name."""
    if f"VIBEMQ_{key.upper()}" in NOT_SETTINGS:
        return f"; did you mean VIBEMQ_{key.upper()}?"
    near = get_close_matches(key, Settings.model_fields, n=1)
    if near:
        return f"; did you mean VIBEMQ_{near[0].upper()}{rest}?"
    known = ", ".join(f"VIBEMQ_{field.upper()}" for field in Settings.model_fields)
    return f"; known are {known} (nested with __)"


def _secret_layers(environ: Mapping[str, str], folder: Path, files: list[Path]) -> list[tuple[str, dict[str, Any]]]:
    """The folder's files named like variables (vibemq_auth__token), below the files that VIBEMQ_*_FILE point at. They
    are added to `files`."""
    layers: list[tuple[str, dict[str, Any]]] = []
    named: dict[str, Path] = {}
    for variable, value in environ.items():
        if variable.startswith(FROM_KUBERNETES):
            continue
        if variable.upper().startswith("VIBEMQ_") and variable.endswith("_FILE"):
            _check_name(variable.removesuffix("_FILE"), f"environment variable {variable}", "_FILE")
            named[variable.lower().removesuffix("_file")] = Path(value)
    for name, path in (*_secrets_in(folder).items(), *named.items()):
        try:
            text = path.read_text(encoding="utf-8-sig").rstrip("\r\n")
        except UnicodeDecodeError:
            raise ConfigInvalid(f"the secret file {path} for {name} is no text in UTF-8; write it anew") from None
        except OSError as error:
            raise ConfigInvalid(
                f"cannot read the secret file {path} for {name}: {error.strerror}; correct its path, owner or mode"
            ) from error
        files.append(path)
        layers.append((f"secret file {path}", _parse({name: text}, f"secret file {path}")))
    return layers


def _secrets_in(folder: Path) -> dict[str, Path]:
    """Its files that are named like variables. Another one whose name has no `__` is no concern of ours: it may be a
    key for TLS, or what a variable points at. Raises ConfigInvalid for one that names no setting."""
    try:
        paths = {path.name.lower(): path for path in sorted(folder.iterdir())} if folder.is_dir() else {}
        ours = {name: path for name, path in paths.items() if name.startswith("vibemq_") and path.is_file()}
    except OSError as error:
        # Without its secrets a broker may let everybody in.
        raise ConfigInvalid(
            f"cannot look at the secrets in {folder}: {error.strerror}; correct its owner or mode"
        ) from error
    found: dict[str, Path] = {}
    for name, path in ours.items():
        if "__" in name:
            _check_name(name, f"secret file {path}")
            found[name] = path
        elif name.removeprefix("vibemq_") in Settings.model_fields:
            found[name] = path
    return found


def _parse(variables: Mapping[str, str], origin: str) -> dict[str, Any]:
    # Imported when there is something to read: most brokers are told nothing by their environment.
    from pydantic_settings import BaseSettings, EnvSettingsSource

    # It reads the fields of a model, and asks for one of its own kind.
    model = cast(type[BaseSettings], Settings)
    source = EnvSettingsSource(model, env_prefix="VIBEMQ_", env_nested_delimiter="__")
    source.env_vars = dict(variables)
    try:
        values = source()
    except ValueError as error:
        raise ConfigInvalid(f"{origin} is not valid: lists and tables are written as JSON; see the settings") from error
    if "queue_defaults" in values:
        values["queue_defaults"] = _typed_options(values["queue_defaults"])
    if isinstance(values.get("queues"), Mapping):
        values["queues"] = {name: _typed_options(options) for name, options in values["queues"].items()}
    return values


def _typed_options(options: Any) -> Any:
    """Options of queues have no types here, and variables are text: what an option of text has stays that."""
    if not isinstance(options, Mapping):
        return options
    return {name: value if name in TEXT_OPTIONS else _typed(value) for name, value in options.items()}


def _typed(value: Any) -> Any:
    """Text that is a whole number, true, false or null in JSON is read as that."""
    if not isinstance(value, str):
        return value
    try:
        read = json.loads(value)
    except ValueError:
        return value
    return read if read is None or isinstance(read, bool | int) else value


def _overlay(base: dict[str, Any], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if isinstance(value, Mapping):
            inner = base.setdefault(key, {})
            if isinstance(inner, dict):
                _overlay(inner, value)
                continue
        base[key] = value


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    """And without tables that are empty then: they would hide a value that is no table."""
    plain = {key: _without_none(value) if isinstance(value, Mapping) else value for key, value in values.items()}
    return {key: value for key, value in plain.items() if value is not None and value != {}}


def _leaves(values: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}"


def _sentence(
    error: ValidationError,
    model: type[BaseModel],
    origins: Mapping[str, str],
    above: tuple[str | int, ...] = (),
) -> str:
    """The first problem, as a person wants to hear it; never the refused value, which may be a secret."""
    first = error.errors(include_url=False, include_input=False)[0]
    within: tuple[str | int, ...] = tuple(first["loc"])
    place = place_of((*above, *within), origins)
    if first["type"] == "extra_forbidden":
        return f"{place} is unknown{_choice(str(within[-1]), _keys_of(model, within[:-1]))}"
    if first["type"] == "missing":
        return f"{place} is missing; add it"
    return f"{place} is not valid: {_rule(first['type'], first.get('ctx') or {}, first['msg'])}"


def place_of(parts: Sequence[str | int], origins: Mapping[str, str]) -> str:
    """A setting and its source, as every error about a setting begins."""
    shown = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).lstrip(".")
    return f"setting {shown or 'settings'} (from {_origin_of('.'.join(map(str, parts)), origins)})"


_RULES = {
    "int_parsing": "it must be a whole number",
    "int_type": "it must be a whole number",
    "int_from_float": "it must be a whole number",
    "bool_parsing": "it must be true or false",
    "bool_type": "it must be true or false",
    "string_type": "it must be text",
    "string_too_short": "it is empty; give it a value, or leave it out for its default",
    "path_type": "it must be a path",
    "dict_type": "it must be a table",
    "model_type": "it must be a table of settings",
    "model_attributes_type": "it must be a table of settings",
    "tuple_type": "it must be a list",
    "list_type": "it must be a list",
    "greater_than_equal": "it must be at least {ge}",
    "greater_than": "it must be more than {gt}",
    "less_than_equal": "it must be at most {le}",
    "less_than": "it must be less than {lt}",
    "literal_error": "it must be {expected}",
}
"""What a value must be, by pydantic's types of errors."""


def _rule(kind: str, context: Mapping[str, Any], message: str) -> str:
    if kind in _RULES:
        return _RULES[kind].format_map(context)
    plain = message.removeprefix("Value error, ")
    return plain[:1].lower() + plain[1:]


def _choice(wrong: str, known: Sequence[str]) -> str:
    near = get_close_matches(wrong, known, n=1)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; known are {', '.join(sorted(known))}" if known else "; check its spelling"


def _keys_of(model: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    """The settings that the table at this path has; empty if it is none of ours."""
    kinds: list[Any] = [model]
    for part in path:
        found = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        inner = kinds
        if found is not None and part in found.model_fields:
            inner = [found.model_fields[str(part)].annotation]
        kinds = [leaf for kind in inner for leaf in (kind, *get_args(kind))]
    table = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
    return list(table.model_fields) if table is not None else []


def _origin_of(key: str, origins: Mapping[str, str]) -> str:
    """Where the value comes from; all the sources of a table."""
    while key:
        found = dict.fromkeys(o for known, o in origins.items() if known == key or known.startswith(key + "."))
        if found:
            return " and ".join(found)
        key = key.rpartition(".")[0]
    return "defaults"
