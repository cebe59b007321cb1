"""S-expressions, numbers, times, commands and frames of the OCaml message queue: what holds for all of them."""

import math
import struct

from hypothesis import given
from hypothesis import strategies as st

from vibemq.model.rows import Rows, pack_row
from vibemq.protocols.omq.commands import (
    Ack,
    ClientCommand,
    Connect,
    FromBeginning,
    FromCurrent,
    FromMessage,
    NotACommand,
    OmqSubscribe,
    OmqUnsubscribe,
    parse_command,
    print_command,
)
from vibemq.protocols.omq.frames import (
    Frame,
    MessageFrame,
    OmqFrameReader,
    Ping,
    Topic,
    error_frame,
    message_frames,
    parse_topic,
    ping_frame,
    print_topic,
    subscribed_frame,
)
from vibemq.protocols.omq.scalars import (
    INT64_MAX,
    INT64_MIN,
    CoreTime,
    float_of_text,
    int64_of_text,
    second_of,
    text_of_float,
    time_of_sexp,
)
from vibemq.protocols.omq.sexp import Sexp, SexpError, SexpReader, print_sexp

ODD = st.text("#|;()\\\"' \n\r\tnx09a\x0b\x00é", max_size=12).map(str.encode)
ATOMS = st.one_of(st.binary(max_size=12), ODD)
SEXPS: st.SearchStrategy[Sexp] = st.recursive(
    ATOMS, lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=12
)
LISTS = st.lists(SEXPS, max_size=4).map(tuple)
SIGNS = (b"(", b")", b'"', b"\\", b";", b"#|", b"|#", b"#;", b"#", b"|")
WORDS = (b" ", b"\n", b"\r\n", b"a", b"x4", b"065", b"\xff")
PHRASES = (b"\\\n  ", b"(a b)", b"\\256", b'"q\\"s"', b"(Ack 1)")
SOUP = st.lists(st.sampled_from(SIGNS + WORDS + PHRASES), max_size=30).map(b"".join)

INT64 = st.integers(INT64_MIN, INT64_MAX)
TIMES = st.one_of(
    st.floats(allow_nan=False),
    st.builds(
        CoreTime,
        st.integers(0, 4_000_000_000_000_000),
        st.integers(-14 * 60, 14 * 60).map(lambda minutes: minutes * 60),
    ),
)
COMMANDS: st.SearchStrategy[ClientCommand] = st.one_of(
    st.builds(Connect, INT64, ATOMS),
    st.builds(
        OmqSubscribe, ATOMS, st.one_of(st.just(FromBeginning()), st.just(FromCurrent()), st.builds(FromMessage, INT64))
    ),
    st.builds(OmqUnsubscribe, ATOMS),
    st.builds(Ack, TIMES),
)


def cut(data: st.DataObject, stream: bytes) -> list[bytes]:
    pieces = []
    while stream:
        at = data.draw(st.integers(1, len(stream)))
        pieces.append(stream[:at])
        stream = stream[at:]
    return pieces


def read(pieces: list[bytes], **limits: int) -> tuple[list[Sexp], str]:
    """The values, and what kind of error ended them."""
    reader = SexpReader(**limits)
    found: list[Sexp] = []
    try:
        for piece in pieces:
            reader.receive_data(piece)
            found.extend(reader.values())
    except SexpError as error:
        return found, str(error)
    return found, "unfinished" if reader.unfinished else ""


@given(SEXPS)
def test_what_is_printed_reads_back(value: Sexp) -> None:
    assert read([print_sexp(value), b" "]) == ([value], "")


@given(st.lists(LISTS, max_size=3), st.sampled_from([b"", b"\n", b" ; comment\n", b"#| c |#", b"#;(x)"]), st.data())
def test_any_cut_gives_the_same_values(values: list[Sexp], between: bytes, data: st.DataObject) -> None:
    stream = b"".join(print_sexp(value) + between for value in values)
    assert read(cut(data, stream)) == (values, "")


@given(SOUP, st.data())
def test_any_cut_of_soup_gives_the_same_values_and_the_same_end(soup: bytes, data: st.DataObject) -> None:
    whole = read([soup], bytes_max=40, nesting_max=3)
    assert read(cut(data, soup), bytes_max=40, nesting_max=3) == whole
    assert read([soup[at : at + 1] for at in range(len(soup))], bytes_max=40, nesting_max=3) == whole


