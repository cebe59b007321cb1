"""Metrics in Prometheus' text format 0.0.4. Every metric is declared once, in METRICS, with its unit in its name.

Queues are a label, so their number is bounded: `SeriesChoice` gives some of them series of their own and sums the rest
as `_other`. Everything here works on copies, so that it may run in a thread beside the event loop.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest

from vibemq._version import __version__
from vibemq.model.effects import COUNTERS
from vibemq.server.monitoring.metrics import BUCKETS_S, Histogram, Metrics
from vibemq.server.monitoring.snapshot import CursorRow, Snapshot
from vibemq.server.monitoring.status import BrokerStatus
from vibemq.storage.interface import StorageStats

SERIES_MAX = 200
OTHERS = "_other"
"""In the place of a queue's name."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """What a page is written from. Nothing in it changes any more."""

    snapshot: Snapshot
    status: BrokerStatus
    metrics: Metrics
    now: int
    """Of the clock that the messages are dated by."""
    uptime_s: float
    protocols: tuple[str, ...] = ()
    """Those that are listened to: a gauge of nobody's connections is 0, not absent."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The queues of one page."""

    rows: list[tuple[int, str]]
    """(row of the snapshot, its labels as text)."""
    others: bool
    """Whether there is a sum of the others."""
    carried: Mapping[str, int]
    """What is added to the sum of the others, by counter."""
    most: int
    """The bound that was kept; it holds for cursors too."""


class SeriesChoice:
    """Which queues have series of their own: up to `most`, and a queue that once has keeps them.

    A choice that followed the depth would begin and end series with every scrape, and let the sum of the others fall
    each time. When a series ends because its queue is deleted, the deepest of the others gets the place. The counters
    of `_other` never fall: what a queue had counted among the others stays there when it leaves them.
    """

    def __init__(self, most: int = SERIES_MAX) -> None:
        self.most = most
        self._shown: set[int] = set()
        self._last: Snapshot | None = None
        """That of the last page."""
        self._carried = dict.fromkeys(COUNTERS, 0)
        self._had_others = False

    def choose(self, snapshot: Snapshot) -> Chosen:
        ids, depth = snapshot.columns["queue_id"], snapshot.columns["ready"]
        shown_before = self._shown
        rows = [row for row, queue_id in enumerate(ids) if queue_id in shown_before]
        room = self.most - len(rows)
        if room > 0 and len(ids) > len(rows):
            hidden = (
                row
                for row, queue_id in enumerate(ids)
                # A queue of that name is among the others: two series cannot be told apart.
                if queue_id not in shown_before and snapshot.names[row] != OTHERS
            )
            rows += nlargest(room, hidden, key=depth.__getitem__)
            rows.sort()
        self._shown = {ids[row] for row in rows}
        if self._last is not None:
            self._carry(self._last, shown_before, ids)
        self._last = snapshot
        self._had_others = self._had_others or len(ids) > len(rows)
        chosen = [(row, _labels({"queue": snapshot.names[row]})) for row in rows]
        return Chosen(chosen, self._had_others, dict(self._carried), self.most)

    def _carry(self, last: Snapshot, shown_before: set[int], ids: Sequence[int]) -> None:
        """What those had counted that were among the others, and are no more."""
        before = last.columns["queue_id"]
        gone: set[int] = set() if before == ids else set(before).difference(ids)
        for row, queue_id in enumerate(before):
            if queue_id not in shown_before and (queue_id in self._shown or queue_id in gone):
                for name in COUNTERS:
                    self._carried[name] += last.columns[name][row]


Samples = Iterable[tuple[str, float]]
"""(labels as text, value)."""


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: str
    help: str
    read: Callable[[Scrape, Chosen], Samples]
    by: tuple[str, ...] = ()
    """Its labels."""


def _one(read: Callable[[Scrape], float]) -> Callable[[Scrape, Chosen], Samples]:
    return lambda scrape, _: [("", read(scrape))]


