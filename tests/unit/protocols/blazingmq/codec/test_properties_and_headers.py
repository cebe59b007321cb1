"""Areas of properties, and the headers of rows that keep them."""

import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vibemq.errors import InvalidMessage, LocalProtocolError
from vibemq.model.rows import header_pairs, pack_row
from vibemq.model.selector import Property, PropertyType, headers_of, properties_of
from vibemq.protocols.blazingmq.codec.properties import (
    NAME_BYTES_MAX,
    PROPERTIES_MAX,
    SCHEMA_NONE,
    SCHEMA_OLD,
    MessageProperty,
    PropertyValue,
    area_bytes,
    build_area,
    parse_area,
)
from vibemq.protocols.blazingmq.codec.property_headers import area_of_headers, headers_of_area

BITS = {PropertyType.CHAR: 8, PropertyType.SHORT: 16, PropertyType.INT32: 32, PropertyType.INT64: 64}
odd_text = st.binary(max_size=12).map(lambda raw: raw.decode(errors="surrogateescape"))
names = st.sampled_from(["k", "total", "priority", "vibemq-types", "vibemq-x", "naïve", "a=b,c", "x" * 300]) | odd_text
styles = st.sampled_from([SCHEMA_OLD, SCHEMA_NONE, 2, 3])


def values(kind: PropertyType) -> st.SearchStrategy[PropertyValue]:
    if kind is PropertyType.BOOL:
        return st.booleans()
    if kind is PropertyType.STRING:
        return st.sampled_from(["", "eu", "true", "12"]) | st.text(max_size=12) | odd_text
    if kind is PropertyType.BINARY:
        return st.binary(max_size=12)
    bound = 1 << (BITS[kind] - 1)
    return st.integers(-bound, bound - 1) | st.sampled_from([-bound, 0, bound - 1])


kinds = st.sampled_from(PropertyType)
one_property = st.tuples(names.filter(bool), kinds.flatmap(lambda kind: st.tuples(st.just(kind), values(kind))))
areas = st.lists(one_property, min_size=1, max_size=20, unique_by=lambda named: named[0]).map(
    lambda listed: [MessageProperty(name, *kept) for name, kept in listed]
)
EVERY_TYPE = [
    MessageProperty("b", PropertyType.BOOL, True),
    MessageProperty("c", PropertyType.CHAR, 65),
    MessageProperty("i", PropertyType.INT32, -3),
    MessageProperty("l", PropertyType.INT64, 1 << 40),
    MessageProperty("s", PropertyType.SHORT, -2),
    MessageProperty("t", PropertyType.STRING, "text"),
    MessageProperty("x", PropertyType.BINARY, b"\0\1\2"),
]


def block_of(pairs: list[tuple[str, str]]) -> bytes:
    return pack_row("i", b"", pairs)[7:]


# -- areas ------------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(areas, styles, st.binary(max_size=9))
def test_areas_survive(properties: list[MessageProperty], style: int, payload: bytes) -> None:
    area = build_area(properties, style)
    assert len(area) % 4 == 0
    assert parse_area(area + payload, style) == (properties, len(area))
    assert area_bytes(area + payload) == len(area)


def test_longer_headers_are_passed_over() -> None:
    # Headers of four half-words instead of three.
    data = bytes.fromhex("24 000006 00 01 ffff  1800 0000 0001 ffff  6b 76 0202")
    assert parse_area(data[:1] + b"\0\0\5" + data[4:], SCHEMA_NONE)[0] == [("k", PropertyType.STRING, "v")]


def test_the_area_that_those_that_lie_differ_from() -> None:
    data = bytes.fromhex("1b0000040001" + "180000000001" + "6b760202")
    assert parse_area(data, SCHEMA_NONE) == ([("k", PropertyType.STRING, "v")], 16)


def test_the_largest_area_has_255_properties() -> None:
    properties = [MessageProperty(f"p{index}", PropertyType.SHORT, index) for index in range(PROPERTIES_MAX)]
    assert parse_area(build_area(properties), SCHEMA_NONE)[0] == properties
    with pytest.raises(LocalProtocolError):
        build_area([*properties, MessageProperty("more", PropertyType.SHORT, 1)])
    with pytest.raises(LocalProtocolError):
        build_area([])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (PropertyType.CHAR, 128),
        (PropertyType.SHORT, 1 << 15),
        (PropertyType.INT32, -(1 << 31) - 1),
        (PropertyType.INT64, 1 << 63),
        (PropertyType.INT64, "1"),
        (PropertyType.STRING, b"x"),
        (PropertyType.STRING, "\ud800"),
        (PropertyType.BINARY, "x"),
    ],
)
def test_values_that_a_type_does_not_have(kind: PropertyType, value: PropertyValue) -> None:
    with pytest.raises(LocalProtocolError):
        build_area([MessageProperty("p", kind, value)])


