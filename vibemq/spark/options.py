"""The options: one table, `SourceOptions`. docs/reference/spark.md explains them; a test compares both."""

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any

from vibemq.spark.errors import OptionError
from vibemq.spark.values import (
    Endpoint,
    NewCheckpoint,
    Start,
    boolean,
    duration_ms,
    endpoints,
    instant_ms,
    names,
    new_checkpoint,
    one_of,
    size_bytes,
    start,
    text,
    whole,
)

BATCH, STREAM, WRITE = "a batch read", "a streaming read", "a write"
READS = (BATCH, STREAM)
ALL = (*READS, WRITE)

TXN_APP_ID_BYTES_MAX = 180
"""The name of its write has a digest of the queue, and the name of a register, beside it."""

SPARKS_OWN = frozenset(
    (
        "checkpointlocation",
        "queryname",
        "asyncprogresstrackingenabled",
        "asyncprogresstrackingcheckpointintervalms",
        "asyncprogresstrackingoverridesinksupportcheck",
    )
)
"""Spark hands these to sources and sinks too."""

_HINTS = {
    "path": 'load() and save() take no path: name the queue with .option("queue", …)',
    "password": "an option is part of the plan, which Spark logs; use passwordFile or passwordEnv",
    "token": "an option is part of the plan, which Spark logs; use tokenFile or tokenEnv",
    "topic": "use queue",
    "subscribe": "use queue, queues or queuePattern",
    "subscribepattern": "use queuePattern",
    "kafka.group.id": "use group",
    "maxoffsetspertrigger": "use maxMessagesPerTrigger",
}


_FROM_GROUP, _TO_LATEST = Start("group"), Start("latest")
_REFUSE = NewCheckpoint("refuse")
_read_start, _read_end = start("group", "earliest", "latest"), start("latest")


