"""What `vibemq sub` prints of a message."""

from typing import cast

from vibemq.cli.sub import Wish, line_of
from vibemq.client.message import Delivery, Message, Settler
from vibemq.model.rows import pack_row


def printed(message_id: str, payload: bytes, headers: list[tuple[str, str]]) -> bytes:
    message = Message[None](
        Delivery(cast(Settler, None), 1, "orders", 0, {}, None), 7, pack_row(message_id, payload, headers)
    )
    return line_of(message, Wish(count=None, idle_s=None, ack=True, reject=None, json=False, verbose=True))


def test_what_publishers_choose_forges_no_line_and_steers_no_terminal() -> None:
    forged = "a\n── #9  other  1970-01-01"
    line, body, rest = printed(f"id {forged}", b"body", [(f"key {forged}", f"{forged}\x1b[2J\x9b\u202e")]).split(b"\n")
    assert (body, rest) == (b"body", b"")
    assert line.startswith("── #7  id a\\n── #9".encode())
    assert "key a\\n── #9  other  1970-01-01=a\\n".encode() in line
    assert line.decode().endswith("\\x1b[2J\\x9b\\u202e")


def test_the_body_is_printed_as_it_is() -> None:
    assert printed("x", b"\x1b[1mloud\x1b[0m", []).endswith(b"\n\x1b[1mloud\x1b[0m\n")
