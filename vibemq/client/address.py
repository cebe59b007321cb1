"""Connection strings: a URL, or `key=value;…`. Pure text in, settings out.

    vibemq://[user[:password]@]host[:port][?key=value&…]       vibemqs:// is the same with TLS
    vibemq://:token@host[:port][?key=value&…]                  the same as ?token=…
    host=…;port=…;username=…;password=…;key=value…             values may be "quoted", with \\" \\\\ \\; \\= inside

The keys are those of the .NET client (which ignores what it does not know, so that a typing error silently talks to
localhost:2925). Here an unknown key or an impossible value is refused, with the nearest known key.

Source: the native protocol's connection string, since 1.7.
"""

import difflib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from vibemq.client.publishing.outgoing import SECONDS_MAX
from vibemq.client.reconnect import ReconnectPolicy
from vibemq.errors import ConfigInvalid
from vibemq.model.arguments import check_flag, check_seconds, check_text, check_whole, misfit, shown

DEFAULT_PORT = 2925
MESSAGE_BYTES_MAX = 256 << 20
COMPRESSIONS = ("brotli", "gzip")
_SCHEMES = ("vibemq://", "vibemqs://")
_NO_HOST = frozenset(" \t\r\n,;=/?#@")
_WHOLE = re.compile(r"[+-]?[0-9]+")
"""What Python reads besides, such as 2_925 or digits of other scripts, is mostly a slip."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_WORD = re.compile(r"[a-z_]{1,32}")
_TRUE, _FALSE = frozenset(("true", "1", "yes", "on")), frozenset(("false", "0", "no", "off"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Everything a client needs to know about its broker. Times in seconds."""

    host: str = "localhost"
    port: int = DEFAULT_PORT
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    tls: bool = False
    verify_certificate: bool = True
    """False: TLS with whoever answers, which keeps out nobody who can reach the wire."""
    tls_ca: str = ""
    """PEM file of the authorities that may have signed the broker's certificate; "" = those of the system."""
    tls_certificate: str = ""
    """PEM file with our certificate, for a broker that asks its clients for one."""
    tls_key: str = ""
    """PEM file with its key; "" = it stands in `tls_certificate`."""
    tls_server_name: str = ""
    """The name that the broker's certificate must hold; "" = `host`."""
    keep_alive: float = 15.0
    """Silence after which the peer is asked for a sign of life."""
    command_timeout: float = 10.0
    """From sending a request to its answer; also bounds dialling and the handshake, each."""
    compression: tuple[str, ...] = ()
    """Offered algorithms, best first; () = none, which is the fastest on a local network."""
    compression_threshold: int = 1024
    reconnect: ReconnectPolicy = field(default_factory=ReconnectPolicy)
    queues: tuple[str, ...] = ()
    """Queues to create at the first connection when they are missing."""
    name: str = ""
    """Shown by the broker beside the connection."""
    safe_retry: bool = True
    """Give every `publish` a dedup id, so that resending it after a lost connection never doubles it."""
    publish_connection: bool = True
    """A blocking client that publishes one message after the other, each waited for, may make a second connection for
    them. Not with TLS."""
    max_unconfirmed: int = 20_000
    max_unconfirmed_bytes: int = 16 * 1024 * 1024
    """Published and not yet confirmed; publishers wait above either bound."""
    max_message_bytes: int = MESSAGE_BYTES_MAX
    """Largest body that this client sends and receives; the broker's own limit counts when it is smaller."""

    def __post_init__(self) -> None:
        self._check_kinds()
        if (self.username is None) != (self.password is None):
            raise ConfigInvalid("a username needs a password and the other way round; give both or neither")
        if self.tls_key and not self.tls_certificate:
            raise ConfigInvalid("a TLS key needs the certificate that belongs to it; give both")
        if self.tls_ca or self.tls_certificate or self.tls_server_name:
            # Whoever names certificates means TLS; without it they would be ignored in silence.
            object.__setattr__(self, "tls", True)
        if not self.host or set(self.host) & _NO_HOST or self.host.count(":") == 1:
            shown_host = self.host if "@" not in self.host else f"…@{self.host.rpartition('@')[2]}"
            raise ConfigInvalid(f"host must be a name or an address without its port, not {shown_host!r}")
        if not 0 < self.port <= 65535:
            raise ConfigInvalid(f"port must be 1 to 65535, not {self.port}")
        if not 0 < self.max_message_bytes <= MESSAGE_BYTES_MAX:
            raise ConfigInvalid(
                f"max_message_bytes must be 1 to {MESSAGE_BYTES_MAX:,} (256 MiB), not {self.max_message_bytes:,}"
            )
        for name in ("keep_alive", "command_timeout", "max_unconfirmed", "max_unconfirmed_bytes"):
            if not getattr(self, name) > 0:
                raise ConfigInvalid(f"{name} must be above 0, not {getattr(self, name)}")

    def _check_kinds(self) -> None:
        for name in ("host", "tls_ca", "tls_certificate", "tls_key", "tls_server_name", "name"):
            check_text(name, getattr(self, name), ConfigInvalid)
        for name in ("username", "password", "token"):
            value = getattr(self, name)
            if value is not None:
                check_text(name, value, ConfigInvalid, secret=name != "username")
        for name in ("tls", "verify_certificate", "safe_retry", "publish_connection"):
            check_flag(name, getattr(self, name), ConfigInvalid)
        for name in _WHOLE_NUMBERS:
            check_whole(name, getattr(self, name), ConfigInvalid)
        for name in ("keep_alive", "command_timeout"):
            check_seconds(name, getattr(self, name), ConfigInvalid)
        if not isinstance(self.reconnect, ReconnectPolicy):
            raise misfit("reconnect", self.reconnect, "a vibemq.ReconnectPolicy", ConfigInvalid)
        for name in ("compression", "queues"):
            values = getattr(self, name)
            if not isinstance(values, tuple):
                raise misfit(name, values, "a tuple of texts", ConfigInvalid)
            for value in values:
                check_text(f"an entry of {name}", value, ConfigInvalid)


