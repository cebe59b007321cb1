from typing import Any

import pytest

from vibemq.errors import InvalidOptions, InvalidPayload
from vibemq.model.records import DeadFacts, Reason
from vibemq.model.rows import RowView, pack_row
from vibemq.model.stored import DeadLetter
from vibemq.operations.arguments import page_size, read
from vibemq.operations.dead_letters import LetterFilter, LetterFilters
from vibemq.operations.messages import letter_json, message_json, replay_extra, replay_row

NOW = 100_000


def letter(
    dead_id: int = 1,
    *,
    queue: str = "q",
    reason: Reason = Reason.REJECTED,
    dead_at: int = NOW - 1000,
    headers: dict[str, str] | None = None,
    payload: bytes = b"{}",
    priority: int = 1,
) -> DeadLetter:
    facts = DeadFacts(dead_id, 7, reason, "boom", 3, 2, dead_at - 10, dead_at)
    row = pack_row("id-1", payload, list((headers or {}).items()))
    return DeadLetter(facts, 1, queue, "default", dead_at - 20, priority, row)


@pytest.mark.parametrize(
    ("arguments", "fits"),
    [
        ({}, True),
        ({"queue": "q"}, True),
        ({"queue": "other"}, False),
        ({"reason": "rejected"}, True),
        ({"reason": "expired"}, False),
        ({"older_than_ms": 500}, True),
        ({"older_than_ms": 5000}, False),
        ({"newer_than_ms": 5000}, True),
        ({"newer_than_ms": 500}, False),
        ({"ids": [1, 2]}, True),
        ({"ids": []}, False),
        ({"message_id": "id-1"}, True),
        ({"message_id": "id-2"}, False),
        ({"header": {"tenant": "a"}}, True),
        ({"header": {"tenant": "a", "missing": "x"}}, False),
    ],
)
def test_filters(arguments: dict[str, Any], fits: bool) -> None:
    chosen = LetterFilter(read(LetterFilters, "dlq.list", arguments), NOW)
    found = letter(headers={"tenant": "a"})
    assert (chosen.fits(found.facts, found.queue) and chosen.row_fits(found)) is fits


@pytest.mark.parametrize(
    "arguments",
    [{"queue": 1}, {"reason": "nonsense"}, {"ids": ["1"]}, {"ids": 1}, {"header": ["a"]}, {"older_than_ms": -1}],
)
def test_filters_that_mean_nothing_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises((InvalidPayload, InvalidOptions)):
        LetterFilter(read(LetterFilters, "dlq.list", arguments), NOW)


def test_a_replayed_row_says_where_it_comes_from_and_forgets_its_dedup_id() -> None:
    old = letter(9, headers={"tenant": "a", "vibemq-dedup-id": "d", "vibemq-replay-count": "2"}, payload=b"\xff")
    view = RowView(replay_row(old))
    assert (view.message_id, view.payload) == ("id-1", b"\xff")
    assert view.headers == {"tenant": "a", "vibemq-replay-of": "9", "vibemq-replay-count": "3"}


def test_a_replay_count_that_is_no_number_begins_anew() -> None:
    assert RowView(replay_row(letter(headers={"vibemq-replay-count": "many"}))).headers["vibemq-replay-count"] == "1"


def test_priority_survives_a_replay() -> None:
    extra = replay_extra(letter(priority=3))
    assert extra is not None
    assert (extra.priority, extra.dedup_id, extra.expires_at) == (3, b"", 0)
    assert replay_extra(letter()) is None


def test_letters_are_json_with_or_without_payload() -> None:
    shown = letter_json(letter(payload=b"\xff\xfe"), with_payload=True)
    assert (shown["reason"], shown["attempts"], shown["failed"], shown["error"]) == ("rejected", 3, 2, "boom")
    assert shown["payload_base64"] == "//4="
    assert "payload" not in letter_json(letter(), with_payload=False)


@pytest.mark.parametrize(
    ("text", "priority"),
    [
        ("High", 2),
        ("7", 7),
        ("99", 31),
        ("1" * 60_000, 31),
        ("0" * 5_000, 0),
        ("0" * 30 + "7", 7),
        ("urgent", 0),
        ("", 1),
    ],
)
def test_a_peeked_message_shows_the_priority_of_its_header(text: str, priority: int) -> None:
    row = pack_row("m", b"1", [("priority", text)])
    assert message_json(row, sequence=1, published_at=2)["priority"] == priority


@pytest.mark.parametrize(("asked", "limit"), [(None, 100), (1, 1), (5, 5), (10**9, 1000)])
def test_limits_are_bounded(asked: int | None, limit: int) -> None:
    assert page_size(asked, 100) == limit
