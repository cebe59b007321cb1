"""Queue options: what is refused says which option, why and what would do."""

import pytest

from vibemq.errors import InvalidOptions, InvalidQueueName
from vibemq.model.options import (
    DeliveryMode,
    Durability,
    LostConnection,
    Overflow,
    QueueOptions,
    Retention,
    check_queue_name,
    option_text,
    options_from_dict,
    options_in_words,
    options_to_dict,
)


def test_options_survive_their_stored_form() -> None:
    options = QueueOptions(
        mode=DeliveryMode.PRIORITY_BASED, durability=Durability.WEAK, message_ttl_ms=5, dead_letter_name="d"
    )
    assert options_from_dict(options_to_dict(options)) == options


@pytest.mark.parametrize("text", ["fan-out-with-ack", "FanOutWithAck", "FAN_OUT_WITH_ACK", 1])
def test_enums_are_read_by_number_or_name_in_any_spelling(text: object) -> None:
    assert options_from_dict({"mode": text}).mode is DeliveryMode.FAN_OUT_WITH_ACK


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"colour": 1}, "colour"),
        ({"mode": "circle"}, "mode"),
        ({"mode": 9}, "mode"),
        ({"max_attempts": "3"}, "max_attempts"),
        ({"max_attempts": True}, "max_attempts"),
        ({"max_messages": -1}, "max_messages"),
        ({"dead_letter": 1}, "dead_letter"),
        ({"dead_letter_name": 1}, "dead_letter_name"),
        ({"overflow": "redirect-to-dlq", "dead_letter": False}, "redirect-to-dlq needs"),
    ],
)
def test_a_wrong_option_is_named(values: dict[str, object], word: str) -> None:
    with pytest.raises(InvalidOptions, match=word):
        options_from_dict(values)


def test_a_base_keeps_what_is_not_mentioned() -> None:
    base = QueueOptions(overflow=Overflow.DROP_OLDEST, max_messages=10)
    assert options_from_dict({"max_messages": 5}, base) == base.with_changes(max_messages=5)


def test_no_attempt_at_all_means_one() -> None:
    assert QueueOptions(max_attempts=0).max_attempts == 1


@pytest.mark.parametrize("name", ["orders", "заказы", "a-b_c.d", "x" * 256, "1"])
def test_good_names(name: str) -> None:
    assert check_queue_name(name) == name


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 257, "a\0", "😀", "𝒜"])
def test_bad_names(name: str) -> None:
    with pytest.raises(InvalidQueueName):
        check_queue_name(name)


@pytest.mark.parametrize("text", ["broadcast", "Broadcast", "BROADCAST"])
def test_broadcast_is_a_fan_out_over_a_log(text: str) -> None:
    options = options_from_dict({"mode": text, "retention": "log", "retain_bytes": 5})
    assert options == QueueOptions(
        mode=DeliveryMode.FAN_OUT_WITH_ACK,
        retention=Retention.LOG,
        lost_connection=LostConnection.RELEASE,
        retain_bytes=5,
    )
    assert options_from_dict({"mode": text, "retain_bytes": 5}) == options
    strict = options_from_dict({"mode": text, "lost_connection": "fail"})
    assert strict.lost_connection is LostConnection.FAIL


def test_broadcast_without_a_log_is_refused() -> None:
    with pytest.raises(InvalidOptions, match="broadcast means retention log"):
        options_from_dict({"mode": "broadcast", "retention": "settled"})


def test_numbers_fit_into_the_store() -> None:
    assert QueueOptions(retry_base_ms=2**63 - 1).retry_base_ms == 2**63 - 1
    with pytest.raises(InvalidOptions, match=f"retry_base_ms is {2**63}; it must be {2**63 - 1} or less"):
        QueueOptions(retry_base_ms=2**63)


def test_choices_have_names_in_words_and_what_is_unknown_stays() -> None:
    told = options_to_dict(QueueOptions(durability=Durability.WEAK, overflow=Overflow.DROP_OLDEST))
    words = options_in_words({**told, "from_the_future": 7})
    assert (words["durability"], words["overflow"], words["max_attempts"]) == ("weak", "drop_oldest", 3)
    assert words["from_the_future"] == 7
    as_sent = {"mode": "Fan-Out-With-Ack", "durability": 9, "overflow": None, "retention": True, "lost_connection": []}
    assert options_in_words(as_sent) == as_sent


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("mode", 1, "fan_out_with_ack"),
        ("mode", DeliveryMode.ROUND_ROBIN, "round_robin"),
        ("message_ttl_ms", None, "null"),
        ("dead_letter", False, "false"),
        ("max_attempts", 3, "3"),
        ("dead_letter_name", "none", "'none'"),
    ],
)
def test_a_value_in_a_sentence(name: str, value: object, text: str) -> None:
    assert option_text(name, value) == text