_WHOLE_NUMBERS = ("port", "max_message_bytes", "max_unconfirmed", "max_unconfirmed_bytes", "compression_threshold")


def settings_of(address: str | ClientSettings) -> ClientSettings:
    """
    Raises:
        ConfigInvalid: it is neither, or it cannot be used.
    """
    if isinstance(address, ClientSettings):
        return address
    if not isinstance(address, str):
        raise misfit("address", address, "text, such as 'vibemq://localhost:2925', or ClientSettings", ConfigInvalid)
    check_text("address", address, ConfigInvalid, secret=True)
    if not address.strip():
        # Mostly a variable that is not set; the broker of this machine would be a guess.
        raise ConfigInvalid("the address is empty; write vibemq://localhost:2925 for the broker of this machine")
    return parse(address)


def parse(text: str) -> ClientSettings:
    """Read either form.

    Raises:
        ConfigInvalid: with what is wrong and what was probably meant.
    """
    stripped = text.strip()
    if stripped.lower().startswith(_SCHEMES):
        return _parse_url(stripped)
    scheme, colon, _ = stripped.partition("://")
    if colon and _SCHEME.fullmatch(scheme):
        raise ConfigInvalid(f"{scheme!r} is not a scheme of VibeMQ; write vibemq:// or vibemqs://")
    return _settings(_key_values(stripped), _ALL_KEYS)


def compressions(text: str) -> tuple[str, ...]:
    """`none`, `auto`, or a comma list of `brotli` and `gzip`."""
    if not isinstance(text, str):
        raise misfit("compression", text, "text: auto, none or a list of brotli, gzip", ConfigInvalid)
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    if names in ([], ["none"]):
        return ()
    if names == ["auto"]:
        return COMPRESSIONS
    for name in names:
        if name not in COMPRESSIONS:
            raise ConfigInvalid(f"compression {shown(name)} is unknown; choose auto, none or a list of brotli, gzip")
    return tuple(names)


def _parse_url(url: str) -> ClientSettings:
    if not url.isprintable():
        raise ConfigInvalid("the URL has a line break or another character that is not printable")
    try:
        parts = urlsplit(url, allow_fragments=False)
    except ValueError:
        # The reason quotes what stands in front of the host, which may be a password.
        raise ConfigInvalid(
            "this URL cannot be read; write vibemq://user:password@host:port, other characters as %XX"
        ) from None
    try:
        return _url_settings(parts)
    except ConfigInvalid:
        if "@" not in parts.query:
            raise
        # What was wrong may be a piece of a password, and is not quoted.
        raise ConfigInvalid(
            "the options behind the '?' of this URL cannot be read; write %3F for a '?' in a user name or password, "
            "and %40 for a '@' behind it"
        ) from None


