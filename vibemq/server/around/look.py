"""What surrounds a running broker, looked at from inside: checks with remedies, listeners and settings."""

import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyio import to_thread

from vibemq.auth.addresses import is_loopback
from vibemq.config import Settings
from vibemq.operations.monitoring.death_tolls import REMEDY, death_sentences
from vibemq.operations.monitoring.readings import QueuesReading
from vibemq.operations.monitoring.states import QueueState, states_of_all
from vibemq.operations.monitoring.turns import in_slices
from vibemq.operations.reading.instants import written
from vibemq.server.access.certificates import validity
from vibemq.server.around.settings_shown import shown_settings
from vibemq.server.monitoring.health import Report
from vibemq.server.monitoring.recent import quantile_ms
from vibemq.server.monitoring.trail import Trail

DAY_MS = 86_400_000
CERTIFICATE_DAYS_WARN = 14
FREE_BYTES_FAIL = 256 << 20
FREE_BYTES_WARN = 1 << 30
FREE_SHARE_WARN = 0.10
SLOW_FSYNC_MS = 20.0
OPEN_FILES_WANTED = 4_096
NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class ListenerFacts:
    protocol: str
    host: str
    port: int
    certificate: Path | None
    """None: no TLS."""
    connections: Callable[[], int]
    refused: Callable[[], int] | None = None
    """Connections that were refused since the start; None = nobody counts them."""
    handshakes_failed: Callable[[], int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """See `vibemq.operations.monitoring.around.Surroundings`."""

    report: Report
    trail: Trail
    listening: Callable[[], Sequence[ListenerFacts]]
    authentication: Callable[[], bool]
    configured: Callable[[], Settings]
    origins: Callable[[], Mapping[str, str] | None]
    history_trouble: Callable[[], str]
    audit_trouble: Callable[[], str]

    def settings(self) -> list[dict[str, Any]]:
        return shown_settings(self.configured(), self.origins())

    async def listeners(self) -> list[dict[str, Any]]:
        """`certificate_until`: ms since 1970; None without TLS, or when its file cannot be read any more."""
        facts = self.listening()
        spans = await _spans(facts)
        return [
            {
                "protocol": one.protocol,
                "host": one.host,
                "port": one.port,
                "tls": one.certificate is not None,
                "certificate_until": None if span is None else span[1],
                "connections": one.connections(),
                "refused": None if one.refused is None else one.refused(),
                "handshakes_failed": None if one.handshakes_failed is None else one.handshakes_failed(),
            }
            for one, span in zip(facts, spans, strict=True)
        ]

    async def checks(self) -> list[dict[str, Any]]:
        reading = await self.trail.reading()
        facts = self.listening()
        found = {QueueState.NO_CONSUMER: list[str](), QueueState.STUCK: list[str](), QueueState.FULL: list[str]()}
        await in_slices(_by_state(reading, await states_of_all(reading), found))
        return [
            self._authentication(),
            self._memory(),
            self._disk(),
            self._flushes(),
            *_certificates(facts, await _spans(facts), int(1000 * time.time())),
            _queues(
                "consumers",
                found[QueueState.NO_CONSUMER],
                "has messages and no consumer",
                "start a consumer; purge only what nobody needs",
            ),
            _queues(
                "stuck queues",
                found[QueueState.STUCK],
                "has ready messages of which nothing was taken or settled for a minute",
                "see whether its consumers and the jobs with its cursors still run: vibemq-admin consumer ls QUEUE, "
                "vibemq-admin cursor ls",
            ),
            _queues("full queues", found[QueueState.FULL], "is full", "add consumers, or raise its limits"),
            self._deaths(),
            self._history(),
            self._audit(),
            self._alarms(),
            _open_files(),
        ]

    def _authentication(self) -> dict[str, Any]:
        if self.authentication():
            return _ok("authentication", "clients must log in")
        reached = [f"{one.protocol} at {one.host}:{one.port}" for one in self.listening() if not is_loopback(one.host)]
        if reached:
            return _fail(
                "authentication",
                f"everybody who reaches {', '.join(reached[:NAMED_MAX])} may do everything",
                "set auth.superuser and auth.superuser_password, or auth.users, and start the broker again; or listen "
                "on 127.0.0.1",
            )
        return _ok("authentication", "there is none, and the broker listens to this machine only")

    def _memory(self) -> dict[str, Any]:
        limit, used = self.configured().limits.memory_limit_bytes, self.report.status.memory_bytes
        if limit:
            return _ok("memory limit", f"{shown_size(used)} of {shown_size(limit)} are used")
        return _warn(
            "memory limit",
            f"there is none, and {shown_size(used)} are used: the system ends the broker when there is no more",
            "set limits.memory_limit_bytes to about four fifths of what the machine or the container has",
        )

    def _disk(self) -> dict[str, Any]:
        stats = self.report.status.storage
        if stats is None or not stats.disk_total_bytes:
            return _ok("disk", "the storage provider has none")
        free, total = stats.writable_bytes, stats.disk_total_bytes
        text = f"{shown_size(free)} of {shown_size(total)} are free for the broker"
        remedy = "free some space, or drain queues; `vibemq-admin compact` frees unused space of a stopped store"
        if stats.full:
            return _fail("disk", stats.full, remedy)
        if free < FREE_BYTES_FAIL:
            return _fail("disk", text, remedy)
        if free < FREE_BYTES_WARN or free < FREE_SHARE_WARN * total:
            return _warn("disk", text, remedy)
        return _ok("disk", text)

    def _flushes(self) -> dict[str, Any]:
        middle, of_when = self.trail.flushes.quantile_ms(0.5), "of the last minute took"
        if middle is None:
            # Nobody has published lately: what is known is older.
            middle, of_when = quantile_ms(self.report.metrics.fsync_seconds.counts, 0.5), "since the start took"
        if middle is None:
            return _ok("flush", "nothing has been flushed yet")
        text = f"half of the flushes {of_when} less than {middle:.2f} ms"
        if middle > SLOW_FSYNC_MS:
            return _warn(
                "flush", text, "use an SSD, or weak durability for queues that may lose two seconds in a power cut"
            )
        return _ok("flush", text)

    def _deaths(self) -> dict[str, Any]:
        told = death_sentences(self.trail.deaths.by_queue())
        if not told:
            return _ok("dead letters", "no message became one in the last 15 minutes")
        text = "; ".join(death.text for death in told)
        return _warn("dead letters", text, REMEDY, queues=[death.queue for death in told if death.queue])

    def _history(self) -> dict[str, Any]:
        if not self.configured().history_bytes:
            return _ok("history", "none is kept")
        trouble = self.history_trouble()
        if trouble:
            return _warn("history", trouble, "see whether the disk is well; it is written anew every five minutes")
        return _ok("history", "the figures of the last 48 hours are kept")

    def _audit(self) -> dict[str, Any]:
        trouble, kept = self.audit_trouble(), self.configured().audit
        if trouble:
            text, _, remedy = trouble.rpartition("; ")
            return _fail("audit", text, remedy)
        if kept == "off":
            return _warn("audit", "nobody can say who changed what", 'set audit = "file" and start the broker again')
        return _ok("audit", "changes and logins are recorded")

    def _alarms(self) -> dict[str, Any]:
        """Also those of the overview that have a check of their own: while it says "alarm", this check fails."""
        alarms = [alarm for alarm in self.report.alarms() if alarm != self.audit_trouble()]
        alarms += [death.text for death in death_sentences(self.trail.deaths.by_queue()) if death.is_alarm]
        if alarms:
            return _fail("alarms", "; ".join(alarms), "see broker.overview, which has a remedy for each, and the log")
        return _ok("alarms", "there is none")


def _by_state(
    reading: QueuesReading, states: Sequence[QueueState], into: dict[QueueState, list[str]]
) -> Iterator[None]:
    for row in reading.by_name:
        if (names := into.get(states[row])) is not None:
            names.append(reading.now.names[row])
        yield


def _queues(check: str, names: Sequence[str], what: str, remedy: str) -> dict[str, Any]:
    if not names:
        return _ok(check, f"no queue {what}")
    named = ", ".join(names[:NAMED_MAX])
    more = f" and {len(names) - NAMED_MAX:,} more" if len(names) > NAMED_MAX else ""
    each = "" if len(names) == 1 else ": each"
    return _warn(check, f"{named}{more}{each} {what}", remedy, queues=names[:NAMED_MAX])


def _certificates(
    facts: Sequence[ListenerFacts], spans: Sequence["_Span | None"], now_ms: int
) -> Iterator[dict[str, Any]]:
    for one, span in zip(facts, spans, strict=True):
        if one.certificate is None:
            continue
        name = f"certificate of {one.protocol}:{one.port}"
        remedy = "put a new one in its place and reload: vibemq-admin reload"
        if span is None:
            yield _fail(name, "its file cannot be read any more", remedy)
            continue
        begin, until = span
        days = (until - now_ms) // DAY_MS
        if now_ms < begin:
            text = f"it is not valid yet, but from {written(begin)} on, and here it is {written(now_ms)}"
            yield _fail(name, text, f"correct the clock of this machine, or {remedy}")
        elif days < 0:
            yield _fail(name, "it is not valid any more", remedy)
        elif days < CERTIFICATE_DAYS_WARN:
            yield _warn(name, f"it is valid for {days} more days", remedy)
        else:
            yield _ok(name, f"it is valid for {days} more days")


def _open_files() -> dict[str, Any]:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY or soft >= OPEN_FILES_WANTED:
        most = "any number of" if soft == resource.RLIM_INFINITY else f"{soft:,}"
        return _ok("open files", f"{most} files and connections may be open at once")
    return _warn(
        "open files",
        f"only {soft:,} files and connections may be open at once",
        f"raise it: ulimit -n {OPEN_FILES_WANTED * 16}, or LimitNOFILE= in the unit",
    )


_Span = tuple[int, int]
"""From when and until when a certificate is valid, ms since 1970."""


async def _spans(facts: Sequence[ListenerFacts]) -> list[_Span | None]:
    """None without TLS, or when the file cannot be read any more."""
    return await to_thread.run_sync(lambda: [_span(one.certificate) for one in facts])


def _span(certificate: Path | None) -> _Span | None:
    if certificate is None:
        return None
    try:
        begin, until = validity(certificate)
    except (OSError, ValueError):
        return None
    return int(1000 * begin.timestamp()), int(1000 * until.timestamp())


def shown_size(size: int) -> str:
    """As the console writes it."""
    value, unit = (size / (1 << 30), "GiB") if size >= 1 << 30 else (size / (1 << 20), "MiB")
    return f"{value:,.{0 if value >= 100 else 1}f}".removesuffix(".0") + f" {unit}"


def _ok(name: str, text: str) -> dict[str, Any]:
    return {"name": name, "level": "ok", "text": text, "remedy": "", "queues": []}


def _warn(name: str, text: str, remedy: str, *, queues: Sequence[str] = ()) -> dict[str, Any]:
    """`queues`: those that the text names."""
    return {"name": name, "level": "warn", "text": text, "remedy": remedy, "queues": list(queues)}


def _fail(name: str, text: str, remedy: str) -> dict[str, Any]:
    return {"name": name, "level": "fail", "text": text, "remedy": remedy, "queues": []}
