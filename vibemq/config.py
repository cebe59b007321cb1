"""Settings: read from four places, and handed on as plain values.

Precedence, highest first: command line · environment (`VIBEMQ_*`, nested with `__`) · secrets (`VIBEMQ_*_FILE`, then
the folder /run/secrets) · TOML file (`--config`, `VIBEMQ_CONFIG`, or /etc/vibemq/vibemq.toml) · defaults.
An unknown key is an error in every source, so that a misspelt setting is not ignored.

Every setting says what makes a change of it count, as an annotation (`WhenChanged`); what a group says holds for all
settings in it that say nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from vibemq.auth.passwords import PASSWORD_BYTES_MAX, check_hash, hash_password
from vibemq.auth.rules import make_rule
from vibemq.auth.tokens import looks_like_token
from vibemq.auth.users import ANONYMOUS, Account
from vibemq.errors import ConfigInvalid, InvalidOptions, InvalidQueueName
from vibemq.model.access import Rule
from vibemq.model.options import QueueOptions, check_queue_name, options_from_dict
from vibemq.model.quantities import DURATION_MAX_MS, NUMBER_MAX

PORT_MAX = 65_535
Port = Annotated[int, Field(ge=0, le=PORT_MAX)]
"""0 = any free port; the chosen one is reported."""
Positive = Annotated[int, Field(gt=0, le=NUMBER_MAX)]
NotNegative = Annotated[int, Field(ge=0, le=NUMBER_MAX)]
PositiveMs = Annotated[int, Field(gt=0, le=DURATION_MAX_MS)]
NotNegativeMs = Annotated[int, Field(ge=0, le=DURATION_MAX_MS)]


def check_host(value: str) -> str:
    """Raises ValueError: what is wrong with it."""
    if not value:
        raise ValueError("it is empty; name an address, or leave it out for its default")
    try:
        value.encode("idna")
    except UnicodeError:
        fits = False
    else:
        fits = value.isprintable()
    if not fits:
        raise ValueError("it is neither an address nor a name that a machine can have")
    return value


Host = Annotated[str, AfterValidator(check_host)]
"""An empty one, mostly a variable that is not set, would be every address of the machine."""
FrameBytes = Annotated[int, Field(ge=1_048_576, le=NUMBER_MAX)]
MESSAGE_BYTES_LIMIT = 256 << 20


def _of_a_size_that_travels(value: int) -> int:
    if not 0 < value <= MESSAGE_BYTES_LIMIT:
        raise ValueError(
            f"{value:,} bytes cannot be the largest message; the limit lies between 1 and {MESSAGE_BYTES_LIMIT:,} bytes"
            " (256 MiB); keep larger objects in a file store and publish their names"
        )
    return value


ROW_HEAD_BYTES_MAX = 61_440
"""Id and headers beside the largest body: what a frame of the native protocol has room for."""
MessageBytes = Annotated[int, AfterValidator(_of_a_size_that_travels)]


def check_folder(value: Any) -> Any:
    """The path of an empty text would be the current directory. Raises ValueError: what is wrong with it."""
    if value == "":
        raise ValueError("it is empty; name a directory, . for the current one")
    return value


Folder = Annotated[Path, BeforeValidator(check_folder)]


class WhenChanged(StrEnum):
    """What makes a change of a setting count."""

    RELOAD = "reload"
    """The next reload, at once."""
    NEW_CONNECTIONS = "new connections"
    """The next reload, for connections that are made after it."""
    RESTART = "restart"


RELOAD, NEW_CONNECTIONS, RESTART = WhenChanged


class _Part(BaseModel):
    # The validator of a part is made when the part is used by itself: few of them are, and the whole has its own.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @classmethod
    def of_defaults(cls) -> Self:
        """Without a validator: the first one that is made loads half of pydantic."""
        return cls.model_construct()


class StorageChoice(_Part):
    provider: str = "lmdb"
    settings: dict[str, Any] = Field(default_factory=dict)
    """The provider's own options; its folder checks them."""


