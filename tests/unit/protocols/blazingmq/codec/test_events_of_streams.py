import tracemalloc
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.guard.counting import instructions
from vibemq.errors import RemoteProtocolError
from vibemq.protocols.blazingmq.codec.events import (
    EVENT_HEADER,
    HEARTBEAT_REQ,
    HEARTBEAT_RSP,
    Event,
    EventReader,
    EventType,
    event,
    padded,
    unpadded_end,
)
from vibemq.protocols.blazingmq.codec.put import PutMessage, PutReader, build_puts, put_message


def new_reader(event_bytes_max: int = 1 << 20, control_bytes_max: int = 256) -> EventReader:
    return EventReader(event_bytes_max=event_bytes_max, control_bytes_max=control_bytes_max)


def read(data: bytes) -> list[Event]:
    reader = new_reader()
    reader.receive_data(data)
    return reader.read()


def words(count: int) -> bytes:
    return bytes(4 * count)


def put(count: int) -> bytes:
    return event(EventType.PUT, [words(count)], 4 * count)


@given(st.lists(st.tuples(st.sampled_from(EventType), st.integers(0, 60)), max_size=12), st.data())
def test_chunking_does_not_change_the_events(wanted: list[tuple[EventType, int]], data: st.DataObject) -> None:
    stream = b"".join(event(kind, [words(count)], 4 * count) for kind, count in wanted)
    reader = new_reader()
    got = []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        reader.receive_data(stream[:cut])
        stream = stream[cut:]
        if data.draw(st.booleans()):
            got += reader.read(data.draw(st.integers(1, 500)))
    while events := reader.read():
        got += events
    assert [(found.type, len(found.body)) for found in got] == [(kind, 4 * count) for kind, count in wanted]
    assert reader.buffered_bytes == 0


@pytest.mark.parametrize("cut", [0, 4, 8])
def test_few_events_are_cut_out_together_wherever_the_network_has_cut_them(cut: int) -> None:
    reader = new_reader()
    stream = HEARTBEAT_REQ * 30_000
    reader.receive_data(stream[:cut])
    reader.receive_data(stream[cut:])
    counts = []
    while events := reader.read(1 << 18):
        counts.append(len(events))
    assert sum(counts) == 30_000
    assert max(counts) < 2_100


def test_heartbeats_are_eight_bytes() -> None:
    assert [(found.type, found.body) for found in read(HEARTBEAT_REQ + HEARTBEAT_RSP)] == [(11, b""), (12, b"")]


def test_types_that_are_unknown_come_through() -> None:
    assert read(bytes.fromhex("0000000c 7f 02 0000 00000000"))[0].type == 63


def test_a_longer_header_is_passed_over() -> None:
    [found] = read(bytes.fromhex("00000010 42 03 0000 ffffffff 00000001"))
    assert found.body == b"\0\0\0\1"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("80000008 42 02 0000", "fragment"),
        ("00000000 42 02 0000", "multiple of 4"),
        ("00000004 42 02 0000", "multiple of 4"),
        ("0000000a 42 02 0000", "multiple of 4"),
        ("7ffffffc 42 02 0000", "at most 1048576"),
        ("00100004 42 02 0000", "at most 1048576"),
        ("00000104 41 02 0000", "at most 256"),
        ("00000104 4f 02 0000", "at most 256"),
        ("00100004 43 02 0000", "at most 1048576"),
        ("00000008 02 02 0000", "version 0"),
        ("00000008 82 02 0000", "version 2"),
        ("00000008 42 01 0000", "header of 1 words"),
        ("00000008 42 03 0000", "header of 3 words"),
        ("474554202f204854", "at most 1048576"),
    ],
)
def test_a_header_alone_condemns_an_event(data: str, why: str) -> None:
    for more in (b"", bytes(512)):
        with pytest.raises(RemoteProtocolError, match=why):
            read(bytes.fromhex(data) + more)


def test_what_was_sound_comes_before_the_error() -> None:
    reader = new_reader()
    reader.receive_data(put(3) + put(2) + b"\xff" * 8)
    assert len(reader.read()) == 2
    for _ in range(2):
        with pytest.raises(RemoteProtocolError):
            reader.read()


