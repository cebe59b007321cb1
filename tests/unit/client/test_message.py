"""Messages whose bytes are not what a broker sends: a line without TLS may change them."""

from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from vibemq.client.message import Delivery, Message, Settler
from vibemq.errors import RemoteProtocolError
from vibemq.model.rows import pack_row

ROW = pack_row("order-1", b'{"id": 1}', [("content-type", "application/json")])


def message(row: bytes) -> Message[None]:
    return Message(Delivery(cast(Settler, None), 1, "orders", 0, {}, None), 7, row)


@given(st.integers(0, len(ROW)), st.lists(st.tuples(st.integers(0, len(ROW) - 1), st.integers(0, 255)), max_size=4))
def test_a_changed_row_is_read_or_refused_by_name(length: int, changes: list[tuple[int, int]]) -> None:
    row = bytearray(ROW)
    for at, value in changes:
        row[at] = value
    changed = message(bytes(row[:length]))
    assert "orders#7" in repr(changed)
    for name in ("id", "payload", "headers"):
        try:
            getattr(changed, name)
        except RemoteProtocolError as refused:
            said = str(refused)
        else:
            said = ""
        assert not said or "message 7 of queue 'orders' arrived damaged" in said


def test_a_sound_row_is_read() -> None:
    sound = message(ROW)
    assert (sound.id, sound.payload, sound.headers["content-type"]) == ("order-1", b'{"id": 1}', "application/json")