class Tls(_Part):
    certificate: Annotated[Path, NEW_CONNECTIONS]
    """PEM file with the certificate and its chain."""
    key: Annotated[Path | None, NEW_CONNECTIONS] = None
    """PEM file with the private key; None = it stands in the certificate's file."""
    client_ca: Annotated[Path | None, NEW_CONNECTIONS] = None
    """PEM file; when given, every client must show a certificate signed by it."""
    identity: Annotated[Literal["cn", "dns", "uri", "email"] | None, NEW_CONNECTIONS] = None
    """What of a client's certificate names the user that it logs in: the common name, or an alternative name."""
    identity_pattern: Annotated[str, NEW_CONNECTIONS] = "{}"
    """The form of that name; {} stands for the user."""

    @model_validator(mode="after")
    def _identity_can_be_trusted(self) -> "Tls":
        if self.identity is not None and self.client_ca is None:
            raise ValueError("identity needs client_ca, the authority whose certificates are believed; give both")
        if self.identity_pattern.count("{}") != 1:
            raise ValueError("identity_pattern must have {} once, where the name of the user stands")
        return self


class Listener(_Part):
    protocol: Annotated[str, RESTART] = "native"
    host: Annotated[Host, RESTART] = "127.0.0.1"
    port: Annotated[Port | None, RESTART] = None
    """None = the protocol's own port."""
    tls: Annotated[Tls | None, RESTART] = None
    settings: Annotated[dict[str, Any], RESTART] = Field(default_factory=dict)
    """The protocol's own options; its folder checks them."""


class Limits(_Part):
    """0 switches a limit off."""

    max_connections: Annotated[NotNegative, NEW_CONNECTIONS] = 10_000
    max_unauthenticated: Annotated[NotNegative, NEW_CONNECTIONS] = 1_000
    """Connections that have not finished their handshake."""
    connections_per_ip_per_minute: Annotated[NotNegative, NEW_CONNECTIONS] = 600
    """New connections of one IPv4 address or IPv6 /64 network; loopback is exempt."""
    messages_per_client_per_second: Annotated[NotNegative, NEW_CONNECTIONS] = 0
    """Published messages and other requests of one connection; settlements are never limited."""
    body_bytes_max: Annotated[FrameBytes, NEW_CONNECTIONS] = 1_048_576
    """Of a frame, unless it carries one large message for a peer that has agreed on more. Clients send frames up to the
    default without asking, so it cannot be less."""
    message_bytes_max: Annotated[MessageBytes, NEW_CONNECTIONS] = 16_777_216
    """Largest body of a message, for peers that agree on it in Connect."""

    @property
    def row_bytes_max(self) -> int:
        """Of any message that comes in, with its id and headers."""
        return max(self.body_bytes_max, self.message_bytes_max + ROW_HEAD_BYTES_MAX)

    message_timeout_ms: Annotated[PositiveMs, NEW_CONNECTIONS] = 30_000
    """A peer that sends less than 64 KiB of a message above 1 MiB for so long is dropped."""
    message_memory_bytes: Annotated[Positive, RESTART] = 67_108_864
    """Memory of the broker for messages above 1 MiB: half of it for those that come, half for those that go."""
    handshake_bytes_max: Annotated[Positive, NEW_CONNECTIONS] = 65_536
    handshake_timeout_ms: Annotated[PositiveMs, RESTART] = 5_000
    idle_timeout_ms: Annotated[PositiveMs, NEW_CONNECTIONS] = 120_000
    write_timeout_ms: Annotated[PositiveMs, RELOAD] = 30_000
    """A peer that takes nothing for this long of what waits for it is dropped."""
    write_high_water_bytes: Annotated[Positive, NEW_CONNECTIONS] = 1_048_576
    """Bytes buffered for one socket before deliveries to it pause."""
    capacity_messages_default: Annotated[Positive, RELOAD] = 1_000
    """Unsettled messages of a consumer that names no prefetch."""
    block_timeout_ms: Annotated[PositiveMs, RELOAD] = 8_000
    """How long a BlockPublisher queue lets a publisher wait; below the .NET client's 10 s."""
    memory_limit_bytes: Annotated[NotNegative, RELOAD] = 0
    """Resident memory that the watermarks of 80, 90 and 95 % refer to."""
    disk_reserve_bytes: Annotated[NotNegative, RELOAD] = 1_073_741_824
    """The disk's watermarks (80, 90 and 95 % full) count only while less than this is free."""


