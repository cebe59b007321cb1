"""Options, declarations, errors and the handshake: what needs no loop."""

from datetime import timedelta

import pytest

from vibemq.client.address import ClientSettings
from vibemq.client.failures import error_of
from vibemq.client.protocol import ClientProtocol
from vibemq.client.publishing.outgoing import Outgoing, extra_of
from vibemq.client.queues import differences, option_values, queue_info
from vibemq.client.receiving.options import SubscribeOptions
from vibemq.client.receiving.prefetch import Prefetch
from vibemq.client.settlements import delay_ms, limit_ms
from vibemq.errors import (
    AuthFailed,
    ErrorCode,
    InvalidOptions,
    LocalProtocolError,
    QueueFull,
    RemoteProtocolError,
    ServerError,
    VibeMQError,
)
from vibemq.model.options import DeliveryMode, LostConnection, Overflow, QueueOptions, Retention
from vibemq.model.quantities import duration_ms
from vibemq.protocols.native.codec.frames import NativeFrameReader
from vibemq.protocols.native.codec.wire import CommandType, WireMessage, decode_body

LOCAL_ONLY = {"STORAGE_LOCKED", "STORE_VERSION", "RESTORE_UNFINISHED", "UNREACHABLE", "SERVER_ERROR"}
"""Codes that no broker that is running sends, and the one for everything else."""


def test_options_in_seconds_and_words() -> None:
    assert option_values({"ack_timeout": 1.5, "retain": timedelta(days=1), "mode": "fan-out-with-ack"}) == {
        "ack_timeout_ms": 1_500,
        "retain_ms": 86_400_000,
        "mode": 1,
    }
    assert option_values({"mode": "broadcast"}) == {
        "mode": DeliveryMode.FAN_OUT_WITH_ACK,
        "retention": Retention.LOG,
        "lost_connection": LostConnection.RELEASE,
    }
    assert option_values({"message_ttl": None, "ack_timeout_ms": 3}) == {"message_ttl_ms": None, "ack_timeout_ms": 3}


@pytest.mark.parametrize(
    "options",
    [{"colour": 1}, {"ack_timeout": "soon"}, {"ack_timeout": 1, "ack_timeout_ms": 1}, {"mode": "x"}, {"max_bytes": -1}],
)
def test_impossible_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidOptions):
        option_values(options)


@pytest.mark.parametrize(
    ("existing", "declared", "severity"),
    [
        (QueueOptions(), {"mode": 1}, "hard"),
        (QueueOptions(), {"max_messages": 5}, "info"),
        (QueueOptions(), {"message_ttl_ms": 5}, "soft"),
        (QueueOptions(message_ttl_ms=5), {"message_ttl_ms": 4}, "soft"),
        (QueueOptions(message_ttl_ms=5), {"message_ttl_ms": 6}, "soft"),
        (QueueOptions(message_ttl_ms=5), {"message_ttl_ms": None}, "soft"),
        (QueueOptions(), {"dead_letter": False}, "soft"),
        (QueueOptions(dead_letter=False), {"dead_letter": True}, "soft"),
        (QueueOptions(), {"dead_letter_name": "d"}, "hard"),
        (QueueOptions(dead_letter=False), {"dead_letter_name": "d", "dead_letter": False}, "info"),
        (QueueOptions(), {"overflow": 3}, "info"),
        (QueueOptions(dead_letter=False), {"overflow": 3}, "hard"),
        (QueueOptions(overflow=Overflow.REDIRECT_TO_DLQ), {"overflow": 0}, "info"),
        (QueueOptions(), {"durability": 1}, "soft"),
        (QueueOptions(durability=1), {"durability": 3}, "soft"),
        (QueueOptions(), {"retention": 1}, "hard"),
    ],
)
def test_severities(existing: QueueOptions, declared: dict[str, object], severity: str) -> None:
    found = {difference.option: difference.severity for difference in differences(existing, declared)}
    assert found[next(iter(declared))] == severity


def test_equal_options_do_not_differ() -> None:
    assert differences(QueueOptions(max_attempts=5), {"max_attempts": 5}) == []


def test_a_description_that_is_none() -> None:
    with pytest.raises(RemoteProtocolError):
        queue_info([])


@pytest.mark.parametrize("code", [code for code in ErrorCode if code.value not in LOCAL_ONLY])
def test_every_code_of_the_wire_has_a_class(code: ErrorCode) -> None:
    error = error_of(code.value, "the sentence", "q")
    assert type(error) not in (ServerError, VibeMQError)
    assert str(error) == "the sentence"
    assert error.code == code


def test_errors_keep_the_queue_and_the_unknown_code() -> None:
    full = error_of("QUEUE_FULL", "no room", "q")
    assert isinstance(full, QueueFull)
    assert full.queue == "q"
    unknown = error_of("SOMETHING_NEW", "well")
    assert isinstance(unknown, ServerError)
    assert unknown.wire_code == "SOMETHING_NEW"