def _option(name: str, uses: tuple[str, ...], read: Callable[[str], Any], default: Any = None) -> Any:
    return field(default=default, metadata={"name": name, "uses": uses, "read": read})


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Every option with its value. Immutable and picklable; holds names of secrets, never secrets."""

    endpoint: tuple[Endpoint, ...] = _option("endpoint", ALL, endpoints, ())
    username: str = _option("username", ALL, text, "")
    password_file: str = _option("passwordFile", ALL, text, "")
    password_env: str = _option("passwordEnv", ALL, text, "")
    token_file: str = _option("tokenFile", ALL, text, "")
    token_env: str = _option("tokenEnv", ALL, text, "")
    tls: bool = _option("tls", ALL, boolean, False)
    tls_ca: str = _option("tls.ca", ALL, text, "")
    tls_verify: bool = _option("tls.verify", ALL, boolean, True)
    tls_server_name: str = _option("tls.serverName", ALL, text, "")
    tls_certificate: str = _option("tls.certificate", ALL, text, "")
    tls_key: str = _option("tls.key", ALL, text, "")
    retry_timeout_ms: int = _option("retryTimeout", ALL, duration_ms, 120_000)
    frame_bytes: int = _option("frameBytes", ALL, size_bytes, 1 << 20)

    queue: str = _option("queue", ALL, text, "")
    queues: tuple[str, ...] = _option("queues", READS, names, ())
    queue_pattern: str = _option("queuePattern", READS, text, "")

    group: str = _option("group", ALL, text, "")
    starting_offsets: Start = _option("startingOffsets", READS, _read_start, _FROM_GROUP)  # noqa: RUF009  # frozen
    starting_timestamp: int | None = _option("startingTimestamp", READS, instant_ms)
    ending_offsets: Start = _option("endingOffsets", (BATCH,), _read_end, _TO_LATEST)  # noqa: RUF009  # frozen
    ending_timestamp: int | None = _option("endingTimestamp", (BATCH,), instant_ms)
    dead_letters: bool = _option("deadLetters", (BATCH,), boolean, False)
    columns: tuple[str, ...] = _option("columns", READS, names, ())
    include_headers: bool = _option("includeHeaders", READS, boolean, True)
    fail_on_data_loss: bool = _option("failOnDataLoss", ALL, boolean, True)
    target_partition_bytes: int = _option("targetPartitionBytes", READS, size_bytes, 16 << 20)
    min_partitions: int = _option("minPartitions", READS, whole(1, 100_000), 1)
    max_partitions: int = _option("maxPartitions", READS, whole(1, 100_000), 64)
    fetch_bytes: int = _option("fetchBytes", READS, size_bytes, 2 << 20)

    max_messages_per_trigger: int = _option("maxMessagesPerTrigger", (STREAM,), whole(0), 100_000)
    max_bytes_per_trigger: int = _option("maxBytesPerTrigger", (STREAM,), size_bytes, 256 << 20)
    min_messages_per_trigger: int = _option("minMessagesPerTrigger", (STREAM,), whole(1), 1)
    max_trigger_delay_ms: int = _option("maxTriggerDelay", (STREAM,), duration_ms, 900_000)
    poll_timeout_ms: int = _option("pollTimeout", (STREAM,), duration_ms, 250)
    ack_on: str = _option("ackOn", (STREAM,), one_of("auto", "commit", "never"), "auto")
    new_checkpoint: NewCheckpoint = _option("newCheckpoint", (STREAM,), new_checkpoint, _REFUSE)  # noqa: RUF009  # frozen
    unread_batches: str = _option("unreadBatches", (STREAM,), one_of("refuse", "allow"), "refuse")
    hold_ms: int | None = _option("hold", (STREAM,), duration_ms)
    max_lag_ms: int | None = _option("maxLag", (STREAM,), duration_ms)
    max_lag_bytes: int | None = _option("maxLagBytes", (STREAM,), size_bytes)

    action: str = _option("action", (WRITE,), one_of("publish", "reject", "redrive"), "publish")
    exactly_once: bool = _option("exactlyOnce", (WRITE,), boolean, False)
    atomic: bool = _option("atomic", (WRITE,), boolean, False)
    txn_app_id: str = _option("txnAppId", (WRITE,), text, "")
    txn_version: int | None = _option("txnVersion", (WRITE,), whole(0))
    dedup: bool = _option("dedup", (WRITE,), boolean, False)
    batch_messages: int = _option("batchMessages", (WRITE,), whole(1, 100_000), 1000)
    batch_bytes: int = _option("batchBytes", (WRITE,), size_bytes, 1 << 20)
    max_in_flight: int = _option("maxInFlight", (WRITE,), whole(1, 1000), 4)
    to: str = _option("to", (WRITE,), text, "")


FIELDS = {str(item.metadata["name"]).lower(): item for item in fields(SourceOptions)}
NAMES = tuple(str(item.metadata["name"]) for item in fields(SourceOptions))


def check_names(options: Mapping[str, str]) -> None:
    """Raises OptionError for a name that does not exist, with the one that was probably meant."""
    for key in options:
        lowered = key.lower()
        if lowered in FIELDS or lowered in SPARKS_OWN:
            continue
        hint = _HINTS.get(lowered)
        if hint is None:
            near = difflib.get_close_matches(lowered, list(FIELDS), n=1, cutoff=0.6)
            hint = f"did you mean {FIELDS[near[0]].metadata['name']!r}?" if near else f"known are {', '.join(NAMES)}"
        raise OptionError(f"unknown option {key!r}; {hint}")


def parse(options: Mapping[str, str], use: str = "") -> SourceOptions:
    """Read the options of one use; without one, whatever they belong to.

    Raises:
        OptionError: an option cannot be read, belongs to another use, or does not go with another one.
    """
    check_names(options)
    values: dict[str, Any] = {}
    for key, value in options.items():
        item = FIELDS.get(key.lower())
        if item is None:
            continue
        name, uses = item.metadata["name"], item.metadata["uses"]
        if use and use not in uses:
            raise OptionError(f"option {name!r} belongs to {' or '.join(uses)}; this is {use}")
        try:
            values[item.name] = item.metadata["read"](str(value))
        except ValueError as error:
            shown = _without_secrets(str(value)) if name == "endpoint" else str(value)
            raise OptionError(f"option {name} is {shown!r}; it must be {error}") from None
    settings = SourceOptions(**values)
    if use:
        _check(settings, use, frozenset(values))
    return settings


def _without_secrets(address: str) -> str:
    """Of an address as clients take it: neither what stands in front of the last @ nor any value of a key."""
    _, at, behind = address.rpartition("@")
    shown = re.split("[?;=]", behind, maxsplit=1)[0]
    return f"{'…@' if at else ''}{shown}{'…' if shown != behind else ''}"


def _check(settings: SourceOptions, use: str, given: frozenset[str]) -> None:
    _check_connection(settings)
    if use == WRITE:
        _check_write(settings, given)
    else:
        _check_read(settings, use, given)


def _check_connection(settings: SourceOptions) -> None:
    if not settings.endpoint:
        raise OptionError("option endpoint is missing; write host:port of the broker")
    passwords = [name for name in (settings.password_file, settings.password_env) if name]
    tokens = [name for name in (settings.token_file, settings.token_env) if name]
    if len(passwords) + len(tokens) > 1:
        raise OptionError("give one of passwordFile, passwordEnv, tokenFile and tokenEnv")
    if bool(settings.username) != bool(passwords):
        raise OptionError("username needs passwordFile or passwordEnv, and the other way round")
    if bool(settings.tls_certificate) != bool(settings.tls_key):
        raise OptionError("tls.certificate needs tls.key, and the other way round")
    if settings.frame_bytes < 4096:
        raise OptionError("frameBytes must be 4096 or more")


def _check_read(settings: SourceOptions, use: str, given: frozenset[str]) -> None:
    if len(given & {"queue", "queues", "queue_pattern"}) != 1:
        raise OptionError("name what to read with exactly one of queue, queues and queuePattern")
    if use == STREAM and not settings.group:
        raise OptionError(
            "a streaming read needs the option group: the name of its durable cursor in the broker, one for each query"
        )
    for one, other in (("starting_offsets", "starting_timestamp"), ("ending_offsets", "ending_timestamp")):
        if {one, other} <= given:
            raise OptionError(f"give {_name(one)} or {_name(other)}, not both")
    if 0 < settings.max_messages_per_trigger < settings.min_messages_per_trigger:
        raise OptionError("minMessagesPerTrigger is above maxMessagesPerTrigger")
    named = {queue for queue, _ in settings.starting_offsets.positions}
    asked = {settings.queue, *settings.queues} - {""}
    if named and asked and named != asked:
        # A typing error would read everything, or nothing.
        raise OptionError(
            f"startingOffsets names {', '.join(sorted(named))}; what is read is {', '.join(sorted(asked))}"
        )
    pattern = settings.queue_pattern
    strange = sorted(queue for queue in named if pattern and not fnmatchcase(queue, pattern))
    if strange:
        raise OptionError(f"startingOffsets names {', '.join(strange)}, which queuePattern={pattern} does not read")
    if settings.min_partitions > settings.max_partitions:
        raise OptionError("minPartitions is above maxPartitions")
    if settings.poll_timeout_ms > 30_000:
        raise OptionError("pollTimeout is at most 30s")
    for name in ("fetch_bytes", "target_partition_bytes"):
        if getattr(settings, name) < 1024:
            raise OptionError(f"{_name(name)} must be 1024 or more")
    if settings.dead_letters:
        for name in ("group", "starting_offsets", "starting_timestamp", "ending_offsets", "ending_timestamp"):
            if name in given:
                raise OptionError(f"{_name(name)} does not go with deadLetters; choose by dead_id and with where()")


def _check_write(settings: SourceOptions, given: frozenset[str]) -> None:
    if (settings.action == "reject") != bool(settings.group):
        raise OptionError("action=reject needs the option group, the reader that rejects; other writes have none")
    if "fail_on_data_loss" in given and settings.action != "reject":
        raise OptionError("option failOnDataLoss belongs to reads and to action=reject")
    if settings.to and settings.action != "redrive":
        raise OptionError("option to belongs to action=redrive")
    if ("txn_app_id" in given) != ("txn_version" in given):
        raise OptionError(
            "give txnAppId and txnVersion together or not at all: an id that outlives its checkpoint would meet"
            " versions from 0 again, which the broker takes for replays"
        )
    if settings.atomic and settings.exactly_once:
        raise OptionError("give exactlyOnce or atomic, not both: a write that is exactly once is atomic too")
    if "txn_app_id" in given and not settings.exactly_once:
        raise OptionError("txnAppId and txnVersion belong to exactlyOnce=true")
    if settings.action != "publish":
        for name in ("exactly_once", "atomic", "dedup"):
            if getattr(settings, name):
                raise OptionError(f"{_name(name)} does not go with action={settings.action}, which is exact by itself")
    if len(settings.txn_app_id.encode()) > TXN_APP_ID_BYTES_MAX:
        raise OptionError(f"txnAppId has at most {TXN_APP_ID_BYTES_MAX} bytes: the queue is added to it")
    if settings.batch_bytes < 1024:
        raise OptionError("batchBytes must be 1024 or more")


def _name(field_name: str) -> str:
    return next(str(item.metadata["name"]) for item in fields(SourceOptions) if item.name == field_name)