class Permission(_Part):
    """Exactly one of `queues`, `groups` and `transactions`; `*` in it stands for any run of characters."""

    queues: str | None = None
    """Queue names."""
    groups: str | None = None
    """Durable groups, as `<queue>/<group>`."""
    transactions: str | None = None
    """Names of applications that commit transactions."""
    actions: tuple[str, ...]
    """Of `vibemq.auth.rules.ACTIONS`, or `*` for all of them."""

    @model_validator(mode="after")
    def _means_something(self) -> "Permission":
        self.rule()
        return self

    def rule(self) -> Rule:
        return make_rule(self.model_dump())


class User(_Part):
    password_hash: SecretStr
    """Made by `vibemq.auth.passwords.hash_password`."""
    superuser: bool = False
    permissions: tuple[Permission, ...] = ()

    @field_validator("password_hash")
    @classmethod
    def _can_be_checked(cls, value: SecretStr) -> SecretStr:
        try:
            check_hash(value.get_secret_value())
        except ConfigInvalid as error:
            raise ValueError(f"this hash cannot be used: {error}") from None
        return value


NAME_MAX = 64
"""Characters of a user's name."""


SECRET_BYTES_MAX = {"token": 2_048, "superuser_password": PASSWORD_BYTES_MAX}
"""Of secrets in clear. No frame before the login has room for much more."""


class Auth(_Part):
    token: SecretStr | None = None
    """One shared secret that makes its bearer a superuser."""
    users: dict[str, User] = Field(default_factory=dict)
    superuser: str | None = None
    """Name of a superuser whose password is given in clear, usually from a secrets file."""
    superuser_password: SecretStr | None = None

    @property
    def enabled(self) -> bool:
        return self.token is not None or bool(self.users) or self.superuser is not None

    @model_validator(mode="after")
    def _names_can_be_shown(self) -> "Auth":
        for name in [*self.users, *([] if self.superuser is None else [self.superuser])]:
            if not 0 < len(name) <= NAME_MAX or not name.isprintable():
                raise ValueError(
                    f"the user name {name[:NAME_MAX]!a} cannot be used; names are 1 to {NAME_MAX} printable characters"
                )
            if name == ANONYMOUS.name:
                raise ValueError(f"no user may have the name {name!r}, which the broker itself uses; choose another")
        return self

    @model_validator(mode="after")
    def _superuser_needs_a_password(self) -> "Auth":
        if (self.superuser is None) != (self.superuser_password is None):
            raise ValueError(
                "auth.superuser and auth.superuser_password belong together; give both or neither: `vibemq serve` has "
                "the password from VIBEMQ_AUTH__SUPERUSER_PASSWORD, or its file from "
                "VIBEMQ_AUTH__SUPERUSER_PASSWORD_FILE"
            )
        for name, secret in (("token", self.token), ("superuser_password", self.superuser_password)):
            if secret is not None and not secret.get_secret_value():
                raise ValueError(f"auth.{name} is empty; give it a value or leave it out")
            most = SECRET_BYTES_MAX[name]
            if secret is not None and len(secret.get_secret_value().encode(errors="surrogatepass")) > most:
                raise ValueError(f"auth.{name} has more than {most:,} bytes, so nobody could log in with it; change it")
            if secret is not None and looks_like_token(secret.get_secret_value()):
                raise ValueError(f"auth.{name} has the form of an access token and would be taken for one; change it")
        return self

    @property
    def shared_token(self) -> str | None:
        return self.token.get_secret_value() if self.token is not None else None

    def accounts(self) -> list[Account]:
        """Every user, the superuser whose password is given in clear last: it stands above one of the same name."""
        accounts = [
            Account(
                name,
                user.password_hash.get_secret_value(),
                user.superuser,
                tuple(permission.rule() for permission in user.permissions),
            )
            for name, user in self.users.items()
        ]
        if self.superuser is not None and self.superuser_password is not None:
            password = self.superuser_password.get_secret_value()
            hashed = hash_password(password)
            accounts.append(Account(self.superuser, hashed, superuser=True, password=password))
        return accounts