def _by_queue(name: str, kind: str, text: str, column: str) -> Metric:
    """A column of the snapshot."""

    def read(scrape: Scrape, chosen: Chosen) -> Samples:
        values = scrape.snapshot.columns[column]
        samples: list[tuple[str, float]] = [(labels, values[row]) for row, labels in chosen.rows]
        if chosen.others:
            others = sum(values) - sum(values[row] for row, _ in chosen.rows)
            samples.append((_OTHERS, others + chosen.carried.get(column, 0)))
        return samples

    return Metric(name, kind, text, read, ("queue",))


def _oldest_age(scrape: Scrape, chosen: Chosen) -> Samples:
    """Of the others: of the oldest message of them all."""
    instants, now = scrape.snapshot.columns["oldest_at"], scrape.now
    for row, labels in chosen.rows:
        yield labels, max(0, now - instants[row]) / 1000 if instants[row] else 0.0
    if chosen.others:
        shown = {row for row, _ in chosen.rows}
        others = [at for row, at in enumerate(instants) if at and row not in shown]
        yield _OTHERS, max(0, now - min(others)) / 1000 if others else 0.0


def _by_cursor(name: str, text: str, read: Callable[[CursorRow], float]) -> Metric:
    """Of the groups that read by ranges: those that lag most when there are too many to show."""

    def samples(scrape: Scrape, chosen: Chosen) -> Samples:
        rows = nlargest(chosen.most, scrape.snapshot.cursors, key=lambda row: row.backlog)
        return [(_labels({"queue": row.queue, "group": row.group}), read(row)) for row in rows]

    return Metric(name, "gauge", text, samples, ("queue", "group"))


def _stat(name: str, kind: str, text: str, read: Callable[[StorageStats], float]) -> Metric:
    def samples(scrape: Scrape, _: Chosen) -> Samples:
        stats = scrape.status.storage
        return [] if stats is None else [("", read(stats))]

    return Metric(name, kind, text, samples)


def _state(name: str, text: str, read: Callable[[BrokerStatus], float]) -> Metric:
    return Metric(name, "gauge", text, _one(lambda scrape: read(scrape.status)))


def _counted(name: str, text: str, read: Callable[[Metrics], int]) -> Metric:
    """A counter of `Metrics`."""
    return Metric(name, "counter", text, _one(lambda scrape: read(scrape.metrics)))


_OTHERS = f'{{queue="{OTHERS}"}}'
_BUILD = f'{{version="{__version__}"}}'

