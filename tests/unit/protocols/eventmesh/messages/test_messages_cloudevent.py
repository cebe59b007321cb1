"""Inline JSON data of an event keeps its bytes as they were written, wherever it stands and whatever is around it."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from vibemq.protocols.eventmesh.messages.cloudevent import read_event

PARTS = {"specversion": "1.0", "id": "e", "source": "s", "type": "t", "subject": "q"}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.sampled_from(["", "data", '"data"', "}", "]", "{", ","]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["data", "a", "id"]), inner, max_size=3)
    ),
    max_leaves=6,
)
DATA = st.sampled_from(["data", r"d\u0061ta"])
BLANKS = st.sampled_from(["", " ", "\n\t", "  "])
OTHERS = st.lists(
    st.tuples(st.sampled_from(["id", "ext", "eventmeshproperties"]), st.sampled_from(["x", '"data": [1]', "]}"])),
    max_size=3,
)


def written(value: Any, blank: str) -> str:
    return json.dumps(value, separators=("," + blank, ":" + blank))


@given(DATA, VALUES, BLANKS, OTHERS, OTHERS, st.lists(st.tuples(DATA, VALUES), max_size=2))
def test_data_comes_out_as_it_was_written(
    name: str,
    data: Any,
    blank: str,
    before: list[tuple[str, str]],
    after: list[tuple[str, str]],
    twice: list[tuple[str, Any]],
) -> None:
    members = [*PARTS.items(), *before, *twice, (name, data), *after]
    text = "{" + f",{blank}".join(f'"{each}"{blank}:{blank}{written(value, blank)}' for each, value in members)
    payload = read_event(f"{text}{blank}}}{blank}").payload
    assert payload == (b"" if data is None else written(data, blank).encode())
