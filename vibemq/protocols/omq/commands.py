"""The commands of a client: values of the OCaml type `Client.t`, from S-expressions and back.

Connect of Version.t * Id.t        (Connect 1 alice)
Subscribe of string * Replay.t     (Subscribe orders From_beginning) · (Subscribe orders(From_message 42))
Unsubscribe of string              (Unsubscribe orders)
Ack of Time.t                      (Ack 1700000000) · (Ack(2023-11-14 22:13:20.000000Z))
"""

from dataclasses import dataclass, field

from vibemq.protocols.omq.scalars import CoreTime, Time, int64_of_text, text_of_float, time_of_sexp
from vibemq.protocols.omq.sexp import Sexp, print_sexp


class NotACommand(ValueError):
    """A well-formed S-expression that is no value of `Client.t`; `unknown` when its constructor is not."""

    def __init__(self, detail: str, *, unknown: bool = False) -> None:
        super().__init__(detail)
        self.unknown = unknown


@dataclass(frozen=True, slots=True)
class Connect:
    version: int
    id: bytes = field(repr=False)
    """May hold a secret, as NAME:SECRET."""


@dataclass(frozen=True, slots=True)
class FromBeginning:
    pass


@dataclass(frozen=True, slots=True)
class FromMessage:
    id: int
    """The first message to get."""


@dataclass(frozen=True, slots=True)
class FromCurrent:
    pass


Replay = FromBeginning | FromMessage | FromCurrent


@dataclass(frozen=True, slots=True)
class OmqSubscribe:
    topic: bytes
    replay: Replay


@dataclass(frozen=True, slots=True)
class OmqUnsubscribe:
    topic: bytes


@dataclass(frozen=True, slots=True)
class Ack:
    time: Time | None
    """None: a time without a zone, which only shows that the client lives."""


ClientCommand = Connect | OmqSubscribe | OmqUnsubscribe | Ack

_ARGUMENTS = {b"Connect": 2, b"Subscribe": 2, b"Unsubscribe": 1, b"Ack": 1}


def parse_command(value: Sexp) -> ClientCommand:
    """Raises NotACommand."""
    tag, arguments = _constructor(value)
    if tag not in _ARGUMENTS:
        raise NotACommand(_shown(tag), unknown=True)
    if len(arguments) != _ARGUMENTS[tag]:
        raise NotACommand(f"{tag.decode()} takes {_ARGUMENTS[tag]} arguments, not {len(arguments)}")
    try:
        match tag:
            case b"Connect":
                return Connect(_int64(arguments[0]), _string(arguments[1]))
            case b"Subscribe":
                return OmqSubscribe(_string(arguments[0]), _replay(arguments[1]))
            case b"Unsubscribe":
                return OmqUnsubscribe(_string(arguments[0]))
            case _:
                return Ack(time_of_sexp(arguments[0]))
    except NotACommand:
        raise
    except ValueError as error:
        raise NotACommand(f"{tag.decode()}: {error}") from None


def is_connect(value: Sexp) -> bool:
    """Whether it is meant for a Connect, whatever its arguments."""
    return isinstance(value, tuple) and value[:1] in ((b"Connect",), (b"connect",))


def print_command(command: ClientCommand) -> bytes:
    """As `Sexp.to_string` writes it."""
    match command:
        case Connect(version, name):
            return print_sexp((b"Connect", b"%d" % version, name))
        case OmqSubscribe(topic, FromMessage(first)):
            return print_sexp((b"Subscribe", topic, (b"From_message", b"%d" % first)))
        case OmqSubscribe(topic, FromBeginning()):
            return print_sexp((b"Subscribe", topic, b"From_beginning"))
        case OmqSubscribe(topic):
            return print_sexp((b"Subscribe", topic, b"From_current"))
        case OmqUnsubscribe(topic):
            return print_sexp((b"Unsubscribe", topic))
        case Ack(time):
            return print_sexp((b"Ack", _time(time)))


def _time(time: Time | None) -> Sexp:
    if isinstance(time, CoreTime):
        return time.atoms()
    return text_of_float(float("nan") if time is None else time).encode()


def _constructor(value: Sexp) -> tuple[bytes, tuple[Sexp, ...]]:
    """Tag, its first letter a capital, and arguments. OCaml reads a tag with either."""
    if isinstance(value, bytes):
        raise NotACommand(f"{_shown(value)} stands alone; a command is in parentheses")
    if not value:
        raise NotACommand("() is empty")
    tag = value[0]
    if not isinstance(tag, bytes):
        raise NotACommand("a list stands where the command's name should")
    return tag[:1].upper() + tag[1:], value[1:]


def _replay(value: Sexp) -> Replay:
    if isinstance(value, bytes):
        match value[:1].upper() + value[1:]:
            case b"From_beginning":
                return FromBeginning()
            case b"From_current":
                return FromCurrent()
        raise NotACommand(f"Subscribe: {_shown(value)} is not a Replay.t")
    tag, arguments = _constructor(value)
    if tag != b"From_message" or len(arguments) != 1:
        raise NotACommand("Subscribe: write From_beginning, From_current or (From_message N)")
    return FromMessage(_int64(arguments[0]))


def _string(value: Sexp) -> bytes:
    if isinstance(value, bytes):
        return value
    raise ValueError("an atom is needed, not a list")


def _int64(value: Sexp) -> int:
    return int64_of_text(_string(value).decode("latin-1"))


def _shown(atom: bytes) -> str:
    """For an error's text."""
    return repr(atom[:64].decode("utf-8", errors="replace"))