class Http(_Part):
    enabled: Annotated[bool, RESTART] = True
    host: Annotated[Host, RESTART] = "127.0.0.1"
    port: Annotated[Port, RESTART] = 2926
    token: Annotated[SecretStr | None, RELOAD] = None
    """Asked for as `Authorization: Bearer …` by health and metrics, not by the probes; by the API while `auth` is
    empty."""
    allowed_hosts: Annotated[tuple[str, ...] | None, RELOAD] = None
    """Names that requests may have in their header Host; `*.example.org` is every name below, `*` any. Addresses and
    localhost may always be there. None: any name if there is a token or the listener is on the network, else no other.
    """
    metrics_queues_max: Annotated[NotNegative, RELOAD] = 200
    """Queues that have Prometheus series of their own; the others are summed as `_other`. 0 = one sum of all."""
    api: Annotated[bool, RESTART] = True
    """Serve the API at /api/v1."""
    console: Annotated[bool, RESTART] = True
    """Serve the console at /console/, which needs the API."""
    tls: Annotated[Tls | None, RESTART] = None
    allow_unauthenticated: Annotated[bool, RELOAD] = False
    """Serve the API to the network although everybody may do everything."""
    trusted_proxies: Annotated[tuple[str, ...], RELOAD] = ()
    """Addresses and networks whose X-Forwarded-For and X-Forwarded-Proto count."""
    session_idle_ms: Annotated[PositiveMs, RELOAD] = 1_800_000
    """A browser's session ends that is not used for so long."""
    session_max_ms: Annotated[PositiveMs, RELOAD] = 43_200_000
    """A browser's session ends so long after its login."""
    requests_per_second: Annotated[NotNegative, RELOAD] = 50
    """Requests to the API from one user at one address; four seconds' worth may come at once. 0 = any number."""
    show_bodies: Annotated[Literal["all", "superuser", "none"], RELOAD] = "all"
    """Who is shown bodies, header values and error texts of messages over HTTP. Consumers get theirs."""
    streams_max: Annotated[NotNegative, RELOAD] = 32
    """Streams of the API that are open at a time."""

    @field_validator("tls")
    @classmethod
    def _certificates_log_nobody_in(cls, value: Tls | None) -> Tls | None:
        if value is not None and value.identity is not None:
            raise ValueError("identity is not for the HTTP port, where a certificate logs nobody in; leave it out")
        return value

    @field_validator("trusted_proxies")
    @classmethod
    def _proxies_are_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            try:
                ip_network(text, strict=False)
            except ValueError as error:
                raise ValueError(f"{text[:64]!r} is neither an address nor a network such as 10.0.0.0/8") from error
        return value


class Log(_Part):
    level: Annotated[Literal["debug", "info", "warning", "error"], RELOAD] = "info"
    format: Annotated[Literal["text", "json"], RELOAD] = "text"


def _of_no_connection(options: QueueOptions) -> QueueOptions:
    """The options of a queue that no connection creates. Raises InvalidOptions."""
    if options.exclusive:
        raise InvalidOptions(
            "exclusive cannot be set here: an exclusive queue belongs to the connection that creates it; leave it out, "
            "or use auto_delete or expires_ms"
        )
    return options


