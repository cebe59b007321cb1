"""Options: what is read, what is refused, and whether the reference says the same."""

import re
from dataclasses import fields

import pytest

from tests.docs.pages import DOCS
from vibemq.spark.errors import OptionError
from vibemq.spark.options import BATCH, FIELDS, NAMES, STREAM, WRITE, SourceOptions, parse
from vibemq.spark.values import Endpoint, NewCheckpoint, Start, duration_ms, endpoints, instant_ms, size_bytes

AT = {"endpoint": "localhost"}
READ = {**AT, "queue": "orders"}
STREAMED = {**READ, "group": "etl"}


def test_defaults_are_those_of_the_reference() -> None:
    settings = parse(STREAMED, STREAM)
    assert settings.endpoint == (Endpoint("localhost", 2925, False),)
    assert (settings.max_messages_per_trigger, settings.max_bytes_per_trigger) == (100_000, 256 << 20)
    assert (settings.retry_timeout_ms, settings.poll_timeout_ms, settings.ack_on) == (120_000, 250, "auto")
    assert settings.starting_offsets == Start("group")
    assert settings.fail_on_data_loss
    assert settings.new_checkpoint == NewCheckpoint("refuse")


def test_a_new_checkpoint_is_decided_for_a_loss_of_one() -> None:
    found = parse({**STREAMED, "newCheckpoint": " Replay:0123456789abcdef"}, STREAM).new_checkpoint
    assert (found, str(found)) == (NewCheckpoint("replay", "0123456789abcdef"), "replay:0123456789abcdef")
    assert str(parse({**STREAMED, "newCheckpoint": "continue"}, STREAM).new_checkpoint) == "continue"
    for wrong in ("refuse:0123456789abcdef", "replay:", "replay:0123", "replay:0123456789abcdefg", "again", ""):
        with pytest.raises(OptionError, match=r"newCheckpoint is .* it must be refuse, continue or replay"):
            parse({**STREAMED, "newCheckpoint": wrong}, STREAM)


def test_the_reference_lists_exactly_these_options() -> None:
    text = (DOCS / "reference" / "spark.md").read_text(encoding="utf-8")
    tables = text.split("## Options")[1].split("## Columns of a queue")[0]
    listed = re.findall(r"^\| `([\w.]+)` \| ", tables, re.MULTILINE)
    assert sorted(listed) == sorted(NAMES)


def test_names_are_read_in_any_case() -> None:
    assert parse({**STREAMED, "MAXMESSAGESPERTRIGGER": "7"}, STREAM).max_messages_per_trigger == 7
    assert parse({key.lower(): value for key, value in STREAMED.items()}, STREAM).group == "etl"


def test_no_two_options_differ_in_case_only() -> None:
    assert len(FIELDS) == len(fields(SourceOptions))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("maxMessagePerTrigger", "did you mean 'maxMessagesPerTrigger'?"),
        ("que", "did you mean 'queue'?"),
        ("startingOffset", "did you mean 'startingOffsets'?"),
        ("password", "passwordFile"),
        ("token", "tokenFile"),
        ("path", "queue"),
        ("subscribe", "queuePattern"),
        ("zzzzzzzz", "known are endpoint,"),
    ],
)
def test_an_unknown_option_is_refused_with_a_hint(name: str, hint: str) -> None:
    with pytest.raises(OptionError, match=f"unknown option '{name}'.*{re.escape(hint)}"):
        parse({**READ, name: "1"})


@pytest.mark.parametrize("name", ["checkpointLocation", "queryName", "asyncProgressTrackingEnabled"])
def test_options_that_spark_hands_on_are_let_through(name: str) -> None:
    assert parse({**READ, name: "x"}, WRITE).queue == "orders"