def test_limits_may_be_raised() -> None:
    reader = new_reader(event_bytes_max=64)
    reader.receive_data(put(20)[:10])
    with pytest.raises(RemoteProtocolError):
        reader.read()
    reader.event_bytes_max = 88
    reader.receive_data(put(20)[10:])
    assert len(reader.read()) == 1


def test_a_read_stops_at_its_bytes() -> None:
    reader = new_reader()
    reader.receive_data(put(1) * 10)
    assert len(reader.read(25)) == 3
    assert len(reader.read()) == 7


def test_the_awaited_event_is_known_by_its_header() -> None:
    reader = new_reader()
    assert reader.awaited_bytes == 0
    reader.receive_data(put(100)[:7])
    assert (reader.read(), reader.awaited_bytes, reader.buffered_bytes) == ([], 0, 7)
    reader.receive_data(put(100)[7:50])
    assert (reader.read(), reader.awaited_bytes, reader.buffered_bytes) == ([], 408, 50)
    reader.receive_data(put(100)[50:])
    assert len(reader.read()) == 1
    assert (reader.awaited_bytes, reader.buffered_bytes) == (0, 0)


def test_a_length_allocates_nothing() -> None:
    reader = EventReader(event_bytes_max=1 << 30, control_bytes_max=256)
    tracemalloc.start()
    try:
        reader.receive_data(bytes.fromhex("3ffffffc 42 02 0000"))
        assert reader.read() == []
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("size", "step"), [(1 << 22, 1 << 16), (1 << 22, 1 << 12), (1 << 18, 16)])
def test_a_large_message_in_pieces_costs_what_it_is_and_one_copy(size: int, step: int) -> None:
    reader = EventReader(event_bytes_max=1 << 25, control_bytes_max=256)
    data = build_puts([put_message(0, guid(1), bytes(size))])
    tracemalloc.start()
    try:
        for at in range(0, len(data), step):
            reader.receive_data(data[at : at + step])
            found = reader.read()
        [whole] = found
        assert whole.end - whole.start == len(data) - 8
        assert tracemalloc.get_traced_memory()[1] < 2.3 * len(data)
    finally:
        tracemalloc.stop()


@given(st.binary(max_size=40))
def test_padding_says_its_own_length(data: bytes) -> None:
    whole = padded(data)
    assert len(whole) % 4 == 0
    assert 1 <= len(whole) - len(data) <= 4
    assert whole[: unpadded_end(whole, 0, len(whole))] == data


@pytest.mark.parametrize("data", [b"", b"\0\0\0\0", b"\5\5\5\5", b"\4", b"\xff" * 300])
def test_bad_padding_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="padding"):
        unpadded_end(data, 0, len(data))


@given(st.binary(max_size=200))
def test_garbage_raises_only_the_documented_error(data: bytes) -> None:
    reader = new_reader()
    reader.receive_data(data)
    try:
        while reader.read():
            pass
    except RemoteProtocolError:
        pass


# -- large PUT events -------------------------------------------------------------------------------------------------


def guid(index: int) -> bytes:
    return (index + 1).to_bytes(16, "big")


def posted(count: int, payload: bytes = b"x" * 1_000) -> list[PutMessage]:
    return [put_message(index % 3, guid(index), payload) for index in range(count)]


def taken(events: list[Event]) -> list[PutMessage]:
    reader = PutReader()
    reader.add(events)
    return reader.take(1 << 30)


@pytest.mark.parametrize("step", [1_001, 65_536, 1 << 22])
def test_a_large_event_comes_message_by_message(step: int) -> None:
    sent = posted(600)
    stream = build_puts(sent) + HEARTBEAT_REQ
    reader = new_reader()
    got: list[PutMessage] = []
    for at in range(0, len(stream), step):
        reader.receive_data(stream[at : at + step])
        while events := reader.read(50_000):
            assert events[0].end - events[0].start < 60_000
            got += taken([event for event in events if event.type == EventType.PUT])
        assert reader.buffered_bytes < 2_000
    assert got == sent
    assert reader.buffered_bytes == 0