@pytest.mark.parametrize("name", ["", "x" * (NAME_BYTES_MAX + 1)])
def test_names_have_bounds(name: str) -> None:
    with pytest.raises(LocalProtocolError):
        build_area([MessageProperty(name, PropertyType.BOOL, True)])


@pytest.mark.parametrize(
    "data",
    [
        "",
        "1b000002",
        "1b0000ff0001" + "180000000001" + "6b760202",
        "1b0000000001" + "180000000001" + "6b760202",
        "1b0000040000" + "180000000001" + "6b760202",
        "1a0000040001" + "180000000001" + "6b760202",
        "130000040001" + "180000000001" + "6b760202",
        "1b0000040001" + "180000010001" + "6b760202",
        "1b0000040001" + "180000000009" + "6b760202",
        "1b0000040001" + "180000000000" + "6b760202",
        "1b0000040001" + "000000000001" + "6b760202",
        "1b0000040001" + "200000000001" + "6b760202",
        "1b0000040001" + "100000000001" + "6b760202",
        "1b0000040001" + "180000000001" + "6b760005",
        "1b0000040002" + "180000000001" + "6b760202",
        "1b0000060002" + "180000000001" + "180000040001" + "6b766b760202",
        "1b0000060002" + "180000000001" + "180000000001" + "6b766b760202",
        "1b0000060002" + "180000000001" + "180000020001" + "6b766b760202",
    ],
)
def test_areas_that_lie(data: str) -> None:
    with pytest.raises(InvalidMessage):
        parse_area(bytes.fromhex(data), SCHEMA_NONE)


@settings(max_examples=40)
@given(areas, styles, st.data())
def test_damaged_areas_raise_only_the_documented_error(
    properties: list[MessageProperty], style: int, data: st.DataObject
) -> None:
    area = bytearray(build_area(properties, style) + b"payload")
    for _ in range(data.draw(st.integers(1, 3))):
        area[data.draw(st.integers(0, len(area) - 1))] = data.draw(st.integers(0, 255))
    try:
        found, at = parse_area(bytes(area), style)
    except InvalidMessage:
        with pytest.raises(InvalidMessage):
            headers_of_area(bytes(area), style)
    else:
        assert at <= len(area)
        assert parse_area(build_area(found, style), style)[0] == found


# -- headers ----------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(areas, styles, st.sampled_from([SCHEMA_OLD, SCHEMA_NONE]))
@example(EVERY_TYPE, SCHEMA_NONE, SCHEMA_NONE)
@example([MessageProperty("e", PropertyType.STRING, ""), *EVERY_TYPE], SCHEMA_NONE, SCHEMA_OLD)
def test_properties_survive_the_store(properties: list[MessageProperty], posted: int, delivered: int) -> None:
    area = build_area(properties, posted)
    block, at = headers_of_area(area + b"payload", posted)
    assert at == len(area)
    assert area_of_headers(block, delivered) == build_area(properties, delivered)


@settings(max_examples=40)
@given(areas)
def test_the_headers_are_those_of_typed_properties_everywhere(properties: list[MessageProperty]) -> None:
    block, _ = headers_of_area(build_area(properties), SCHEMA_NONE)
    expected = headers_of((name, Property(kind, value)) for name, kind, value in properties)
    assert block == block_of(expected)
    assert properties_of(header_pairs(block, 0)) == {name: Property(kind, value) for name, kind, value in properties}


def test_a_native_consumer_reads_what_was_posted() -> None:
    block, _ = headers_of_area(build_area(EVERY_TYPE), SCHEMA_NONE)
    assert dict(header_pairs(block, 0)) == {
        "b": "true",
        "c": "65",
        "i": "-3",
        "l": "1099511627776",
        "s": "-2",
        "t": "text",
        "x": "AAEC",
        "vibemq-types": "b=bool,c=char,i=int32,l=int64,s=short,x=binary",
    }


