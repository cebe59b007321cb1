"""What is posted to a subscriber."""

from urllib.parse import parse_qs

from hypothesis import example, given
from hypothesis import strategies as st

from bench.guard.counting import instructions
from vibemq.model.rows import pack_row
from vibemq.protocols.eventmesh.http.push.requests import push_body

NOW = 1_700_000_000_000


@given(st.one_of(st.text(), st.text("%+ =&a;"), st.binary().map(lambda raw: raw.decode("latin-1"))))
@example("".join(map(chr, range(256))))
@example("100 % + 5 %2B")
@example("".join(map(chr, range(256))) * 300)
def test_a_form_says_again_what_was_published(text: str) -> None:
    body = push_body("orders", pack_row("id", text.encode(), []), 7, NOW, asks=False)
    assert body.isascii()
    fields = parse_qs(body.decode(), keep_blank_values=True, strict_parsing=True)
    assert fields["content"] == [text]
    assert fields["topic"] == ["orders"]


def test_a_large_text_is_not_escaped_byte_by_byte() -> None:
    row = pack_row("id", "".join(map(chr, range(128))).encode() * 800, [])
    assert sum(instructions(lambda: push_body("orders", row, 7, NOW, asks=False)).values()) < 5_000
