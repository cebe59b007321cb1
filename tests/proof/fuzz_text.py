"""Fuzz targets: what people write. Connection strings, settings, and rows of the .NET VibeMQ's database."""

from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

import orjson

from tests.proof.fuzz_engine import Broken, Target
from vibemq.client.address import ClientSettings, parse
from vibemq.errors import ConfigInvalid, InvalidSelector
from vibemq.model.options import options_from_dict, options_to_dict
from vibemq.model.rows import RowView, pack_row
from vibemq.model.selector import Property, PropertyType, Selector, headers_of
from vibemq.settings import load
from vibemq.storage.importers import dotnet_values as dotnet

ADDRESS_WORDS = (
    *(
        b"vibemq://",
        b"vibemqs://",
        b"host=",
        b"port=",
        b";username=",
        b";password=",
        b"?keepAlive=5",
        b"&",
        b"@",
        b":2925",
    ),
    *(
        b'="',
        b'\\"',
        b"%40",
        b"%zz",
        b"[::1]",
        b"compression=auto",
        b"reconnectMaxDelay=",
        b"queues=a,b",
        b"token=",
        b"=-1",
    ),
    *(
        "é".encode(),
        "１".encode(),
        b"reconnectInitialDelay=",
        b"1_0",
        b"\0",
        b"\xff",
        b"tls=true",
        b"reconnectMaxAttempts=",
    ),
)
SETTINGS_WORDS = (
    *(b"\n[limits]\n", b"\n[[listeners]]\n", b"\n[auth]\n", b"max_connections = ", b'provider = "sqlite"', b"port = 0"),
    *(b"VIBEMQ_LIMITS__MAX_CONNECTIONS=", b"VIBEMQ_LISTENERS=", b"VIBEMQ_AUTH__TOKEN=", b"VIBEMQ_LOG__LEVEL=", b"\0"),
    *(b"VIBEMQ_QUEUE_DEFAULTS=", b'{"durability":"weak"}', b'[{"port":0}]', b"VIBEMQ_STORAGE__SETTINGS__A__B=", b"nan"),
    *(b"1e400", b"9" * 40, b"9" * 5000, b'"""', b"[" * 200, b"{a." * 9, b"1979-05-27T07:32:00", b"inf", b"0x7f", b"__"),
)
DOTNET_WORDS = (
    *(
        b'"mode":',
        b'"maxQueueSize":',
        b'"messageTtl":"',
        b"1.02:03:04.5",
        b'"overflowStrategy":3',
        b"null",
        b"\0",
        b"1e400",
    ),
    *(b"2026-01-02T03:04:05.1234567Z", b"+23:59", b"0001-01-01", b"9999-12-31T23:59:59.9999999-14:00", b"-0", b"NaN"),
    *(
        "\ufffd".encode(),
        b'"headers":{"k":"v"}',
        b"[" * 300,
        b'"\\ud800"',
        b"9" * 30,
        b"\xff",
        b":00:00",
        b"99999999999.",
    ),
)


# -- connection strings -------------------------------------------------------------------------------------------


def address(data: bytes) -> Hashable:
    """What is accepted survives being written out in the key=value form."""
    settings = parse(data.decode(errors="surrogateescape"))
    if parse(_written(settings)) != settings:
        raise Broken(f"{settings} changes when it is written and read again")
    return settings.tls, bool(settings.username), bool(settings.queues), settings.compression, bool(settings.token)


def _written(settings: ClientSettings) -> str:
    """Exact for everything that has a key; what has none is at its default, so it need not be written."""
    policy = settings.reconnect
    values: dict[str, Any] = {
        "host": settings.host,
        "port": settings.port,
        "username": settings.username,
        "password": settings.password,
        "token": settings.token,
        "name": settings.name,
        "tls": settings.tls,
        "skipCertValidation": not settings.verify_certificate,
        "keepAlive": int(settings.keep_alive),
        "commandTimeout": int(settings.command_timeout),
        "compression": ",".join(settings.compression) or "none",
        "compressionThreshold": settings.compression_threshold,
        "queues": ",".join(settings.queues),
        "reconnectMaxAttempts": policy.max_attempts or 0,
        "reconnectExponentialBackoff": policy.exponential,
    }
    if policy.initial_delay == int(policy.initial_delay):
        values["reconnectInitialDelay"] = int(policy.initial_delay)
    if policy.max_delay == int(policy.max_delay):
        values["reconnectMaxDelay"] = int(policy.max_delay)
    return ";".join(f'{key}="{_escaped(str(value))}"' for key, value in values.items() if value is not None)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace(";", "\\;")