def frame_of(data: bytes) -> WireMessage:
    reader = NativeFrameReader()
    reader.receive_data(data)
    return decode_body(reader.bodies()[0])


def test_the_handshake_asks_for_what_is_needed() -> None:
    settings = ClientSettings(username="u", password="p", compression=("gzip",), name="app")
    frame = frame_of(ClientProtocol(settings).connect("1"))
    assert frame.type == CommandType.CONNECT
    assert frame.headers.items() >= {"authUsername": "u", "authPassword": "p", "supported-compression": "gzip"}.items()
    assert "batch/1" in frame.headers["supported-extensions"]
    plain = frame_of(ClientProtocol(ClientSettings()).connect("1"))
    assert "authUsername" not in plain.headers
    assert "supported-compression" not in plain.headers


def test_answers_to_the_handshake() -> None:
    protocol = ClientProtocol(ClientSettings(compression=("gzip",)))
    with pytest.raises(AuthFailed):
        protocol.accept(WireMessage(CommandType.ERROR, "x", error_code="AUTH_FAILED", error_message="no"))
    with pytest.raises(RemoteProtocolError, match="batch/1"):
        protocol.accept(WireMessage(CommandType.CONNECT_ACK, "x"))
    with pytest.raises(RemoteProtocolError, match="type 11"):
        protocol.accept(WireMessage(CommandType.PONG, "x"))
    granted = {"negotiated-extensions": "batch/1, admin/1", "negotiated-compression": "gzip"}
    protocol.accept(WireMessage(CommandType.CONNECT_ACK, "x", headers=granted))
    assert protocol.extensions == {"batch/1", "admin/1"}
    assert protocol.request(CommandType.PUBLISH, "x", "q", b'"' + b"a" * 5_000 + b'"')[4] == 1


def test_subscribe_headers() -> None:
    options = SubscribeOptions(queue="q", group="g", prefetch=7, credit=3, priority=2, ack_timeout=1.5, start=9)
    assert options.headers(Prefetch(7)) == {
        "group": "g",
        "prefetch": "7",
        "credit": "3",
        "consumer-priority": "2",
        "ack-timeout-ms": "1500",
        "start": "sequence:9",
    }
    assert SubscribeOptions(queue="q", auto_extend=True).headers(Prefetch())["ack-timeout-ms"] == "30000"
    shared = SubscribeOptions(queue="q", share="worker").headers(Prefetch(0, 9))
    assert shared == {"prefetch": "0", "prefetch-bytes": "9", "share": "worker", "start": "default"}


@pytest.mark.parametrize("share", ["", "s" * 257])
def test_a_share_has_a_name(share: str) -> None:
    with pytest.raises(LocalProtocolError, match="share is"):
        SubscribeOptions(queue="q", share=share)


def test_a_timeout_of_0_is_no_limit_and_a_short_one_stays_a_limit() -> None:
    assert SubscribeOptions(queue="q", ack_timeout=0).headers(Prefetch())["ack-timeout-ms"] == "0"
    assert SubscribeOptions(queue="q", ack_timeout=0.0001).headers(Prefetch())["ack-timeout-ms"] == "1"
    assert SubscribeOptions(queue="q", ack_timeout=0, auto_extend=True).headers(Prefetch())["ack-timeout-ms"] == "30000"


def test_a_message_has_no_ttl_of_0() -> None:
    with pytest.raises(LocalProtocolError, match="ttl is nan s; it must be more than 0, or left out for no limit"):
        extra_of(Outgoing(1, ttl=float("nan")))
    with pytest.raises(LocalProtocolError, match="ttl is 0 s; it must be more than 0, or left out for no limit"):
        extra_of(Outgoing("x", ttl=0))
    assert extra_of(Outgoing("x", ttl=0.0001)) == {"ttl_ms": 1}
    assert extra_of(Outgoing("x", delay=0)) == {"delay_ms": 0}


@pytest.mark.parametrize(("ms", "whole"), [(0, 0), (0.4, 1), (0.6, 1), (1.4, 1), (2.6, 3), (1_000.4, 1_000)])
def test_durations_are_rounded_by_one_rule_whoever_reads_them(ms: float, whole: int) -> None:
    seconds = ms / 1000
    assert duration_ms(f"{ms}ms") == whole
    assert extra_of(Outgoing("x", delay=seconds)) == {"delay_ms": whole}
    assert extra_of(Outgoing("x", delay=timedelta(seconds=seconds))) == {"delay_ms": whole}
    assert limit_ms(seconds, "ack_timeout") == delay_ms(seconds, "delay") == whole
    assert option_values({"ack_timeout": seconds}) == {"ack_timeout_ms": whole}
    if ms:
        assert extra_of(Outgoing("x", ttl=seconds)) == {"ttl_ms": whole}


@pytest.mark.parametrize("wrong", [{"prefetch": 0}, {"ack_timeout": -1.0}, {"start": "end"}])
def test_impossible_subscriptions_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(LocalProtocolError):
        SubscribeOptions(queue="q", **wrong)  # type: ignore[arg-type]
