"""JSON that is read in pieces says what it says when it is read at once, wherever it is cut."""

from typing import Any
from unittest.mock import patch

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.errors import InvalidMessage
from vibemq.model.steps import at_once
from vibemq.protocols.eventmesh.messages import json_scan
from vibemq.protocols.eventmesh.messages.json_scan import JsonScan, list_items

JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=20,
)
PIECES = st.sampled_from(
    ["x", "é", "€", "😀", "\\n", '\\"', "\\\\", "\\u00e9", "\\ud83d\\ude00", "\\\\u00", "u0041", "\\u20ac", '\\\\\\"']
)


@given(st.lists(PIECES, max_size=60), st.integers(20, 40))
def test_a_text_may_be_cut_anywhere(pieces: list[str], most: int) -> None:
    raw = f'"{"".join(pieces)}"'.encode()
    with patch.object(json_scan, "TEXT_AT_ONCE", most):
        assert at_once(JsonScan(raw, "it").text(0, len(raw))) == orjson.loads(raw)


@given(st.lists(PIECES, max_size=60), st.text(max_size=9))
def test_a_text_ends_where_it_ends(pieces: list[str], behind: str) -> None:
    raw = f'"{"".join(pieces)}"'.encode()
    assert at_once(JsonScan(raw + behind.encode(), "it").value_end(0)) == len(raw)


@given(st.lists(JSON, max_size=8), st.sampled_from([None, orjson.OPT_INDENT_2]))
def test_the_items_of_a_list_are_those_that_a_parser_finds(values: list[Any], option: int | None) -> None:
    raw = orjson.dumps(values, option=option)
    assert [orjson.loads(item) for item in list_items(raw, "it") if item is not None] == values


NO_LISTS = (b"", b" ", b"{}", b"[", b"[1", b"[1,", b"[1 2]", b"[1] 2", b'["a', b"[,1]", b"[1,]", b"1")


@pytest.mark.parametrize("raw", NO_LISTS)
def test_what_is_no_list_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidMessage, match="it "):
        list(list_items(raw, "it"))
