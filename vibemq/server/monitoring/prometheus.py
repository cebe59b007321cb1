"""Metrics in Prometheus' text format 0.0.4. Every metric is declared once, in METRICS, with its unit in its name.

Queues are a label, so their number is bounded: the deepest QUEUES_MAX by name, the rest summed as `_other`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from vibemq._version import __version__
from vibemq.model.effects import GroupInfo, QueueInfo
from vibemq.server.monitoring.health import Report
from vibemq.server.monitoring.metrics import BUCKETS_S, Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
QUEUES_MAX = 200
OTHER = "_other"

Samples = Iterable[tuple[Mapping[str, str], float]]


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: str
    help: str
    read: Callable[[Report], Samples]


def _one(read: Callable[[Report], float]) -> Callable[[Report], Samples]:
    return lambda report: [({}, read(report))]


def _counted(key: str) -> Callable[[Report], Samples]:
    return lambda report: _by_queue(report.queues(), lambda queue: queue.counters.get(key, 0))


def _gauged(read: Callable[[QueueInfo], float]) -> Callable[[Report], Samples]:
    return lambda report: _by_queue(report.queues(), read)


def _by_queue(queues: list[QueueInfo], read: Callable[[QueueInfo], float]) -> Samples:
    shown = queues
    if len(queues) > QUEUES_MAX:
        shown = sorted(queues, key=lambda queue: queue.ready, reverse=True)[:QUEUES_MAX]
        names = {queue.name for queue in shown}
        yield {"queue": OTHER}, sum(read(queue) for queue in queues if queue.name not in names)
    for queue in shown:
        yield {"queue": queue.name}, read(queue)


def _by_cursor(read: Callable[[GroupInfo], float]) -> Callable[[Report], Samples]:
    """Of the groups that read by ranges: those that lag most when there are too many to show."""

    def samples(report: Report) -> Samples:
        found = [(queue.name, group) for queue in report.queues() for group in queue.groups if group.cursor]
        found.sort(key=lambda pair: pair[1].waiting, reverse=True)
        for name, group in found[:QUEUES_MAX]:
            yield {"queue": name, "group": group.name}, read(group)

    return samples


def _oldest_age(report: Report) -> Samples:
    now = report.now()
    return _by_queue(report.queues(), lambda queue: (now - queue.oldest_at) / 1000 if queue.oldest_at else 0.0)


def _stat(name: str) -> Callable[[Report], Samples]:
    def samples(report: Report) -> Samples:
        stats = report.status.storage
        return [] if stats is None else [({}, float(getattr(stats, name)))]

    return samples


def _detail(name: str) -> Callable[[Report], Samples]:
    def samples(report: Report) -> Samples:
        stats = report.status.storage
        return [] if stats is None or name not in stats.details else [({}, float(stats.details[name]))]

    return samples


def _state(attribute: str) -> Callable[[Report], Samples]:
    return _one(lambda report: float(getattr(report.status, attribute)))


def _shell(name: str, text: str, attribute: str) -> Metric:
    """A counter of `Metrics`."""
    return Metric(name, "counter", text, _one(lambda report: float(getattr(report.metrics, attribute))))


_BUILD = {"version": __version__}

METRICS: tuple[Metric, ...] = (
    Metric("vibemq_build_info", "gauge", "Always 1; the label names the build.", lambda _: [(_BUILD, 1)]),
    Metric("vibemq_uptime_seconds", "gauge", "Time since the start.", _one(lambda r: r.uptime_ms / 1000)),
    Metric("vibemq_messages_published_total", "counter", "Messages accepted.", _counted("published")),
    Metric("vibemq_messages_delivered_total", "counter", "Hand-outs to consumers.", _counted("delivered")),
    Metric("vibemq_messages_acked_total", "counter", "Messages settled by an ack.", _counted("settled")),
    Metric("vibemq_messages_redelivered_total", "counter", "Hand-outs after the first.", _counted("redelivered")),
    Metric("vibemq_messages_dead_lettered_total", "counter", "Messages moved to the DLQ.", _counted("dead_lettered")),
    Metric("vibemq_messages_expired_total", "counter", "Messages whose TTL passed.", _counted("expired")),
    Metric("vibemq_messages_dropped_total", "counter", "Messages dropped by policy.", _counted("dropped")),
    Metric("vibemq_messages_refused_total", "counter", "Publishes refused.", _counted("refused")),
    Metric("vibemq_queue_depth", "gauge", "Messages waiting.", _gauged(lambda q: q.ready)),
    Metric("vibemq_queue_depth_bytes", "gauge", "Estimated bytes waiting.", _gauged(lambda q: q.size)),
    Metric("vibemq_queue_in_flight", "gauge", "Messages handed out and not settled.", _gauged(lambda q: q.in_flight)),
    Metric("vibemq_queue_delayed", "gauge", "Messages that wait for their time.", _gauged(lambda q: q.delayed)),
    Metric("vibemq_queue_dead", "gauge", "Dead letters of the queue.", _gauged(lambda q: q.dead)),
    Metric("vibemq_queue_consumers", "gauge", "Consumers of the queue.", _gauged(lambda q: q.consumers)),
    Metric("vibemq_queue_oldest_message_age_seconds", "gauge", "Age of the oldest waiting message.", _oldest_age),
    Metric("vibemq_group_backlog", "gauge", "Messages a cursor has not acknowledged.", _by_cursor(lambda g: g.waiting)),
    Metric("vibemq_group_committed", "gauge", "Up to where a cursor has acknowledged.", _by_cursor(lambda g: g.head)),
    Metric("vibemq_group_epoch", "gauge", "How often a cursor was taken over.", _by_cursor(lambda g: g.epoch)),
    Metric("vibemq_connections", "gauge", "Open connections.", lambda r: _labelled("protocol", r.connections())),
    _shell("vibemq_connections_accepted_total", "Connections accepted.", "connections_accepted"),
    _shell("vibemq_connections_rejected_total", "Connections refused.", "connections_rejected"),
    _shell("vibemq_slow_readers_dropped_total", "Peers dropped because they read nothing.", "slow_readers_dropped"),
    _shell("vibemq_auth_failures_total", "Failed authentications.", "auth_failures"),
    _shell("vibemq_not_authorized_total", "Commands refused for want of permission.", "not_authorized"),
    _shell("vibemq_rate_limited_total", "Connections and requests refused by a rate limit.", "rate_limited"),
    _shell("vibemq_errors_total", "Protocol violations and faults of the broker.", "errors"),
    _shell("vibemq_received_bytes_total", "Bytes read from sockets.", "bytes_received"),
    _shell("vibemq_sent_bytes_total", "Bytes written to sockets.", "bytes_sent"),
    _shell("vibemq_storage_appends_total", "Batches written to storage.", "appends"),
    _shell("vibemq_storage_full_total", "Outcomes refused by a full disk.", "storage_full"),
    _shell("vibemq_damaged_messages_total", "Messages whose checksum failed.", "damaged_messages"),
    Metric("vibemq_wal_bytes", "gauge", "Bytes of journal.", _stat("journal_bytes")),
    Metric("vibemq_wal_unsynced_bytes", "gauge", "Bytes of journal not flushed yet.", _detail("unsynced_bytes")),
    Metric("vibemq_store_bytes", "gauge", "Bytes of the store behind the journal.", _stat("store_bytes")),
    Metric("vibemq_store_buffered_bytes", "gauge", "Bytes of rows held in memory.", _stat("buffered_bytes")),
    Metric("vibemq_lmdb_map_used_ratio", "gauge", "Used part of the LMDB map.", _detail("map_used_ratio")),
    Metric("vibemq_disk_free_bytes", "gauge", "Free bytes on the data directory's disk.", _stat("disk_free_bytes")),
    Metric("vibemq_pressure_level", "gauge", "0 none, 1 high, 2 blocking, 3 overflowing.", _state("pressure")),
    Metric("vibemq_memory_resident_bytes", "gauge", "Resident memory.", _state("memory_bytes")),
    Metric("vibemq_event_loop_lag_seconds", "gauge", "How late the last timer was.", _state("loop_lag_s")),
)  # fmt: skip

HISTOGRAMS: tuple[tuple[str, str, Callable[[Report], Histogram]], ...] = (
    ("vibemq_publish_ack_seconds", "From a batch's arrival to its confirm.", lambda r: r.metrics.publish_ack_seconds),
    ("vibemq_fsync_seconds", "Duration of a flush.", lambda r: r.metrics.fsync_seconds),
)


def _labelled(label: str, counts: Mapping[str, int]) -> Samples:
    return [({label: name}, count) for name, count in counts.items()]


def exposition(report: Report) -> str:
    """The whole page."""
    lines: list[str] = []
    for metric in METRICS:
        _head(lines, metric.name, metric.kind, metric.help)
        lines += [f"{metric.name}{_labels(labels)} {_number(value)}" for labels, value in metric.read(report)]
    for name, text, read in HISTOGRAMS:
        _head(lines, name, "histogram", text)
        _histogram(lines, name, read(report))
    return "\n".join(lines) + "\n"


def _head(lines: list[str], name: str, kind: str, text: str) -> None:
    lines.append(f"# HELP {name} {text}")
    lines.append(f"# TYPE {name} {kind}")


def _histogram(lines: list[str], name: str, histogram: Histogram) -> None:
    below = 0
    for bound, count in zip((*map(str, BUCKETS_S), "+Inf"), histogram.counts, strict=True):
        below += count
        lines.append(f'{name}_bucket{{le="{bound}"}} {below}')
    lines.append(f"{name}_sum {_number(histogram.sum)}")
    lines.append(f"{name}_count {below}")


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