@given(st.one_of(st.binary(max_size=300), SOUP))
def test_garbage_raises_the_one_error_and_is_not_hoarded(garbage: bytes) -> None:
    reader = SexpReader(bytes_max=64)
    try:
        for at in range(0, len(garbage), 7):
            reader.receive_data(garbage[at : at + 7])
            for value in reader.values():
                assert len(print_sexp(value)) <= 4 * 64
            assert len(reader._data) - reader._at <= 4
            assert len(reader._text) <= 64
    except SexpError:
        pass


@given(st.one_of(SEXPS, LISTS))
def test_any_value_is_a_command_or_raises_the_one_error(value: Sexp) -> None:
    for tag in (b"Connect", b"Subscribe", b"Unsubscribe", b"Ack"):
        for candidate in (value, (tag, value), (tag, value, value), (tag, b"x", value)):
            try:
                parse_command(candidate)
            except NotACommand:
                pass


@given(COMMANDS)
def test_commands_print_and_read_back(command: ClientCommand) -> None:
    [value], end = read([print_command(command)])
    assert end == ""
    assert parse_command(value) == command


@given(INT64, st.sampled_from(["{}", "{:_}"]))
def test_integers_read_back(number: int, form: str) -> None:
    assert int64_of_text(form.format(number)) == number


@given(st.integers(0, (1 << 64) - 1), st.sampled_from(["0x{:x}", "0X{:X}", "0o{:o}", "0b{:b}", "0u{}"]))
def test_prefixed_integers_are_patterns_of_64_bits(number: int, form: str) -> None:
    [signed] = struct.unpack("!q", struct.pack("!Q", number))
    assert int64_of_text(form.format(number)) == signed


@given(st.one_of(st.text("0123456789+-_xobuABCDEF. ", max_size=30), st.integers().map(str)))
def test_no_text_is_an_integer_beyond_64_bits(text: str) -> None:
    try:
        assert INT64_MIN <= int64_of_text(text) <= INT64_MAX
    except ValueError:
        pass


@given(st.floats())
def test_floats_read_back(number: float) -> None:
    again = float_of_text(text_of_float(number))
    assert again == number or (math.isnan(again) and math.isnan(number))
    if math.isfinite(number):
        assert float_of_text(number.hex()) == number


@given(st.text("0123456789-: .TZUC+naif_x", max_size=40).map(str.encode), st.binary(max_size=5))
def test_any_atom_is_a_time_or_no_time(text: bytes, tail: bytes) -> None:
    for value in (text, text + tail, (text, tail), (text, text, tail)):
        try:
            second_of(time_of_sexp(value))
        except ValueError:
            pass


@given(st.integers(0, (1 << 31) - 1), ATOMS)
def test_topics_print_and_read_back(number: int, name: bytes) -> None:
    topic = Topic(number, name)
    [value], _ = read([print_topic(topic)])
    assert parse_topic(value) == topic


@given(
    st.lists(st.tuples(st.text(min_size=1, max_size=9), st.binary(max_size=40), st.booleans()), max_size=8),
    st.integers(1, (1 << 62) - 10),
    st.data(),
)
def test_frames_carry_the_payloads_however_they_are_cut(
    messages: list[tuple[str, bytes, bool]], first_id: int, data: st.DataObject
) -> None:
    rows = [pack_row(name, payload, [("k", "v" * 9)] if headers else []) for name, payload, headers in messages]
    sent = error_frame("é") + ping_frame(2**32 + 7) + message_frames(Rows.of(rows), first_id, 9)
    sent += subscribed_frame(Topic(9, b"a b"))
    reader = OmqFrameReader()
    got: list[Frame] = []
    for piece in cut(data, sent):
        reader.receive_data(piece)
        got += reader.frames()
    assert reader.buffered == 0
    assert got[1] == Ping(7)
    assert got[2:-1] == [MessageFrame(first_id + n, 9, payload) for n, (_, payload, _) in enumerate(messages)]


@given(st.binary(max_size=60))
def test_garbage_for_a_client_raises_value_error_only(garbage: bytes) -> None:
    reader = OmqFrameReader()
    reader.receive_data(garbage)
    try:
        list(reader.frames())
    except ValueError:
        pass
