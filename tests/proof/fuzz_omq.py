"""Fuzz targets: the OCaml protocol. S-expressions however they are cut, its frames, and one session by script."""

from collections.abc import Hashable, Iterable
from typing import Any

from tests.proof.fuzz_engine import Broken, Target
from tests.proof.fuzz_script import SessionScript, item, items, played
from vibemq.model.rows import Rows, pack_row
from vibemq.protocols.omq import OmqSession, OmqSettings
from vibemq.protocols.omq.commands import Ack, NotACommand, parse_command, print_command
from vibemq.protocols.omq.frames import ACCEPTED, OmqFrameReader
from vibemq.protocols.omq.sexp import Sexp, SexpError, SexpReader, print_sexp
from vibemq.protocols.session import SessionLimits
from vibemq.testing.session_conformance import NOW, context

WORDS = (
    *(b"(Connect 1 alice)", b"(Subscribe orders From_beginning)", b"(Subscribe q(From_message 42))"),
    *(b"(Unsubscribe q)", b"(Ack 1700000000)", b"(Ack(2023-11-14 22:13:20.000000Z))", b"From_current"),
    *(b"#|", b"|#", b"#;", b";", b'"', b"\\", b"\\x0a", b"\\065", b"\\\n  ", b"\r\n", b"(", b")", b"()"),
    *(b"0x7f", b"-9223372036854775808", b"1e400", b"nan", b"_", ACCEPTED, b"alice:secret", b"\xc3\xa9", b"\0"),
)


# -- S-expressions ------------------------------------------------------------------------------------------------


def sexp(data: bytes) -> Hashable:
    """The first byte says how the stream is cut; however it is, the same values come out, and survive printing."""
    if not data:
        return None
    stream = data[1:]
    whole = _values(stream, len(stream) or 1)
    if _values(stream, 1 + data[0] % 61) != whole:
        raise Broken("another cut of the stream, other values")
    values, failed = whole
    printed = b" ".join(map(print_sexp, values)) + b" "
    if _values(printed, len(printed)) != (values, False):
        raise Broken("values change when they are printed and read again")
    return failed, min(len(values), 4), *map(_command, values[:2])


def _values(stream: bytes, step: int) -> tuple[list[Sexp], bool]:
    reader = SexpReader(bytes_max=2_000, nesting_max=64)
    values: list[Sexp] = []
    try:
        for start in range(0, len(stream), step):
            reader.receive_data(stream[start : start + step])
            values += reader.values()
    except SexpError:
        return values, True
    return values, False


def _command(value: Sexp) -> Hashable:
    try:
        command = parse_command(value)
    except NotACommand as error:
        return error.unknown
    if isinstance(command, Ack) and (command.time is None or command.time != command.time):
        # A time that names no moment has no form of its own, and NaN equals nothing.
        return "no time"
    again = _values(print_command(command) + b" ", 99)[0]
    if list(map(parse_command, again)) != [command]:
        raise Broken(f"{command} changes when it is printed and read again")
    return type(command).__name__


def _sexp_seeds() -> Iterable[bytes]:
    yield b"\x05" + b" ".join(WORDS[:6]) + b" "
    yield b'\x02(a "b c" (d) #| x "|#" |# #;(gone) ; line\n "\\x41\\066\\n\\\n   z")'
    yield b"\x11" + b"(" * 70 + b")" * 70
    yield b'\x00(Subscribe "topic with blanks" (From_message 0x2A))(Ack (2023-11-14 22:13:20.5+01:00))(Ack 1.5e9)'
    yield b"\x07" + b"x" * 2_100


# -- frames from the broker ---------------------------------------------------------------------------------------


def frames(data: bytes) -> Hashable:
    """As a client of this protocol reads them, however they are cut."""
    if not data:
        return None
    whole, pieces = _frames(data[1:], len(data)), _frames(data[1:], 1 + data[0] % 23)
    if whole != pieces:
        raise Broken("another cut of the stream, other frames")
    return whole[1], *(type(frame).__name__ for frame in whole[0][:3])


def _frames(stream: bytes, step: int) -> tuple[list[Any], bool]:
    reader = OmqFrameReader()
    got: list[Any] = []
    try:
        for start in range(0, len(stream), step):
            reader.receive_data(stream[start : start + step])
            got += reader.frames()
    except ValueError:
        return got, True
    return got, False


# -- a session ----------------------------------------------------------------------------------------------------

_HELD = Rows.of([pack_row("h1", b"1"), pack_row("h2", b""), pack_row("h3", b"\xff\0")])
_LIMITS = SessionLimits(handshake_timeout_ms=5_000)


class Script(SessionScript):
    """As `fuzz_session.Script`, in this protocol."""

    held = _HELD

    def __init__(self, flags: int) -> None:
        authentication = bool(flags & 1)
        session = OmqSession(
            context(authentication=authentication, limits=_LIMITS),
            OmqSettings(command_bytes_max=512, subscriptions_max=4, ping_interval_ms=1_000, ack_timeout_ms=9_000),
        )
        super().__init__(session, NOW, authentication=authentication)
        self.reader = OmqFrameReader()
        self.told = bytearray()
        if flags & 2:
            self.hear(ACCEPTED + b"(Connect 1 alice:secret)")

    def read(self) -> None:
        """What the peer gets is its handshake's answer and frames."""
        told = self.session.data_to_send()
        self.reader.receive_data(told[max(len(ACCEPTED) - len(self.told), 0) :])
        self.told += told
        self.kinds.update(type(frame).__name__ for frame in self.reader.frames())


def session(data: bytes) -> Hashable:
    return played(Script, data, 3)


_ANSWER, _REFUSE, _DELIVER, _WAIT = item(0x80 + 11), item(4), item(5, b"1"), item(6, b"x" * 100)


def _session_seeds() -> Iterable[bytes]:
    subscribe = item(0, b"(Subscribe orders From_beginning)(Subscribe q(From_message 42))")
    acked = item(0, b"(Ack %d)" % (NOW // 1000 + 5))
    yield b"\x02" + subscribe + _ANSWER + _DELIVER + _WAIT + acked + item(0, b"(Unsubscribe orders)") + _ANSWER
    yield b"\x03" + subscribe + _REFUSE + _WAIT * 3
    yield b"\x01" + item(0, ACCEPTED) + item(0, b"(Connect 1 alice:wrong)") + item(0, b"(Connect 1 alice:secret)")
    yield b"\x00" + item(0, ACCEPTED[:3]) + item(0, ACCEPTED[3:] + b"(Conn") + item(0, b"ect 1 bob)") + subscribe
    yield b"\x02" + subscribe + _ANSWER + _DELIVER + item(8) + _WAIT + acked
    yield b"\x02" + subscribe + _ANSWER + _DELIVER + item(7) + item(0, b"(Subscribe orders From_current)") + _ANSWER


def _frame_seeds() -> Iterable[bytes]:
    for seed in _session_seeds():
        script = Script(seed[0])
        for verb, piece in items(seed[1:]):
            script.hear(piece) if verb % 9 < 4 else script.answer(well=True)
            script.deliver(0)
            script.wait(1_000)
        yield b"\x03" + script.told[len(ACCEPTED) :]


TARGETS = [
    Target("omq-sexp", "S-expressions, commands of omq", sexp, (), _sexp_seeds, WORDS, 400),
    Target("omq-frames", "frames of omq", frames, (), _frame_seeds, WORDS, 400),
    Target("omq-session", "a session of omq by script", session, (), _session_seeds, WORDS, 600),
]