def _address_seeds() -> Iterable[bytes]:
    yield b"vibemq://user:p%40ss@[::1]:2925?keepAlive=5&compression=brotli,gzip&queues=a,b"
    yield b"vibemqs://localhost"
    yield b'host=localhost;port=2925;username=guest;password="a\\"b;c"'
    yield b"host=h;reconnectInitialDelay=1;reconnectMaxDelay=9;reconnectMaxAttempts=-1;token=t;name=n"
    yield b"host=h;useTls=yes;skipCertValidation=1;commandTimeout=3;compression=auto;compressionThreshold=0"


# -- settings -----------------------------------------------------------------------------------------------------


def settings(data: bytes) -> Hashable:
    """The first byte: how much is a TOML file and how much are environment variables (NAME=value, zero-terminated)."""
    if not data:
        return None
    text, _, lines = data[1:].partition(b"\0") if data[0] & 1 else (b"", b"", data[1:])
    environ = dict(_variable(line) for line in lines.split(b"\0") if b"=" in line)
    loaded = load(
        _Toml(text) if data[0] & 1 else None, environ=environ, secrets_dir=_NOWHERE, default_file=_NOWHERE
    ).settings
    if options_from_dict(options_to_dict(options_from_dict(loaded.queue_defaults))) is None:
        raise Broken("queue defaults cannot be read again")
    return len(loaded.listeners), loaded.auth.enabled, loaded.log.level, loaded.http.enabled, bool(environ)


_NOWHERE = Path("/nonexistent")


class _Toml(type(_NOWHERE)):  # type: ignore[misc]  # the platform's own class of paths
    """A path whose file is not on a disk, which would cost a thousand times the parser."""

    def __new__(cls, content: bytes) -> "_Toml":
        made: _Toml = super().__new__(cls, "/nonexistent/vibemq.toml")
        made._content = content
        return made

    def read_text(self, encoding: str | None = None, errors: str | None = None) -> str:
        return str(self._content, encoding or "utf-8")


def _variable(line: bytes) -> tuple[str, str]:
    name, _, value = line.partition(b"=")
    # As os.environ gives them: what is no UTF-8 arrives as lone surrogates. A pointer to a file would be read.
    return name.decode(errors="surrogateescape").removesuffix("_FILE"), value.decode(errors="surrogateescape")


def _settings_seeds() -> Iterable[bytes]:
    yield b'\x01data_dir = "d"\n[limits]\nmax_connections = 5\n[[listeners]]\nport = 0\nprotocol = "native"\n'
    yield b'\x01weak_flush_ms = 5\n[storage]\nprovider = "lmdb"\n[storage.settings]\nsegment_bytes = 65536\n'
    yield b'\x01[auth]\ntoken = "t"\n[auth.users.bob]\npassword_hash = "h"\n\0VIBEMQ_LOG__LEVEL=debug'
    yield b"\x00VIBEMQ_LIMITS__BODY_BYTES_MAX=100\0VIBEMQ_AUTO_CREATE=false\0VIBEMQ_CONFIG=x"
    yield b'\x00VIBEMQ_LISTENERS=[{"port":0}]\0VIBEMQ_QUEUE_DEFAULTS={"durability":"weak","max_attempts":2}'
    yield b"\x00VIBEMQ_AUTH__SUPERUSER=a\0VIBEMQ_AUTH__SUPERUSER_PASSWORD=b\0PATH=/bin\0VIBEMQ_PORT=tcp://1"
    yield b'\x01[queue_defaults]\ndurability = "strong"\nmessage_ttl_ms = 9\nmode = "fan-out"\n'


# -- the .NET database --------------------------------------------------------------------------------------------


def imported(data: bytes) -> Hashable:
    """The first byte picks a column; values are text as SQLite gives it (what is no UTF-8 comes as U+FFFD)."""
    if not data:
        return None
    kind, text = data[0] % len(_COLUMNS), data[1:].decode(errors="replace")
    try:
        return kind, _COLUMNS[kind](text)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        # What `vibemq.storage.importers.dotnet` reports as a bad row, among them what its own readers did not foresee.
        if type(error) is not ValueError and not isinstance(error, ValueError):
            raise
        return kind, type(error).__name__


def _options(text: str) -> Hashable:
    made = dotnet.options(dotnet.json_object(text, "options_json"))
    if options_from_dict(orjson.loads(orjson.dumps(options_to_dict(made)))) != made:
        raise Broken("imported options change when they are stored and read again")
    return made.mode, made.overflow, made.dead_letter


def _headers(text: str) -> Hashable:
    pairs = dotnet.headers_text(text)
    if RowView(pack_row("m", b"1", pairs)).headers != dict(pair for pair in pairs if pair[0] and pair[1]):
        raise Broken("imported headers change when they are stored and read again")
    return min(len(pairs), 3)