def test_headers_of_a_native_message_are_strings() -> None:
    block = block_of([("region", "eu"), ("naïve", "ja"), ("correlation-id", "7")])
    assert parse_area(area_of_headers(block, SCHEMA_NONE), SCHEMA_NONE)[0] == [
        ("region", PropertyType.STRING, "eu"),
        ("naïve", PropertyType.STRING, "ja"),
        ("correlation-id", PropertyType.STRING, "7"),
    ]


def test_headers_of_the_broker_stay_here() -> None:
    assert area_of_headers(block_of([("vibemq-ttl-ms", "7")]), SCHEMA_NONE) == b""
    assert area_of_headers(b"\0\0", SCHEMA_NONE) == b""
    block = block_of([("vibemq-ttl-ms", "7"), ("a", "1"), ("vibemq-types", "a=int64")])
    assert parse_area(area_of_headers(block, SCHEMA_NONE), SCHEMA_NONE)[0] == [("a", PropertyType.INT64, 1)]


@pytest.mark.parametrize("text", ["", "x", "01", "9223372036854775808", "1.5", "٣"])
def test_a_header_that_is_not_of_its_type_is_a_string(text: str) -> None:
    block = block_of([("n", text), ("m", "1"), ("vibemq-types", "n=int64,m=int64")])
    properties = {name: (kind, value) for name, kind, value in parse_area(area_of_headers(block, 1), 1)[0]}
    assert properties["n"] == (PropertyType.STRING, text)
    assert properties["m"] == (PropertyType.INT64, 1)


def test_what_no_area_has_room_for_is_left_out() -> None:
    many = [(f"h{index}", "v") for index in range(300)]
    assert len(parse_area(area_of_headers(block_of(many), SCHEMA_NONE), SCHEMA_NONE)[0]) == PROPERTIES_MAX
    long = [("n" * 5_000, "v"), ("kept", "v")]
    assert parse_area(area_of_headers(block_of(long), SCHEMA_NONE), SCHEMA_NONE)[0] == [
        ("kept", PropertyType.STRING, "v")
    ]


def test_an_old_area_with_more_than_its_properties_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="behind the last property"):
        parse_area(bytes.fromhex("1b0000050001" + "180000010001" + "6b76" + "00000000" + "0202"), SCHEMA_OLD)


def test_an_empty_value_is_found_in_the_list_of_types_alone() -> None:
    block = block_of([("a", "1"), ("vibemq-types", "a=int64,e=string,x=binary")])
    assert parse_area(area_of_headers(block, SCHEMA_NONE), SCHEMA_NONE)[0] == [
        ("a", PropertyType.INT64, 1),
        ("e", PropertyType.STRING, ""),
        ("x", PropertyType.BINARY, b""),
    ]


def test_a_property_without_a_name_is_left_out() -> None:
    block = block_of([("kept", "v"), ("vibemq-types", "=string,=binary")])
    assert parse_area(area_of_headers(block, SCHEMA_NONE), SCHEMA_NONE)[0] == [("kept", PropertyType.STRING, "v")]


@pytest.mark.parametrize(
    "properties",
    [
        [MessageProperty("long", PropertyType.STRING, "x" * 65_536)],
        [MessageProperty("long", PropertyType.BINARY, b"x" * 50_000)],
    ],
)
def test_a_value_that_no_header_has_room_for_is_refused(properties: list[MessageProperty]) -> None:
    with pytest.raises(InvalidMessage, match="long"):
        headers_of_area(build_area(properties), SCHEMA_NONE)


def test_two_properties_of_one_name_are_refused() -> None:
    area = build_area([MessageProperty("aa", PropertyType.BOOL, True), MessageProperty("ab", PropertyType.BOOL, True)])
    twice = area.replace(b"ab", b"aa")
    for read in (parse_area, headers_of_area):
        with pytest.raises(InvalidMessage, match=r"name|twice"):
            read(twice, SCHEMA_NONE)


def test_a_boolean_of_another_byte_is_true() -> None:
    area = build_area([MessageProperty("b", PropertyType.BOOL, True)]).replace(b"b\1", b"b\7")
    assert parse_area(area, SCHEMA_NONE)[0][0].value is True
    assert b"true" in headers_of_area(area, SCHEMA_NONE)[0]


def test_rows_whose_headers_are_damaged_text_still_go_out() -> None:
    block = struct.pack("!HH", 1, 2) + b"\xff\xfe" + b"\0\1v"
    [found] = parse_area(area_of_headers(block, SCHEMA_NONE), SCHEMA_NONE)[0]
    assert found.value == "v"