METRICS: tuple[Metric, ...] = (
    Metric(
        "vibemq_build_info", "gauge", "Always 1; the label names the build.", lambda *_: [(_BUILD, 1)], ("version",)
    ),
    Metric("vibemq_uptime_seconds", "gauge", "Time since the start.", _one(lambda scrape: scrape.uptime_s)),
    _by_queue("vibemq_messages_published_total", "counter", "Messages accepted.", "published"),
    _by_queue("vibemq_messages_delivered_total", "counter", "Deliveries to consumers.", "delivered"),
    _by_queue(
        "vibemq_messages_acked_total",
        "counter",
        "Messages acknowledged, or passed over by the filter of a group.",
        "settled",
    ),
    _by_queue(
        "vibemq_messages_redelivered_total", "counter", "Deliveries of a message after its first.", "redelivered"
    ),
    _by_queue("vibemq_messages_dead_lettered_total", "counter", "Messages moved to the DLQ.", "dead_lettered"),
    _by_queue(
        "vibemq_messages_expired_total", "counter", "Messages whose TTL passed, dropped or moved to the DLQ.", "expired"
    ),
    _by_queue(
        "vibemq_messages_dropped_total",
        "counter",
        "Messages dropped: overflow, retention, a purge, their group deleted, no attempt left without a DLQ.",
        "dropped",
    ),
    _by_queue("vibemq_messages_refused_total", "counter", "Messages refused for want of room.", "refused"),
    _by_queue("vibemq_queue_depth", "gauge", "Messages waiting.", "ready"),
    _by_queue("vibemq_queue_depth_bytes", "gauge", "Estimated bytes waiting.", "size"),
    _by_queue("vibemq_queue_in_flight", "gauge", "Messages handed out and not settled.", "in_flight"),
    _by_queue("vibemq_queue_delayed", "gauge", "Messages whose delay or retry is not yet due.", "delayed"),
    _by_queue("vibemq_queue_dead", "gauge", "Dead letters of the queue.", "dead"),
    Metric(
        "vibemq_dead_letters",
        "gauge",
        "Dead letters of all queues, deleted ones included.",
        _one(lambda scrape: scrape.snapshot.totals["dead"]),
    ),
    _by_queue("vibemq_queue_consumers", "gauge", "Consumers of the queue.", "consumers"),
    Metric(
        "vibemq_queue_oldest_message_age_seconds",
        "gauge",
        "Age of the oldest waiting message, delayed ones included.",
        _oldest_age,
        ("queue",),
    ),
    Metric("vibemq_queues", "gauge", "Queues.", _one(lambda scrape: scrape.snapshot.queue_count)),
    _by_cursor("vibemq_group_backlog", "Messages a cursor has not acknowledged.", lambda row: row.backlog),
    _by_cursor("vibemq_group_committed", "Sequence up to which a cursor has acknowledged.", lambda row: row.committed),
    _by_cursor(
        "vibemq_group_epoch",
        "Epoch of the cursor: grows with each join and seek, and begins above those of deleted groups.",
        lambda row: row.epoch,
    ),
    Metric(
        "vibemq_unknown_settles_total",
        "counter",
        "Settlements and extensions of messages that the consumer did not hold.",
        _one(lambda scrape: scrape.snapshot.unknown_settles),
    ),
    Metric(
        "vibemq_connections",
        "gauge",
        "Open connections of each protocol that is listened to.",
        lambda scrape, _: _connections(scrape),
        ("protocol",),
    ),
    _counted("vibemq_connections_accepted_total", "Connections accepted.", lambda m: m.connections_accepted),
    _counted(
        "vibemq_connections_rejected_total",
        "Connections refused, or closed because they did not log in.",
        lambda m: m.connections_rejected,
    ),
    _counted(
        "vibemq_tls_handshakes_failed_total", "TLS handshakes that came to nothing.", lambda m: m.handshakes_failed
    ),
    _counted(
        "vibemq_slow_readers_dropped_total",
        "Connections closed because they read nothing.",
        lambda m: m.slow_readers_dropped,
    ),
    Metric(
        "vibemq_queues_removed_total",
        "counter",
        "Queues that the broker has deleted by itself.",
        lambda scrape, chosen: [
            (_labels({"reason": why}), count) for why, count in scrape.metrics.queues_removed.items()
        ],
        ("reason",),
    ),
    _counted("vibemq_auth_failures_total", "Failed authentications.", lambda m: m.auth_failures),
    _counted(
        "vibemq_not_authorized_total", "Commands refused because of a missing permission.", lambda m: m.not_authorized
    ),
    _counted(
        "vibemq_rate_limited_total", "Connections and requests refused by a rate limit.", lambda m: m.rate_limited
    ),
    _counted("vibemq_errors_total", "Protocol violations and faults of the broker.", lambda m: m.errors),
    _counted("vibemq_received_bytes_total", "Bytes read from sockets.", lambda m: m.bytes_received),
    _counted("vibemq_sent_bytes_total", "Bytes written to sockets.", lambda m: m.bytes_sent),
    _counted("vibemq_storage_appends_total", "Batches written to storage.", lambda m: m.appends),
    _counted("vibemq_storage_full_total", "Outcomes refused by a full disk.", lambda m: m.storage_full),
    _counted("vibemq_damaged_messages_total", "Messages whose checksum failed.", lambda m: m.damaged_messages),
    _stat("vibemq_wal_bytes", "gauge", "Bytes of journal.", lambda stats: stats.journal_bytes),
    _stat(
        "vibemq_wal_unsynced_batches",
        "gauge",
        "Batches of the journal that are not flushed yet.",
        lambda stats: max(0, stats.last_lsn - stats.durable_lsn),
    ),
    _stat(
        "vibemq_wal_uncheckpointed_bytes",
        "gauge",
        "Bytes of journal that are not checkpointed yet.",
        lambda stats: stats.unapplied_bytes,
    ),
    _state(
        "vibemq_checkpoint_age_seconds",
        "How long the oldest change has waited for a checkpoint; 0 when none waits.",
        lambda status: status.checkpoint_age_s,
    ),
    _stat("vibemq_store_bytes", "gauge", "Bytes of the store behind the journal.", lambda stats: stats.store_bytes),
    _stat(
        "vibemq_store_reclaimable_bytes",
        "gauge",
        "Unused bytes of the store's file.",
        lambda stats: stats.reclaimable_bytes,
    ),
    _stat("vibemq_store_buffered_bytes", "gauge", "Bytes of rows held in memory.", lambda stats: stats.buffered_bytes),
    _stat(
        "vibemq_disk_free_bytes",
        "gauge",
        "Free bytes on the data directory's disk.",
        lambda stats: stats.disk_free_bytes,
    ),
    _state("vibemq_pressure_level", "0 none, 1 high, 2 blocking, 3 overflowing.", lambda status: int(status.pressure)),
    _state("vibemq_memory_resident_bytes", "Resident memory.", lambda status: status.memory_bytes),
    _state(
        "vibemq_event_loop_lag_seconds", "Delay of the last timer of the event loop.", lambda status: status.loop_lag_s
    ),
    _state(
        "vibemq_clock_offset_seconds",
        "How far the broker's time is ahead of the wall clock; negative when it is behind.",
        lambda status: status.clock_ahead_ms / 1000,
    ),
    Metric(
        "vibemq_snapshot_seconds",
        "gauge",
        "Duration of the last snapshot of all queues, pauses included.",
        _one(lambda scrape: scrape.snapshot.duration_s),
    ),
)