@pytest.mark.parametrize("step", [3, 8, 20, 1 << 22])
def test_a_large_event_may_have_a_longer_header(step: int) -> None:
    sent = posted(300)
    whole = build_puts(sent)
    length, kind, _, specific, rest = EVENT_HEADER.unpack_from(whole)
    stream = EVENT_HEADER.pack(length + 64, kind, 18, specific, rest) + b"\xff" * 64 + whole[8:] + HEARTBEAT_REQ
    reader = new_reader()
    events: list[Event] = []
    for at in range(0, len(stream), step):
        reader.receive_data(stream[at : at + step])
        events += reader.read()
    assert events.pop().type == EventType.HEARTBEAT_REQ
    assert taken(events) == sent


def test_a_message_that_is_too_large_is_not_kept() -> None:
    sent = [*posted(300), put_message(5, guid(999), b"y" * 400_000), *posted(2)]
    stream = build_puts(sent) + HEARTBEAT_REQ
    reader = EventReader(event_bytes_max=1 << 20, control_bytes_max=256, message_bytes_max=2_000)
    events = []
    for at in range(0, len(stream), 10_000):
        reader.receive_data(stream[at : at + 10_000])
        events += reader.read()
        assert reader.buffered_bytes < 2_000
    assert events.pop().type == EventType.HEARTBEAT_REQ
    got = taken(events)
    assert got[:300] + got[301:] == sent[:300] + sent[301:]
    refused = got[300]
    assert (refused.queue_id, refused.guid, refused.flags) == (5, guid(999), 1)
    assert refused.fault


@pytest.mark.parametrize("words", [0, 8, 1 << 27])
def test_a_lie_within_a_large_event_is_found_behind_what_was_sound(words: int) -> None:
    good = build_puts(posted(300))[8:]
    body = good + words.to_bytes(4, "big") + bytes(36)
    reader = new_reader()
    reader.receive_data(event(EventType.PUT, [body], len(body)))
    assert len(taken(reader.read())) == 300
    with pytest.raises(RemoteProtocolError, match="PUT event"):
        reader.read()


@pytest.mark.parametrize("seed", range(20))
def test_however_it_is_cut(seed: int) -> None:
    random = Random(seed)
    sizes = [260_000, *(random.randrange(70_000) for _ in range(7)), 49_960, 49_961, 49_964, 50_000]
    sent = [put_message(0, guid(index), bytes(size)) for index, size in enumerate(sizes)]
    stream = build_puts(sent) * 2
    reader = EventReader(event_bytes_max=1 << 23, control_bytes_max=256, message_bytes_max=50_000)
    events: list[Event] = []
    while stream:
        cut = random.choice([1, 3, 1_000, random.randrange(1, 1 << 18)])
        reader.receive_data(stream[:cut])
        stream = stream[cut:]
        events += reader.read(random.randrange(1, 1 << 20))
    while more := reader.read():
        events += more
    got = taken(events)
    expected = [message.data if len(message.data) <= 49_963 else None for message in sent * 2]
    assert [None if message.fault else message.data for message in got] == expected
    assert [message.guid for message in got] == [message.guid for message in sent * 2]
    assert reader.buffered_bytes == 0


def test_an_event_that_the_network_has_cut_makes_those_behind_it_no_dearer() -> None:
    """An SDK sends one message to an event, and the first one of nearly every read has begun in the read before."""
    stream = put(20) * 1_000

    def cost(cut: int) -> int:
        reader = new_reader()
        reader.receive_data(stream[:cut])
        reader.read()
        reader.receive_data(stream[cut:])
        return sum(instructions(lambda: reader.read()).values())

    assert cost(50) < 1.2 * cost(0)


def test_a_read_takes_a_limited_number_of_events_also_behind_one_that_was_cut() -> None:
    reader = new_reader()
    reader.receive_data(HEARTBEAT_REQ[:4])
    reader.receive_data(HEARTBEAT_REQ[4:] + HEARTBEAT_REQ * 29_999)
    counts = []
    while found := reader.read():
        counts.append(len(found))
    assert sum(counts) == 30_000
    assert max(counts) < 3_000
