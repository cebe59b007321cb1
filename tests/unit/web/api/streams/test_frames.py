"""Events as bytes."""

import json

from hypothesis import given
from hypothesis import strategies as st

from vibemq.web.api.streams.frames import bye, hello, json_frame


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_no_text_ends_an_event(value: object) -> None:
    try:
        made = json_frame("queue", value)
    except TypeError:
        # Half of a surrogate pair; nothing of ours holds one.
        assert "\\ud" in json.dumps(value)
        return
    head, data, *rest = made.split(b"\n")
    assert head == b"event: queue"
    assert rest == [b"", b""]
    assert json.loads(data.removeprefix(b"data: ")) == value


def test_the_first_and_the_last_word() -> None:
    assert hello() == b"retry: 2000\n\n"
    assert bye("it stops\n") == b'event: bye\ndata: {"reason":"it stops\\n"}\n\n'
