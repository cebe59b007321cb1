"""CreateQueue and QueueInfo: .NET's options, the seed's, and ours."""

import orjson
import pytest

from vibemq.errors import InvalidOptions
from vibemq.model.options import UNLIMITED_ATTEMPTS, DeliveryMode, Durability, Overflow, QueueOptions
from vibemq.model.quantities import NUMBER_MAX
from vibemq.model.shared.queue_info import QueueInfo
from vibemq.protocols.native.codec.options import options_of, queue_info_json
from vibemq.protocols.native.codec.timespan import format_timespan, parse_timespan

BROKER = QueueOptions(durability=Durability.WEAK, ack_timeout_ms=5_000)


def read(payload: object = None, headers: dict[str, str] | None = None) -> QueueOptions | None:
    return options_of(None if payload is None else orjson.dumps(payload), headers or {}, BROKER)


def info(options: QueueOptions) -> dict[str, object]:
    described = QueueInfo("orders", 1, "ab", options, 1_771_408_800_123, 42, 1, 0, 0, 3, 0, 1, 43, 0)
    return orjson.loads(queue_info_json(described))


def test_no_options_mean_the_brokers_defaults() -> None:
    assert read() is None
    assert options_of(b"null", {}, BROKER) is None
    assert read(None, {"priority": "high"}) is None


def test_an_empty_object_means_dotnets_defaults_on_the_brokers_own() -> None:
    options = read({})
    assert options is not None
    assert (options.mode, options.max_messages, options.overflow) == (
        DeliveryMode.ROUND_ROBIN,
        10_000,
        Overflow.DROP_OLDEST,
    )
    assert (options.dead_letter, options.dead_letter_name, options.message_ttl_ms, options.max_attempts) == (
        False,
        None,
        None,
        3,
    )
    assert (options.durability, options.ack_timeout_ms) == (Durability.WEAK, 5_000)


def test_the_dotnet_payload() -> None:
    options = read(
        {
            "mode": 1,
            "maxQueueSize": 5000,
            "messageTtl": "1.00:00:00",
            "enableDeadLetterQueue": True,
            "deadLetterQueueName": "my-dlq",
            "overflowStrategy": 3,
            "maxRetryAttempts": 5,
            "someFutureOption": 1,
        }
    )
    assert options == BROKER.with_changes(
        mode=DeliveryMode.FAN_OUT_WITH_ACK,
        max_messages=5_000,
        message_ttl_ms=86_400_000,
        dead_letter=True,
        dead_letter_name="my-dlq",
        overflow=Overflow.REDIRECT_TO_DLQ,
        max_attempts=5,
    )


def test_the_seeds_headers() -> None:
    options = read(None, {"DeliveryMode": "fanoutwithoutack", "maxQueueSize": "10000", "messageTtl": "3600000"})
    assert options is not None
    assert (options.mode, options.max_messages, options.message_ttl_ms) == (
        DeliveryMode.FAN_OUT_WITHOUT_ACK,
        10_000,
        3_600_000,
    )
    assert options.dead_letter is False


def test_names_are_as_good_as_numbers_and_the_payload_wins() -> None:
    options = read({"mode": "PriorityBased", "overflowStrategy": "DropNewest"}, {"mode": "RoundRobin"})
    assert options is not None
    assert (options.mode, options.overflow) == (DeliveryMode.PRIORITY_BASED, Overflow.DROP_NEWEST)


@pytest.mark.parametrize(
    "payload",
    [
        5,
        [],
        "text",
        {"mode": 9},
        {"mode": "Sideways"},
        {"mode": 1.5},
        {"maxQueueSize": -1},
        {"maxQueueSize": "many"},
        {"maxQueueSize": True},
        {"messageTtl": "soon"},
        {"messageTtl": "-00:00:01"},
        {"enableDeadLetterQueue": "perhaps"},
        {"enableDeadLetterQueue": 1},
        {"deadLetterQueueName": 5},
        {"overflowStrategy": 3},
        {"maxRetryAttempts": 1.5},
    ],
)
def test_bad_options_are_refused_with_a_sentence(payload: object) -> None:
    with pytest.raises(InvalidOptions) as refusal:
        read(payload)
    assert len(str(refusal.value)) > 15


def test_queue_info_has_integers_for_enums_and_leaves_absent_members_out() -> None:
    assert info(QueueOptions(dead_letter=False)) == {
        "name": "orders",
        "messageCount": 42,
        "subscriberCount": 3,
        "deliveryMode": 0,
        "maxSize": 0,
        "createdAt": "2026-02-18T10:00:00.123Z",
        "enableDeadLetterQueue": False,
        "overflowStrategy": 1,
        "maxRetryAttempts": 3,
    }


def test_queue_info_echoes_what_create_queue_gave() -> None:
    given = {
        "maxSize": 77,
        "messageTtl": "00:00:01.5000000",
        "enableDeadLetterQueue": True,
        "deadLetterQueueName": "d",
        "overflowStrategy": 3,
        "maxRetryAttempts": 9,
    }
    payload = dict(given, mode=2, maxQueueSize=77)
    options = read(payload)
    assert options is not None
    echoed = info(options)
    assert {key: echoed[key] for key in given} == given
    assert echoed["deliveryMode"] == 2


@pytest.mark.parametrize(
    ("text", "span_ms"),
    [
        ("00:00:00", 0),
        ("00:00:01", 1_000),
        ("00:00:00.0010000", 1),
        ("23:59:59.9990000", 86_399_999),
        ("1.00:00:00", 86_400_000),
        ("10675199.02:48:05.4770000", 922_337_203_685_477),
    ],
)
def test_time_spans_round_trip(text: str, span_ms: int) -> None:
    assert parse_timespan(text) == span_ms
    assert format_timespan(span_ms) == text


def test_what_dotnet_cannot_hold_is_told_as_the_most_that_it_can() -> None:
    endless = QueueOptions(max_messages=NUMBER_MAX, max_attempts=UNLIMITED_ATTEMPTS, message_ttl_ms=NUMBER_MAX)
    told = info(endless)
    assert (told["maxSize"], told["maxRetryAttempts"]) == (2**31 - 1, 2**31 - 1)
    assert told["messageTtl"] == "10675199.02:48:05.4770000"


def test_ticks_below_a_millisecond_are_cut_so_that_the_echo_is_never_more_than_declared() -> None:
    assert parse_timespan("00:00:01.0019999") == 1_001
    assert parse_timespan("00:00:00.0000001") == 1, "zero would mean no limit"
    assert parse_timespan("1:02:03.5") == 3_723_500


@pytest.mark.parametrize(
    "text", ["", "5", "24:00:00", "00:60:00", "00:00:60", "00:00", "1:2:3", "00:00:00.12345678", "٠٠:٠٠:٠٠"]
)
def test_other_texts_are_no_time_spans(text: str) -> None:
    with pytest.raises(ValueError, match="time span"):
        parse_timespan(text)
