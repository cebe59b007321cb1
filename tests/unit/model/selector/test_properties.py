"""Typed properties in headers: nothing is lost on the way there and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.errors import InvalidMessage
from vibemq.model.rows import RowView, pack_row
from vibemq.model.selector import (
    Property,
    PropertyType,
    Selector,
    header_of,
    headers_of,
    name_of,
    properties_in,
    properties_of,
)
from vibemq.model.selector import properties as kept_properties

_BITS = {PropertyType.CHAR: 8, PropertyType.SHORT: 16, PropertyType.INT32: 32, PropertyType.INT64: 64}


def _bytes_as_text(raw: bytes) -> str:
    return raw.decode(errors="surrogateescape")


def _property(kind: PropertyType) -> st.SearchStrategy[Property]:
    if kind is PropertyType.BOOL:
        values: st.SearchStrategy[bool | int | str | bytes] = st.booleans()
    elif kind is PropertyType.STRING:
        values = (
            st.sampled_from(["7", "-1", "true"])
            | st.binary(max_size=20).map(_bytes_as_text)
            | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
        )
    elif kind is PropertyType.BINARY:
        values = st.binary(max_size=20)
    else:
        bound = 1 << (_BITS[kind] - 1)
        values = st.integers(-bound, bound - 1)
    return values.map(lambda value: Property(kind, value))


names = st.sampled_from(["x", "priority", "vibemq-types", "vibemq-property-x", "reply-to", "a,b=c"]) | st.binary(
    min_size=1, max_size=12
).map(_bytes_as_text)
properties = st.dictionaries(names, st.sampled_from(PropertyType).flatmap(_property), max_size=8)


@given(properties)
def test_there_and_back(known: dict[str, Property]) -> None:
    row = pack_row("m", b"", headers_of(known.items()))
    assert properties_in(row, RowView(row).headers_at) == known


@given(properties)
def test_a_header_without_a_value_may_be_left_out_on_the_way(known: dict[str, Property]) -> None:
    assert properties_of([pair for pair in headers_of(known.items()) if pair[1]]) == known


def test_headers_are_readable() -> None:
    kept = headers_of(
        [
            ("region", Property(PropertyType.STRING, "eu")),
            ("total", Property(PropertyType.INT32, 250)),
            ("paid", Property(PropertyType.BOOL, True)),
            ("blob", Property(PropertyType.BINARY, b"\0\xff")),
            ("priority", Property(PropertyType.STRING, "mine")),
        ]
    )
    assert kept == [
        ("region", "eu"),
        ("total", "250"),
        ("paid", "true"),
        ("blob", "AP8="),
        ("vibemq-property-priority", "mine"),
        ("vibemq-types", "total=int32,paid=bool,blob=binary"),
    ]


def test_headers_of_a_native_publisher_are_strings() -> None:
    assert properties_of([("region", "eu"), ("void", "")]) == {"region": Property(PropertyType.STRING, "eu")}


def test_types_that_do_not_fit_what_stands_there_are_not_believed() -> None:
    kept = [
        ("n", "abc"),
        ("c", "200"),
        ("b", "yes"),
        ("z", "!!"),
        ("vibemq-types", "n=int64,c=char,b=bool,z=binary,=,q"),
    ]
    assert {kind for kind, _ in properties_of(kept).values()} == {PropertyType.STRING}


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("n", Property(PropertyType.SHORT, 32768)),
        ("n", Property(PropertyType.INT64, True)),
        ("n", Property(PropertyType.BOOL, 1)),
        ("n", Property(PropertyType.STRING, b"")),
        ("n", Property(PropertyType.STRING, "x" * 65536)),
        ("n", Property(PropertyType.BINARY, b"x" * 49153)),
        ("n" * 65536, Property(PropertyType.STRING, "x")),
    ],
)
def test_what_no_header_can_keep_is_refused(name: str, known: Property) -> None:
    with pytest.raises(InvalidMessage, match="property"):
        headers_of([(name, known)])


def test_too_many_types_and_names_that_come_twice_are_refused() -> None:
    long = [(f"{number:04}" * 100, Property(PropertyType.INT64, 1)) for number in range(200)]
    with pytest.raises(InvalidMessage, match="200 properties"):
        headers_of(long)
    with pytest.raises(InvalidMessage, match="twice"):
        headers_of(2 * [("x", Property(PropertyType.INT64, 1))])


@given(names)
def test_every_name_has_a_header_of_its_own(name: str) -> None:
    assert name_of(header_of(name)) == name


@pytest.mark.parametrize(("text", "as_number"), [("7", "x == 7"), ("-7", "x < 0"), ("true", "x"), ("false", "!x")])
def test_a_string_is_a_string_whatever_it_reads_as(text: str, as_number: str) -> None:
    row = pack_row("m", b"", headers_of([("x", Property(PropertyType.STRING, text))]))
    at = RowView(row).headers_at
    assert Selector.parse(f'x == "{text}"').matches_block(row, at)
    assert not Selector.parse(as_number).matches_block(row, at)
    assert properties_in(row, at) == {"x": Property(PropertyType.STRING, text)}


def test_of_a_long_list_of_types_a_selector_reads_what_it_needs() -> None:
    many = [(f"p{number}", Property(PropertyType.INT32, number)) for number in range(1_000)]
    known = [("x", Property(PropertyType.BOOL, True)), *many, ("é=,", Property(PropertyType.INT64, 5))]
    row = pack_row("m", b"", headers_of(known))
    at = RowView(row).headers_at
    remembered = kept_properties._remembered_types.cache_info().currsize
    for text, wanted in (("x", True), ("p0 == 0 && p999 == 999", True), ("exists(p99) && p9", False), ("p", False)):
        assert Selector.parse(text).matches_block(row, at) is wanted
    assert properties_in(row, at) == dict(known)
    assert kept_properties._remembered_types.cache_info().currsize == remembered