@pytest.mark.parametrize(
    ("use", "name", "value"),
    [
        (BATCH, "maxMessagesPerTrigger", "1"),
        (BATCH, "exactlyOnce", "true"),
        (STREAM, "endingOffsets", "latest"),
        (STREAM, "deadLetters", "true"),
        (WRITE, "startingOffsets", "latest"),
    ],
)
def test_an_option_of_another_use_is_refused(use: str, name: str, value: str) -> None:
    with pytest.raises(OptionError, match=f"option '{name}' belongs to .*; this is {use}"):
        parse({**STREAMED, name: value}, use)


@pytest.mark.parametrize(
    ("options", "use", "sentence"),
    [
        ({"queue": "q"}, BATCH, "option endpoint is missing"),
        (AT, BATCH, "exactly one of queue, queues and queuePattern"),
        ({**READ, "queues": "a,b"}, BATCH, "exactly one of queue"),
        (READ, STREAM, "needs the option group"),
        ({**READ, "startingOffsets": "latest", "startingTimestamp": "5"}, BATCH, "not both"),
        ({**READ, "endingOffsets": "latest", "endingTimestamp": "5"}, BATCH, "not both"),
        ({**READ, "deadLetters": "true", "group": "etl"}, BATCH, "does not go with deadLetters"),
        ({**READ, "deadLetters": "true", "startingOffsets": "earliest"}, BATCH, "startingOffsets does not go with"),
        ({**READ, "deadLetters": "true", "endingOffsets": "latest"}, BATCH, "endingOffsets does not go with"),
        ({**STREAMED, "minMessagesPerTrigger": "5", "maxMessagesPerTrigger": "4"}, STREAM, "is above"),
        (
            {**STREAMED, "startingOffsets": '{"order": 5}'},
            STREAM,
            "startingOffsets names order; what is read is orders",
        ),
        (
            {**AT, "group": "etl", "queuePattern": "order-*", "startingOffsets": '{"orders-eu": 5, "order-us": 1}'},
            STREAM,
            r"startingOffsets names orders-eu, which queuePattern=order-\* does not read",
        ),
        ({**READ, "minPartitions": "5", "maxPartitions": "4"}, BATCH, "is above"),
        ({**STREAMED, "pollTimeout": "31s"}, STREAM, "at most 30s"),
        ({**READ, "username": "u"}, WRITE, "username needs passwordFile"),
        ({**READ, "passwordFile": "f"}, WRITE, "username needs passwordFile"),
        ({**READ, "username": "u", "passwordFile": "f", "tokenEnv": "T"}, WRITE, "give one of"),
        ({**READ, "tls.key": "f"}, WRITE, "tls.certificate needs tls.key"),
        ({**READ, "txnAppId": "a", "exactlyOnce": "true"}, WRITE, "together or not at all"),
        ({**READ, "txnAppId": "a", "txnVersion": "1"}, WRITE, "belong to exactlyOnce"),
        ({**READ, "txnAppId": "a" * 181, "txnVersion": "1", "exactlyOnce": "true"}, WRITE, "at most 180 bytes"),
        ({**READ, "atomic": "true", "exactlyOnce": "true"}, WRITE, "not both"),
        ({**READ, "atomic": "true", "action": "redrive"}, WRITE, "atomic does not go with action=redrive"),
        ({**READ, "action": "reject"}, WRITE, "needs the option group"),
        ({**READ, "group": "g"}, WRITE, "needs the option group"),
        ({**READ, "to": "q"}, WRITE, "belongs to action=redrive"),
        ({**READ, "failOnDataLoss": "false"}, WRITE, "belongs to reads and to action=reject"),
        ({**READ, "action": "redrive", "dedup": "true"}, WRITE, "does not go with action=redrive"),
        ({**READ, "fetchBytes": "10"}, BATCH, "fetchBytes must be 1024 or more"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, str], use: str, sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        parse(options, use)


@pytest.mark.parametrize(
    "endpoint",
    [
        "ann:s3cret@broker:2925",
        "vibemq://ann:s3/cr,et@broker",
        "a:s3cret@x,b:s3cret@broker",
        "s3cret@broker",
        "vibemq://ann:s3@broker?token=s3cret",
        "vibemq://broker?token=s3cret",
        "host=broker;username=ann;password=s3cret",
        "password=s3cret;host=broker",
    ],
)
def test_credentials_in_an_endpoint_are_not_printed(endpoint: str) -> None:
    with pytest.raises(
        OptionError, match=r"option endpoint is '.*'; .* without credentials.*use passwordFile"
    ) as caught:
        parse({"endpoint": endpoint, "queue": "q"}, BATCH)
    assert "s3" not in str(caught.value)
    assert "@" not in endpoint or "'…@broker" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("ackOn", "later", "one of auto, commit, never"),
        ("maxMessagesPerTrigger", "-1", "a whole number, 0 or more"),
        ("maxPartitions", "0", "a whole number, 1 to 100000"),
        ("pollTimeout", "fast", "a duration with its unit, such as 250ms"),
        ("fetchBytes", "big", "a size, such as"),
        ("failOnDataLoss", "maybe", "true or false"),
        ("startingOffsets", "first", "group, earliest, latest, or JSON"),
        ("startingOffsets", '{"orders": 0}', "neither a sequence, from 1, nor a word"),
        ("startingOffsets", '{"orders": true}', "neither a sequence, from 1, nor a word"),
        ("startingTimestamp", "2026-01-01", "ISO 8601 with a zone"),
        ("startingTimestamp", "1969-12-31T23:59:59Z", "ISO 8601 with a zone such as 2026-01-31T10:00:00Z, not before"),
        ("startingTimestamp", "\u00b2", "ms since 1970"),
        ("startingTimestamp", "9" * 5000, "ms since 1970"),
        ("endpoint", "http://localhost", "begins with vibemq:// or vibemqs://"),
        ("endpoint", "vibemq://user:secret@localhost", "without credentials"),
        ("endpoint", "localhost:99999", "host:port"),
        ("queue", " ", "not empty"),
    ],
)
def test_a_value_that_cannot_be_read_is_refused_with_what_it_should_be(name: str, value: str, sentence: str) -> None:
    with pytest.raises(OptionError, match=f"option {name} is .*{re.escape(sentence)}"):
        parse({**STREAMED, name: value}, STREAM)