def _dead(text: str) -> Hashable:
    message = dotnet.json_object(text, "message_json")
    payload = dotnet.payload_text(message.get("payload"))
    pack_row(dotnet.text(message.get("id"), "id"), payload.encode(), dotnet.headers(message.get("headers")))
    dotnet.instant(message.get("timestamp"), 5)
    return dotnet.priority(message.get("priority", 1))


def _instant(text: str) -> Hashable:
    when = dotnet.instant(text, 7)
    if not 0 <= when < 2**63:
        raise Broken(f"{text!r} is the instant {when}")
    return when == 0


_COLUMNS: list[Any] = [_options, _headers, _dead, _instant, lambda text: dotnet.time_span_ms(text) > 0]


def _dotnet_seeds() -> Iterable[bytes]:
    yield b'\0{"mode":2,"maxQueueSize":5,"messageTtl":"1.02:03:04.5","enableDeadLetterQueue":true,"overflowStrategy":3}'
    yield b'\x01{"k":"v","n":null,"e":""}'
    yield b'\x02{"id":"m1","queueName":"q","payload":{"a":[1,2.5,"x"]},"headers":{"k":"v"},"priority":2}'
    yield b"\x032026-01-02T03:04:05.1234567+02:00"
    yield b"\x032026-01-02T03:04:05Z"
    yield b"\x041.02:03:04.5000001"


SELECTOR_WORDS = (
    *(b" || ", b" && ", b" == ", b" != ", b" <= ", b">", b" + ", b" - ", b"*", b" / ", b"%", b"!", b"~", b"(", b")"),
    *(b"n", b"text", b"flag", b"bin", b"exists(", b"true", b"false", b'"a"', b'"', b"\\", b"-9223372036854775808"),
    *(b"9223372036854775807", b"0", b"x.y_z", "é".encode(), b"\n", b"\xff"),
)
_TYPED = [
    ("n", Property(PropertyType.INT64, -(1 << 63))),
    ("flag", Property(PropertyType.BOOL, value=True)),
    ("bin", Property(PropertyType.BINARY, b"\xff")),
    ("x.y_z", Property(PropertyType.STRING, "\udcff")),
]
_PROPERTIES = pack_row("m", b"", [*headers_of(_TYPED), ("text", "12")])
_PLACE = RowView(_PROPERTIES).headers_at
_ALL_TYPED = {
    "x": Property(PropertyType.CHAR, 7),
    "total": Property(PropertyType.INT32, -9),
    "flag": Property(PropertyType.BOOL, True),
    "region": Property(PropertyType.STRING, "eu"),
    "blob": Property(PropertyType.BINARY, b"\1"),
    "big": Property(PropertyType.INT64, (1 << 63) - 1),
}
_TYPED_ROW = pack_row("i", b"", headers_of(_ALL_TYPED.items()))
_TYPED_PLACE = RowView(_TYPED_ROW).headers_at


def selector(data: bytes) -> Hashable:
    text = data.decode(errors="replace")
    try:
        parsed = Selector.parse(text)
    except InvalidSelector as refused:
        if not 0 <= refused.offset <= len(text):
            raise Broken(f"the mistake is at {refused.offset} of {len(text)} characters") from None
        return "refused"
    matches = parsed.matches_block(_PROPERTIES, _PLACE)
    if len(text) < 127 and Selector.parse(f"({text})").matches_block(_PROPERTIES, _PLACE) != matches:
        raise Broken("parentheses around the whole change what it matches")
    typed = parsed.matches(_ALL_TYPED)
    if parsed.matches_block(_TYPED_ROW, _TYPED_PLACE) != typed:
        raise Broken("a selector finds something else in the headers than in the properties")
    return matches, typed, parsed.matches({}), min(len(parsed.names), 3)


def _selector_seeds() -> Iterable[bytes]:
    yield b'region == "eu" && total > 100'
    yield b"exists(flag) || !(n + 1 < 2 * text) && flag == true"
    yield b"-n / -1 == n % 2 - 1"
    yield b"exists(x) && x * 3 - 1 >= total % 4 / -2"
    yield b'(flag == true) != false || "a" <= region'
    yield b"big + 1 > 0 || -big - 2 < 0 && ~(x != 7)"
    yield b"((((x)))) == 9223372036854775807"


CONFIG = (ConfigInvalid,)
TARGETS = [
    Target("selector", "selectors, and what they match", selector, (), _selector_seeds, SELECTOR_WORDS, 140),
    Target("address", "connection strings", address, CONFIG, _address_seeds, ADDRESS_WORDS, 400),
    Target(
        "settings",
        "settings: TOML, environment",
        settings,
        CONFIG,
        _settings_seeds,
        SETTINGS_WORDS,
        800,
    ),
    Target(
        "dotnet",
        "rows of the .NET database",
        imported,
        (),
        _dotnet_seeds,
        DOTNET_WORDS,
        600,
    ),
]
