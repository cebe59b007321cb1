"""Messages and dead letters as people read them."""

from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console, RenderableType

from vibemq.cli.messages import letter_sheet, message_sheet, preview, preview_sheet


def shown(sheet: RenderableType) -> list[str]:
    console = Console(width=200, markup=False, highlight=False)
    with console.capture() as captured:
        console.print(sheet)
    return captured.get().splitlines()


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"payload": "a\n text"}, "a text"),
        ({"payload": "b" * 61}, "b" * 59 + "…"),
        ({"payload": "", "payload_size": 0, "truncated": False}, ""),
        ({"payload": "a text", "payload_size": 6, "truncated": False}, "a text"),
        ({"payload": "a part", "payload_size": 2_000, "truncated": True}, "a part…"),
        ({"payload_base64": "/w=="}, "<1 byte>"),
        ({"payload_base64": "/w==", "payload_size": 2_000, "truncated": True}, "<2,000 bytes>"),
        ({"payload_size": 20_000_000}, "<20,000,000 bytes>"),
    ],
)
def test_a_payload_is_one_short_line(message: dict[str, Any], text: str) -> None:
    assert preview(message) == text


def test_a_preview_says_where_every_letter_goes() -> None:
    targets = [
        {"queue": "orders", "count": 67, "state": "ok"},
        {"queue": "mails", "count": 2, "state": "missing"},
        {"queue": "hidden", "count": 1, "state": None},
    ]
    sentences = ["70 dead letters fit.", "2 dead letters go to queue 'mails', which does not exist."]
    lines = shown(preview_sheet({"sentences": sentences, "targets": targets, "groups": []}))
    assert lines[:4] == [
        *sentences,
        "A replay puts 67 dead letters into queue 'orders'.",
        "A replay puts 1 dead letter into queue 'hidden'.",
    ]


@pytest.mark.parametrize(
    ("sheet", "told"),
    [
        (letter_sheet, {"dead_id": 1, "payload": ""}),
        (message_sheet, {"sequence": 1, "queue": "orders", "payload": "", "offset": 0, "size": 0, "truncated": False}),
    ],
)
def test_a_header_is_one_line_whatever_it_says(
    sheet: Callable[[dict[str, Any]], RenderableType], told: dict[str, Any]
) -> None:
    lines = shown(sheet({**told, "headers": {"from": "shop\nuser: root", "to": "x"}}))
    headers = next(number for number, line in enumerate(lines) if line.startswith("headers"))
    assert "from: shop\\nuser: root" in lines[headers]
    assert "to: x" in lines[headers + 1]
