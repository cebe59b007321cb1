"""Text of the command line to numbers and pairs. Pure; every refusal says what would have been right."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from vibemq.errors import ConfigInvalid
from vibemq.model import quantities
from vibemq.model.quantities import DURATION_MAX_MS, NUMBER_MAX

IDS_MAX: Final = 100_000
DIGITS_MAX: Final = len(str(NUMBER_MAX))

TLS_KEYS: Final = {
    "tls_ca": "tlsCa",
    "tls_cert": "tlsCertificate",
    "tls_key": "tlsKey",
    "tls_server_name": "tlsServerName",
    "tls_insecure": "skipCertValidation",
}
"""Parameters of commands, and the keys of a connection string that they stand for."""


def duration_ms(text: str | int) -> int:
    """`250ms`, `30s`, `5m`, `2h`, `7d`, `1w`, and sums such as `1h30m`. Only 0 needs no unit."""
    if isinstance(text, int):
        return text
    try:
        value = quantities.duration_ms(text)
    except ValueError as error:
        raise ConfigInvalid(f"{text!r} is not a duration; write {quantities.DURATION_EXAMPLES}") from error
    if value > DURATION_MAX_MS:
        raise ConfigInvalid(f"{text!r} is too long; the longest duration is {DURATION_MAX_MS // 86_400_000:,}d")
    return value


def above_zero_ms(text: str | int) -> int:
    """A duration that is more than 0."""
    value = duration_ms(text)
    if not value:
        raise ConfigInvalid(f"{text!r} is too short; give more than 0, or leave it out for no limit")
    return value


def seconds(text: str | float) -> float:
    """A duration as seconds, above 0."""
    value = duration_ms(text) / 1000 if isinstance(text, str) else float(text)
    if value <= 0:
        raise ConfigInvalid(f"{text!r} is too short; give more than 0 seconds")
    return value


def size_bytes(text: str | int) -> int:
    """`4096`, `64KiB`, `10MB`, `2GiB`."""
    if isinstance(text, int):
        return text
    try:
        return quantities.size_bytes(text)
    except ValueError as error:
        raise ConfigInvalid(f"{text!r} is not a size; write {quantities.SIZE_EXAMPLES}") from error


def whole_number(text: str) -> int | None:
    """None: it is none, or has more digits than any number here, of which Python reads no more than some thousand."""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() and len(digits) <= DIGITS_MAX else None


def folder(text: str) -> Path:
    """A directory that is named: an empty text is mostly a variable that is not set, and no name of the current one."""
    if not text:
        raise ConfigInvalid("it is empty; name a directory, . for the current one")
    return Path(text)


def key_value(text: str) -> tuple[str, str]:
    """`key=value`; the value may hold further `=`."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigInvalid(f"{text!r} is not a pair; write key=value")
    return key.strip(), value


def key_values(texts: list[str] | None) -> dict[str, str]:
    return dict(key_value(text) for text in texts or ())


def with_keys(url: str, keys: Mapping[str, str]) -> str:
    """A connection string, in either form, with further keys; these win."""
    if "://" in url:
        sign = "&" if "?" in url else "?"
        return url + sign + "&".join(f"{key}={quote(value)}" for key, value in keys.items())
    return ";".join([url.strip().rstrip(";"), *(f"{key}={_quoted(value)}" for key, value in keys.items())]).lstrip(";")


def url_with_tls(url: str, values: Mapping[str, Any]) -> str:
    """The url with what these parameters of a command say of TLS."""
    keys = {key: values.get(name) for name, key in TLS_KEYS.items()}
    given = {key: value if isinstance(value, str) else "true" for key, value in keys.items() if value}
    return with_keys(url, {"tls": "true", **given}) if given else url


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def id_runs(texts: list[str]) -> list[int]:
    """Dead-letter ids from `17`, `20-25` and comma lists of both, sorted, each once."""
    ids: set[int] = set()
    for part in (part.strip() for text in texts for part in text.split(",")):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ConfigInvalid(f"{part!r} is not an id; write 17, 20-25 or a comma list of them")
        if max(len(first), len(last)) > DIGITS_MAX or max(int(first), int(last or 0)) > NUMBER_MAX:
            raise ConfigInvalid(f"{part[:40]!r} is too large; the largest id is {NUMBER_MAX}")
        if int(last or first) < int(first):
            raise ConfigInvalid(f"{part!r} names no id; write the smaller one first")
        if int(last or first) - int(first) >= IDS_MAX:
            raise ConfigInvalid(f"{part!r} names more than {IDS_MAX:,} ids; use the other filters for so many")
        ids.update(range(int(first), int(last or first) + 1))
    return sorted(ids)
