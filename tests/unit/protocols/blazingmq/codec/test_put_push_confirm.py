"""PUT, ACK, PUSH, CONFIRM and the options: round trips, newer headers, lengths that lie."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.errors import LocalProtocolError, RemoteProtocolError
from vibemq.protocols.blazingmq.codec.acks import (
    AckMessage,
    ConfirmMessage,
    build_acks,
    build_confirms,
    build_positive_acks,
    parse_acks,
    parse_confirms,
)
from vibemq.protocols.blazingmq.codec.events import Event, EventReader, EventType, event
from vibemq.protocols.blazingmq.codec.options import (
    UNLIMITED_ATTEMPTS,
    PushOptions,
    SubQueueInfo,
    group_id_option,
    parse_options,
    sub_queue_ids_option,
    sub_queue_infos_option,
)
from vibemq.protocols.blazingmq.codec.push import PushMessage, build_pushes, parse_pushes
from vibemq.protocols.blazingmq.codec.put import PutMessage, PutReader, build_puts, put_message

GUID = bytes.fromhex("400000000000003dd0b13e84bf23bf78")
guids = st.binary(min_size=16, max_size=16)
queue_ids = st.integers(-(1 << 31), (1 << 31) - 1)
puts = st.builds(
    put_message,
    queue_ids,
    guids,
    st.binary(max_size=40),
    flags=st.integers(0, 15),
    compression=st.integers(0, 7),
    schema_id=st.integers(0, 0xFFFF),
)
pushes = st.builds(
    PushMessage,
    queue_ids,
    guids,
    st.integers(0, 15),
    st.integers(0, 7),
    st.integers(0, 0xFFFF),
    st.sampled_from([b"", sub_queue_ids_option([7])]),
    st.binary(max_size=40),
)


def cut(data: bytes) -> list[Event]:
    reader = EventReader(event_bytes_max=1 << 24, control_bytes_max=256)
    reader.receive_data(data)
    return reader.read()


def take(data: bytes, messages_max: int = 1 << 30) -> list[PutMessage]:
    reader = PutReader()
    reader.add(cut(data))
    return reader.take(messages_max)


def put_event(body: bytes) -> bytes:
    return event(EventType.PUT, [body], len(body))


# -- PUT --------------------------------------------------------------------------------------------------------------


@given(st.lists(puts, min_size=1, max_size=8))
def test_puts_survive_the_wire(messages: list[PutMessage]) -> None:
    assert take(build_puts(messages)) == messages


@given(st.lists(puts, min_size=1, max_size=12), st.integers(1, 5), st.integers(1, 4))
def test_a_few_at_a_time_are_the_same_messages(messages: list[PutMessage], at_once: int, per_event: int) -> None:
    reader = PutReader()
    for at in range(0, len(messages), per_event):
        reader.add(cut(build_puts(messages[at : at + per_event])))
    got: list[PutMessage] = []
    while reader:
        taken = reader.take(at_once)
        assert len(taken) <= at_once
        got += taken
    assert got == messages


def test_an_old_header_has_no_schema() -> None:
    [message] = take(build_puts([put_message(5, GUID, b"old", schema_id=0)], header_words=8))
    assert (message.queue_id, message.guid, message.data, message.schema_id) == (5, GUID, b"old", 0)


def test_a_longer_header_and_options_are_passed_over() -> None:
    body = struct.pack("!IIi16sIHHI", 1 << 28 | 13, 2 << 8 | 10, 1, GUID, 0, 3, 0, 0xFFFFFFFF)
    [message] = take(put_event(body + b"optionsX" + b"ab\2\2"))
    assert message == (1, GUID, 1, 0, 3, 0, b"ab", "")


def test_the_correlation_id_of_a_client_without_guids() -> None:
    assert put_message(0, bytes.fromhex("00abcdef") + bytes(12), b"x").correlation_id == 0xABCDEF


def test_changed_data_is_the_fault_of_one_message() -> None:
    sent = [put_message(0, GUID, b"abc"), put_message(0, GUID, b"def")]
    first, second = take(build_puts(sent).replace(b"abc", b"abd"))
    assert "checksum" in first.fault
    assert second == sent[1]


def test_a_checksum_of_zero_is_none() -> None:
    sent = put_message(0, GUID, b"abc")._replace(crc32c=0)
    assert take(build_puts([sent])) == [sent]


@pytest.mark.parametrize("padding", [b"\0\0\0\0", b"\5\5\5\5", b"\xff\xff\xff\xff"])
def test_bad_padding_is_the_fault_of_one_message(padding: bytes) -> None:
    good = build_puts([put_message(0, GUID, b"good")])[8:]
    bad = struct.pack("!IIi16sIHH", 10, 9, 1, GUID, 7, 0, 0) + padding
    first, second = take(put_event(bad + good))
    assert "padding" in first.fault
    assert not second.fault
    assert second.data == b"good"


@pytest.mark.parametrize(
    ("words", "options_words", "header_words"),
    [(0, 0, 9), (9, 0, 9), (8, 0, 8), (100, 0, 9), (11, 0, 9), (10, 1, 9), (10, 0xFFFFFF, 9), (10, 0, 0), (10, 0, 7)],
)
def test_lengths_that_lie_end_the_connection(words: int, options_words: int, header_words: int) -> None:
    body = struct.pack("!IIi16sIHH", words, options_words << 8 | header_words, 1, GUID, 7, 0, 0) + b"\4\4\4\4"
    with pytest.raises(RemoteProtocolError, match="PUT event"):
        take(put_event(body))


@pytest.mark.parametrize("size", [4, 32])
def test_a_message_that_is_cut_short_ends_the_connection(size: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"a message of {size} bytes"):
        take(put_event(b"\0" * size))


def test_messages_before_a_lie_are_returned_first() -> None:
    good = build_puts([put_message(0, GUID, b"good")])[8:]
    reader = PutReader()
    reader.add(cut(put_event(good + good + b"\0" * 36)))
    assert len(reader.take(100)) == 2
    with pytest.raises(RemoteProtocolError):
        reader.take(100)


# -- PUSH -------------------------------------------------------------------------------------------------------------


@given(st.lists(pushes, min_size=1, max_size=8), st.integers(1, 300))
def test_pushes_survive_the_wire(messages: list[PushMessage], soft_max: int) -> None:
    events = build_pushes(messages, event_bytes_soft_max=soft_max)
    assert [found for one in cut(b"".join(events)) for found in parse_pushes(one)] == messages
    # Only the last message of an event reaches the limit.
    assert all(len(one) < soft_max + 8 + 32 + 8 + 44 for one in events)


def test_no_messages_are_no_events() -> None:
    assert build_pushes([]) == []


@pytest.mark.parametrize("body", ["00000008", "00000009" + "00000008" + 28 * "00", "00000020" + "00000008" + 28 * "00"])
def test_pushes_that_lie(body: str) -> None:
    data = bytes.fromhex(body)
    with pytest.raises(RemoteProtocolError):
        list(parse_pushes(Event(EventType.PUSH, 0, data, 0, len(data))))


# -- ACK, CONFIRM -----------------------------------------------------------------------------------------------------


acks = st.builds(AckMessage, st.integers(0, 15), st.integers(0, 0xFFFFFF), guids, queue_ids)
confirms = st.builds(ConfirmMessage, queue_ids, guids, st.integers(0, 0xFFFFFFFF))


@pytest.mark.parametrize("count", [1, 2, 300])
@pytest.mark.parametrize("queue_id", [0, 7, 0x7FFF_FFFF, -1])
def test_many_positive_acks_are_built_as_any_others(count: int, queue_id: int) -> None:
    guids = [bytes([64]) + number.to_bytes(15, "big") for number in range(count)]
    assert build_positive_acks(guids, queue_id) == build_acks([(0, 0, guid, queue_id) for guid in guids])


@given(st.lists(acks, min_size=1, max_size=5))
def test_acks_survive_the_wire(messages: list[AckMessage]) -> None:
    [one] = cut(build_acks(messages))
    assert parse_acks(one) == messages


@given(st.lists(st.lists(confirms, min_size=1, max_size=4), min_size=1, max_size=4))
def test_confirms_survive_the_wire(batches: list[list[ConfirmMessage]]) -> None:
    stream = b"".join(map(build_confirms, batches))
    assert list(parse_confirms(cut(stream))) == [message for batch in batches for message in batch]


def test_longer_headers_and_messages_are_passed_over() -> None:
    body = bytes.fromhex("28000000 ffffffff") + 2 * (struct.pack("!i16sI", 3, GUID, 4) + b"\xee" * 8)
    [one] = cut(event(EventType.CONFIRM, [body], len(body)))
    assert list(parse_confirms([one])) == [(3, GUID, 4)] * 2


@pytest.mark.parametrize("body", ["", "06000000", "15000000" + "00" * 20, "16000000" + "00" * 20, "f6000000"])
def test_confirms_that_lie(body: str) -> None:
    data = bytes.fromhex(body)
    with pytest.raises(RemoteProtocolError, match="CONFIRM"):
        list(parse_confirms([Event(EventType.CONFIRM, 0, data, 0, len(data))]))


# -- options ----------------------------------------------------------------------------------------------------------


def test_options_as_real_brokers_write_them() -> None:
    assert sub_queue_ids_option([2]).hex() == "0400000200000002"
    assert sub_queue_infos_option([SubQueueInfo(1, UNLIMITED_ATTEMPTS)]).hex() == "0c4000030000000180000000"
    assert sub_queue_infos_option([SubQueueInfo(0, 3)]).hex() == "0e000003"


def test_options_survive_the_wire() -> None:
    infos = [SubQueueInfo(1, 5), SubQueueInfo(9, UNLIMITED_ATTEMPTS)]
    data = sub_queue_ids_option([1, 2]) + group_id_option(b"group") + sub_queue_infos_option(infos)
    assert parse_options(data) == PushOptions((1, 2), b"group", tuple(infos))
    assert parse_options(sub_queue_infos_option([SubQueueInfo(0, 3)])).sub_queue_infos == (SubQueueInfo(0, 3),)
    assert parse_options(b"") == PushOptions()


@pytest.mark.parametrize(
    "data",
    [
        "04",
        "04000001",
        "04000003 00000001",
        "04000002 00000001 04000002 00000001",
        "10000002 00000000",
        "06000001",
        "0e000100",
        "08000002 00000000",
        "0c200002 00000000",
        "0c400002 00000000",
    ],
)
def test_options_that_lie(data: str) -> None:
    with pytest.raises(RemoteProtocolError):
        parse_options(bytes.fromhex(data))


@pytest.mark.parametrize("group_id", [b"", b"x" * 32])
def test_group_ids_have_bounds(group_id: bytes) -> None:
    with pytest.raises(LocalProtocolError):
        group_id_option(group_id)


@given(st.binary(max_size=120))
def test_garbage_raises_only_the_documented_errors(data: bytes) -> None:
    for parse in (
        lambda: list(parse_pushes(Event(EventType.PUSH, 0, data, 0, len(data)))),
        lambda: parse_acks(Event(EventType.ACK, 0, data, 0, len(data))),
        lambda: list(parse_confirms([Event(EventType.CONFIRM, 0, data, 0, len(data))])),
        lambda: parse_options(data),
    ):
        try:
            parse()
        except RemoteProtocolError:
            pass
    reader = PutReader()
    reader.add([Event(EventType.PUT, 0, data, 0, len(data))])
    try:
        while reader:
            reader.take(2)
    except RemoteProtocolError:
        pass
