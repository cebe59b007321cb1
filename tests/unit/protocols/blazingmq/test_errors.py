"""Every error has its words on this wire."""

import pytest

from vibemq.errors import ErrorCode, NotAuthorized, QueueFull, QueueNotFound, StorageFull
from vibemq.protocols.blazingmq.codec.acks import AckStatus
from vibemq.protocols.blazingmq.codec.messages import StatusCategory
from vibemq.protocols.blazingmq.errors import (
    WIRE_CODES,
    UnknownHere,
    WrongRequest,
    ack_code_of,
    category_of,
    status_text,
)


def test_the_table_is_total_and_never_says_what_an_sdk_does_not_survive() -> None:
    assert set(WIRE_CODES) == set(ErrorCode)
    forbidden = {StatusCategory.E_SUCCESS, StatusCategory.E_CANCELED, StatusCategory.E_NOT_CONNECTED}
    assert not forbidden & {category for category, _ in WIRE_CODES.values()}
    assert {code for _, code in WIRE_CODES.values()} <= {int(status) for status in AckStatus} - {0}


@pytest.mark.parametrize(
    ("error", "category", "code"),
    [
        (QueueFull("q", "max_messages 1", "messages"), StatusCategory.E_REFUSED, 1),
        (QueueFull("q", "max_bytes 1", "bytes"), StatusCategory.E_REFUSED, 2),
        (QueueNotFound("q"), StatusCategory.E_UNKNOWN, 5),
        (NotAuthorized("no"), StatusCategory.E_REFUSED, 5),
        (StorageFull("full"), StatusCategory.E_NOT_READY, 6),
        (UnknownHere("no such domain"), StatusCategory.E_UNKNOWN, 5),
        (WrongRequest("no"), StatusCategory.E_INVALID_ARGUMENT, 5),
    ],
)
def test_errors_become_categories_and_codes(error, category: StatusCategory, code: int) -> None:
    assert category_of(error) is category
    assert ack_code_of(error) == code


def test_a_status_has_one_line() -> None:
    text = status_text(WrongRequest("a\nb\0c" + "x" * 5_000))
    assert text.startswith("a b c")
    assert len(text) <= 1024