def _url_settings(parts: SplitResult) -> ClientSettings:
    _check_path(parts.path)
    _check_brackets(parts.netloc)
    port = _port(parts)
    if not parts.hostname:
        raise ConfigInvalid("the URL names no host; write vibemq://host:2925")
    items = tuple(_query_items(parts.query))
    query_keys = {key.lower() for key, _ in items}
    settings = _settings(items, _OPTION_KEYS)
    changes: dict[str, Any] = {"host": parts.hostname}
    if port is not None:
        changes["port"] = port
    if parts.username:
        changes["username"] = _unquoted(parts.username)
        changes["password"] = _unquoted(parts.password or "")
    elif parts.password:
        if settings.token is not None:
            raise ConfigInvalid("the URL has two tokens; leave one of them out")
        # A password of nobody is a token.
        changes["token"] = _unquoted(parts.password)
    if parts.scheme == "vibemqs":
        if not settings.tls and query_keys & _TLS_KEYS:
            raise ConfigInvalid("vibemqs:// and tls=no contradict each other; leave one of them out")
        changes["tls"] = True
    return replace(settings, **changes)


def _port(parts: SplitResult) -> int | None:
    """Behind the last ':' of the place. It is not quoted: a '?' or '/' in a password puts a piece of it there."""
    try:
        return parts.port
    except ValueError:
        raise ConfigInvalid(
            "the port of this URL is no number of 1 to 65535; in a user name or password write %2F, %3A, %3F for / : ?"
        ) from None


def _check_path(path: str) -> None:
    """Behind the host stand options or nothing: what was meant as one must not be passed over."""
    if "#" in path:
        raise ConfigInvalid("the URL has a '#'; write %23 for it in a user name, password or value")
    if "@" in path:
        raise ConfigInvalid("the URL has a '/' in front of its '@'; write %2F for it in a user name or password")
    if path not in ("", "/"):
        raise ConfigInvalid(f"the URL has {path!r} behind its host; write options as vibemq://host:port?key=value&…")


def _check_brackets(place: str) -> None:
    """Behind the brackets of an IPv6 address stands its port or nothing."""
    _, bracket, behind = place.rpartition("@")[2].rpartition("]")
    if bracket and behind and not behind.startswith(":"):
        raise ConfigInvalid(f"the URL has {behind!r} behind the ']' of its host; write vibemq://[address]:port")


def _unquoted(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ConfigInvalid("the URL has percent-encoded bytes that are no UTF-8") from None


def _query_items(query: str) -> Iterable[tuple[str, str]]:
    for item in filter(None, query.split("&")):
        key, equals, value = item.partition("=")
        if not equals:
            raise ConfigInvalid(f"{_named(item, _OPTION_KEYS, 'an option')} has no '='; write key=value")
        yield _unquoted(key), _unquoted(value)


def _key_values(text: str) -> Iterable[tuple[str, str]]:
    at = 0
    while at < len(text):
        end = text.find("=", at)
        key = text[at : end if end >= 0 else len(text)].strip(" ;\t\n")
        if not key:
            if end < 0:
                return
            raise ConfigInvalid("the connection string has a '=' with no key in front of it; write key=value;key=value")
        if end < 0 or ";" in key:
            raise ConfigInvalid(_without_value(key.split(";")[0].strip(), first=at == 0))
        value, at = _value(text, end + 1)
        yield key, value


def _without_value(item: str, *, first: bool) -> str:
    """Behind another value it may be the end of a password that has a ';' in it."""
    if first and "@" not in item:
        return f"{item!r} has no '='; write host=…;port=…, or a URL such as vibemq://{item}"
    if first:
        return "the address has no '='; write host=…;port=…, or a URL such as vibemq://user:password@host:2925"
    named = _named(item, _ALL_KEYS, "text behind a ';'")
    return f"{named} has no '='; write key=value;key=value, a value with a ';' in it as \"…\""


def _value(text: str, at: int) -> tuple[str, int]:
    """The value that starts at `at`, and where the next key starts."""
    while at < len(text) and text[at] == " ":
        at += 1
    if at >= len(text) or text[at] != '"':
        end = text.find(";", at)
        end = len(text) if end < 0 else end
        return text[at:end].strip(), end + 1
    characters: list[str] = []
    at += 1
    while at < len(text):
        character = text[at]
        if character == '"':
            end = text.find(";", at)
            end = len(text) if end < 0 else end
            if text[at + 1 : end].strip():
                raise ConfigInvalid("text stands between the closing \" of a value and the next ';'")
            return "".join(characters), end + 1
        if character == "\\" and text[at + 1 : at + 2] in ('"', "\\", ";", "="):
            at += 1
            character = text[at]
        characters.append(character)
        at += 1
    raise ConfigInvalid('a quoted value has no closing "')


def _settings(
    items: Iterable[tuple[str, str]], known: dict[str, Callable[[str, str], dict[str, Any]]]
) -> ClientSettings:
    changes: dict[str, Any] = {}
    policy: dict[str, Any] = {}
    for key, value in items:
        reader = known.get(key.lower())
        if reader is None:
            raise ConfigInvalid(_unknown(key, known))
        for name, read in reader(key, value).items():
            target = policy if name in ReconnectPolicy.__slots__ else changes
            if name in target:
                raise ConfigInvalid(f"the connection string says {key!r} twice; leave one of them out")
            target[name] = read
    if policy:
        base = ReconnectPolicy()
        policy.setdefault("max_delay", max(base.max_delay, policy.get("initial_delay", 0)))
        policy.setdefault("initial_delay", min(base.initial_delay, policy["max_delay"]))
        changes["reconnect"] = replace(base, **policy)
    return ClientSettings(**changes)


def _unknown(key: str, known: Iterable[str]) -> str:
    lowered = key.lower()
    if lowered in _PLACE_KEYS:
        return f"{key!r} does not belong behind the '?'; write vibemq://username:password@host:port?…"
    near = _near(lowered, known)
    if near:
        return f"the connection string has an unknown key {key!r}; did you mean {near!r}?"
    return f"the connection string has an unknown key; known are {', '.join(sorted(known))}"


def _near(word: str, known: Iterable[str]) -> str:
    """ "" where none is, or the word is not plain."""
    if not _WORD.fullmatch(word):
        return ""
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=0.7)), "")