class Settings(BaseModel):
    """Everything a broker can be told. `vibemq.settings.load` reads it; `Settings(...)` itself looks nowhere."""

    # The surroundings are read by `vibemq.settings.load`: it also knows where each value came from. So this is no
    # `BaseSettings`, whose package takes longer to import than an embedded broker to start.
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, defer_build=True)

    data_dir: Annotated[Folder, RESTART] = Path("vibemq-data")
    storage: Annotated[StorageChoice, RESTART] = StorageChoice.of_defaults()
    listeners: Annotated[tuple[Listener, ...], RESTART] = (Listener.of_defaults(),)
    protocols: Annotated[dict[str, dict[str, Any]], RESTART] = Field(default_factory=dict)
    """Options of all listeners of a protocol, by its name; what a listener says itself wins."""
    weak_flush_ms: Annotated[PositiveMs, RELOAD] = 2_000
    """Longest time that weak data waits for its flush."""
    auto_create: Annotated[bool, RELOAD] = True
    """Publishing to or consuming from a missing queue creates it."""
    queue_defaults: Annotated[dict[str, Any], RESTART] = Field(default_factory=dict)
    """Options of queues that name none; keys as in QueueOptions."""
    queues: Annotated[dict[str, dict[str, Any]], RESTART] = Field(default_factory=dict)
    """Queues to create at the start if they are missing: name -> options, over `queue_defaults`."""
    limits: Limits = Limits.of_defaults()
    auth: Annotated[Auth, RELOAD] = Auth.of_defaults()
    http: Http = Http.of_defaults()
    audit: Annotated[Literal["file", "log", "off"], RESTART] = "file"
    """Where it is written who changed what and who logged in: in `audit/` of the data directory and in the log, in the
    log alone, or nowhere. Providers that store elsewhere have the log."""
    audit_strict: Annotated[bool, RESTART] = False
    """Refuse changes while the audit file cannot be written, but for those that free space."""
    audit_reads: Annotated[bool, RESTART] = False
    """Write down, too, who has read bodies of messages and of dead letters, or taken copies of them."""
    history_bytes: Annotated[NotNegative, RESTART] = 16_777_216
    """Memory, and file in the data directory, for the figures of the last 48 hours. 0 = none are kept."""
    exports_bytes: Annotated[NotNegative, RESTART] = 8_589_934_592
    """Files of exported dead letters in the data directory, together. 0 = none are made."""
    drain_timeout_ms: Annotated[NotNegativeMs, RELOAD] = 30_000
    log: Log = Log.of_defaults()

    @field_validator("queue_defaults")
    @classmethod
    def _known_queue_options(cls, value: dict[str, Any]) -> dict[str, Any]:
        try:
            _of_no_connection(options_from_dict(value)).check_together()
        except InvalidOptions as error:
            raise ValueError(str(error)) from None
        return value

    @field_validator("queues")
    @classmethod
    def _queues_can_be_created(
        cls, value: dict[str, dict[str, Any]], others: ValidationInfo
    ) -> dict[str, dict[str, Any]]:
        base = options_from_dict(others.data.get("queue_defaults", {}))
        for name, options in value.items():
            try:
                _of_no_connection(options_from_dict(options, base)).check_together()
                check_queue_name(name)
            except (InvalidOptions, InvalidQueueName) as error:
                raise ValueError(f"{name}: {error}") from None
        return value

    def protocol_options(self, listener: Listener) -> dict[str, Any]:
        """The options of a listener's protocol, for its folder to check."""
        return {**self.protocols.get(listener.protocol, {}), **listener.settings}


def number_beyond(value: Any, place: tuple[str | int, ...] = ()) -> tuple[tuple[str | int, ...], int] | None:
    """Where in the settings of a plug-in, whose types may have no bounds, a number stands that no clock, system call or
    answer has room for, and how large it may be."""
    parts: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, BaseModel):
        parts = ((name, getattr(value, name)) for name in type(value).model_fields)
    elif isinstance(value, Mapping):
        parts = value.items()
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        parts = enumerate(value)
    elif isinstance(value, int):
        most = DURATION_MAX_MS if place and str(place[-1]).endswith("_ms") else NUMBER_MAX
        return (place, most) if value > most else None
    found = (number_beyond(part, (*place, name)) for name, part in parts)
    return next(filter(None, found), None)