HISTOGRAMS: tuple[tuple[str, str, Callable[[Metrics], Histogram]], ...] = (
    (
        "vibemq_publish_ack_seconds",
        "From the decision of a batch to its answers, of all that waits for storage.",
        lambda metrics: metrics.publish_ack_seconds,
    ),
    ("vibemq_fsync_seconds", "Duration of a flush.", lambda metrics: metrics.fsync_seconds),
)


def _connections(scrape: Scrape) -> Samples:
    connections = dict.fromkeys(scrape.protocols, 0) | scrape.snapshot.connections
    return [(_labels({"protocol": name}), count) for name, count in connections.items()]


def exposition(scrape: Scrape, choice: SeriesChoice) -> bytes:
    """The whole page."""
    chosen = choice.choose(scrape.snapshot)
    # Joined in parts: one call for everything would keep the interpreter from the event loop's thread for longer.
    parts: list[str] = []
    for metric in METRICS:
        lines: list[str] = []
        _head(lines, metric.name, metric.kind, metric.help)
        lines += [f"{metric.name}{labels} {_number(value)}\n" for labels, value in metric.read(scrape, chosen)]
        parts.append("".join(lines))
    for name, text, read in HISTOGRAMS:
        lines = []
        _head(lines, name, "histogram", text)
        _histogram(lines, name, read(scrape.metrics))
        parts.append("".join(lines))
    return "".join(parts).encode()


def _head(lines: list[str], name: str, kind: str, text: str) -> None:
    lines.append(f"# HELP {name} {text}\n")
    lines.append(f"# TYPE {name} {kind}\n")


def _histogram(lines: list[str], name: str, histogram: Histogram) -> None:
    below = 0
    for bound, count in zip((*map(str, BUCKETS_S), "+Inf"), histogram.counts, strict=True):
        below += count
        lines.append(f'{name}_bucket{{le="{bound}"}} {below}\n')
    lines.append(f"{name}_sum {_number(histogram.sum)}\n")
    lines.append(f"{name}_count {below}\n")


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