@pytest.mark.parametrize(
    ("text", "ms"), [("250ms", 250), ("30s", 30_000), ("15m", 900_000), ("2h", 7_200_000), ("1d", 86_400_000), ("0", 0)]
)
def test_durations(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["-1s", "nan", "inf", "nans", "9" * 400 + "s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"option pollTimeout is .* a duration with its unit"):
        parse({**STREAMED, "pollTimeout": text}, STREAM)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1048576", 1 << 20), ("256k", 1 << 18), ("16m", 1 << 24), ("1g", 1 << 30), ("2 MiB", 2 << 20), ("10MB", 10**7)],
)
def test_sizes(text: str, size: int) -> None:
    assert size_bytes(text) == size


def test_instants() -> None:
    assert instant_ms("1767225600000") == instant_ms("2026-01-01T00:00:00Z") == 1_767_225_600_000
    assert instant_ms("2026-01-01T01:00:00+01:00") == 1_767_225_600_000
    assert instant_ms("2025-12-31t23:59:60z") == 1_767_225_600_000


def test_endpoints() -> None:
    assert endpoints("a, b:1") == (Endpoint("a", 2925, False), Endpoint("b", 1, False))
    assert endpoints("vibemqs://a:1,b") == (Endpoint("a", 1, True), Endpoint("b", 2925, True))
    assert endpoints("vibemq://[::1]:7/") == (Endpoint("::1", 7, False),)


def test_starting_offsets_as_json_and_as_copied_from_a_progress_report() -> None:
    plain = parse({**READ, "startingOffsets": '{"orders": 12, "more": "latest"}'}).starting_offsets
    assert (plain.of("orders"), plain.of("more"), plain.of("other")) == (12, "latest", None)
    copied = parse({**READ, "startingOffsets": '{"q":{"orders":{"i":"x","s":12}},"v":1}'}, BATCH)
    assert copied.starting_offsets.of("orders") == 12