def _named(item: str, known: Iterable[str], otherwise: str) -> str:
    """The item itself only where a key is meant: other text may be a piece of a password."""
    return repr(item) if _near(item.lower(), known) else otherwise


def _text(name: str) -> Callable[[str, str], dict[str, Any]]:
    return lambda key, value: {name: value}


def _bool(name: str, *, negated: bool = False) -> Callable[[str, str], dict[str, Any]]:
    def read(key: str, value: str) -> dict[str, Any]:
        word = value.strip().lower()
        if word not in _TRUE and word not in _FALSE:
            raise ConfigInvalid(f"{key}={value!r} is neither true nor false; write {key}=true or {key}=false")
        return {name: (word in _TRUE) is not negated}

    return read


def _number(name: str, *, least: int, most: int | None = None) -> Callable[[str, str], dict[str, Any]]:
    def read(key: str, value: str) -> dict[str, Any]:
        if not _WHOLE.fullmatch(value):
            raise ConfigInvalid(f"{key}={value!r} is not a whole number")
        try:
            number = int(value)
        except ValueError:
            raise ConfigInvalid(f"{key} has {len(value):,} digits, which is out of range") from None
        if number < least or (most is not None and number > most):
            bound = f"{least} or more" if most is None else f"{least} to {most}"
            raise ConfigInvalid(f"{key}={number} is out of range; it must be {bound}")
        return {name: number}

    return read


def _attempts(key: str, value: str) -> dict[str, Any]:
    number = _number("max_attempts", least=-(2**31))(key, value)["max_attempts"]
    return {"max_attempts": number if number > 0 else None}


def _compression(key: str, value: str) -> dict[str, Any]:
    return {"compression": compressions(value)}


def _queues(key: str, value: str) -> dict[str, Any]:
    return {"queues": tuple(name.strip() for name in value.split(",") if name.strip())}


_OPTION_KEYS: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "tls": _bool("tls"),
    "usetls": _bool("tls"),
    "skipcertvalidation": _bool("verify_certificate", negated=True),
    "tlsca": _text("tls_ca"),
    "tlscertificate": _text("tls_certificate"),
    "tlskey": _text("tls_key"),
    "tlsservername": _text("tls_server_name"),
    "keepalive": _number("keep_alive", least=1, most=SECONDS_MAX),
    "keepaliveinterval": _number("keep_alive", least=1, most=SECONDS_MAX),
    "commandtimeout": _number("command_timeout", least=1, most=SECONDS_MAX),
    "compression": _compression,
    "compressionthreshold": _number("compression_threshold", least=0),
    "reconnectmaxattempts": _attempts,
    "reconnectinitialdelay": _number("initial_delay", least=0, most=SECONDS_MAX),
    "reconnectmaxdelay": _number("max_delay", least=0, most=SECONDS_MAX),
    "reconnectexponentialbackoff": _bool("exponential"),
    "queues": _queues,
    # Ours; the .NET client ignores them.
    "token": _text("token"),
    "maxmessagebytes": _number("max_message_bytes", least=1, most=MESSAGE_BYTES_MAX),
    "name": _text("name"),
    "publishconnection": _bool("publish_connection"),
}
_TLS_KEYS = frozenset(("tls", "usetls"))
_PLACE_KEYS: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "host": _text("host"),
    "port": _number("port", least=1, most=65535),
    "username": _text("username"),
    "password": _text("password"),
}
_ALL_KEYS = _PLACE_KEYS | _OPTION_KEYS
ADDRESS_KEYS = frozenset(_ALL_KEYS)
"""Of connection strings, in small letters."""
