"""The checks of a broker that looks at itself, each with what it should find and a remedy."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from tests.unit.operations.monitoring.pictures import Shown, picture, reading
from vibemq.config import Limits, Settings
from vibemq.operations.monitoring.death_tolls import DEATHS_ALARM
from vibemq.operations.monitoring.readings import QueuesReading
from vibemq.server.around.look import DAY_MS, Around, ListenerFacts, _certificates
from vibemq.server.monitoring.health import Report
from vibemq.server.monitoring.metrics import Metrics
from vibemq.server.monitoring.recent import LATENCY_WINDOW_S, LatencyWindow, RecentDeaths
from vibemq.server.monitoring.snapshot import Snapshot
from vibemq.server.monitoring.status import BrokerStatus
from vibemq.server.monitoring.trail import Trail
from vibemq.storage.interface import StorageStats

pytestmark = pytest.mark.anyio
GIB = 1 << 30


def stats(free: int, total: int = 100 * GIB, full: str = "") -> StorageStats:
    return StorageStats("lmdb", 0, 0, 0, 0, 0, 0, 0, free, total, full=full)


def listener(host: str, certificate: Path | None = None) -> ListenerFacts:
    return ListenerFacts("native", host, 2925, certificate, lambda: 0)


class Lately(Shown):
    def __init__(self, reading: QueuesReading, deaths: RecentDeaths, flushes: LatencyWindow) -> None:
        super().__init__(reading)
        self.deaths = deaths
        self.flushes = flushes


class Inside:
    """A broker that is well, until something is changed."""

    def __init__(self) -> None:
        self.status = BrokerStatus(started=True, memory_bytes=1 << 20, storage=stats(50 * GIB))
        self.metrics = Metrics()
        self.settings = Settings(limits=Limits(memory_limit_bytes=GIB))
        self.listeners: Sequence[ListenerFacts] = [listener("127.0.0.1")]
        self.queues: dict[str, dict[str, int]] = {"jobs": {"ready": 1, "consumers": 1}}
        self.still_ms: dict[int, int] = {}
        self.deaths = RecentDeaths()
        self.flushes = LatencyWindow()
        self.authentication = False
        self.history_trouble = self.audit_trouble = ""

    async def checks(self) -> dict[str, dict[str, Any]]:
        seen = picture(self.queues)
        around = Around(
            report=Report(self.status, self.metrics),
            trail=cast(Trail, Lately(reading(seen, seen, still_ms=self.still_ms), self.deaths, self.flushes)),
            listening=lambda: self.listeners,
            authentication=lambda: self.authentication,
            configured=lambda: self.settings,
            origins=lambda: None,
            history_trouble=lambda: self.history_trouble,
            audit_trouble=lambda: self.audit_trouble,
        )
        found = {check["name"]: check for check in await around.checks()}
        assert all(bool(check["remedy"]) == (check["level"] != "ok") for check in found.values())
        # How many files a test may open is the machine's.
        found.pop("open files")
        return found

    async def levels(self) -> dict[str, str]:
        """Of the checks that find something."""
        return {name: check["level"] for name, check in (await self.checks()).items() if check["level"] != "ok"}


async def test_a_broker_that_is_well_has_nothing_to_mend() -> None:
    assert await Inside().levels() == {}


async def test_messages_that_died_lately_are_told_with_their_queues() -> None:
    inside = Inside()
    seen = picture({"jobs": {"dead_lettered": 3}, "mail": {}})
    taken = Snapshot(names=seen.names, columns=seen.columns, totals=seen.totals, taken_at=0.0)
    list(inside.deaths.steps(taken, None))
    found = (await inside.checks())["dead letters"]
    assert (found["level"], found["queues"]) == ("warn", ["jobs"])
    assert found["text"] == "3 messages became dead letters in the last 15 minutes in queue jobs"


async def test_so_many_deaths_that_the_overview_has_an_alarm_are_among_the_alarms() -> None:
    inside = Inside()
    seen = picture({"jobs": {"dead_lettered": DEATHS_ALARM}, "mail": {"dead_lettered": DEATHS_ALARM - 1}})
    taken = Snapshot(names=seen.names, columns=seen.columns, totals=seen.totals, taken_at=0.0)
    list(inside.deaths.steps(taken, None))
    assert await inside.levels() == {"dead letters": "warn", "alarms": "fail"}
    told = (await inside.checks())["alarms"]["text"]
    assert told == "1,000 messages became dead letters in the last 15 minutes in queue jobs"


async def test_an_open_broker_on_the_network() -> None:
    inside = Inside()
    inside.listeners = [listener("127.0.0.1"), listener("0.0.0.0")]
    found = (await inside.checks())["authentication"]
    assert (found["level"], "0.0.0.0:2925" in found["text"]) == ("fail", True)
    assert "auth.users" in found["remedy"]
    inside.authentication = True
    assert await inside.levels() == {}


@pytest.mark.parametrize(
    ("storage", "level"),
    [
        (stats(9 * GIB), "warn"),
        (stats(GIB // 2, 4 * GIB), "warn"),
        (stats(GIB // 8), "fail"),
        (stats(50 * GIB, full="the disk is full; free some space"), "fail"),
        (stats(11 * GIB), None),
        (None, None),
    ],
)
async def test_a_disk_that_is_nearly_full(storage: StorageStats | None, level: str | None) -> None:
    inside = Inside()
    inside.status.storage = storage
    assert (await inside.levels()).get("disk") == level


async def test_no_memory_limit_and_slow_flushes() -> None:
    inside = Inside()
    inside.settings = Settings()
    for _ in range(10):
        inside.metrics.fsync_seconds.observe(0.04)
    assert await inside.levels() == {"memory limit": "warn", "flush": "warn"}
    for _ in range(20):
        inside.metrics.fsync_seconds.observe(0.002)
    assert await inside.levels() == {"memory limit": "warn"}


async def test_a_disk_that_has_become_slow_after_months_of_fast_flushes() -> None:
    inside = Inside()
    flushes = inside.metrics.fsync_seconds
    for _ in range(1_000):
        flushes.observe(0.002)
    inside.flushes.note(0.0, flushes)
    for _ in range(10):
        flushes.observe(0.04)
    inside.flushes.note(LATENCY_WINDOW_S, flushes)
    assert await inside.levels() == {"flush": "warn"}
    assert "of the last minute" in (await inside.checks())["flush"]["text"]
    inside.flushes.note(2 * LATENCY_WINDOW_S, flushes)
    inside.flushes.note(3 * LATENCY_WINDOW_S, flushes)
    found = (await inside.checks())["flush"]
    assert (found["level"], "since the start" in found["text"]) == ("ok", True)


async def test_queues_that_nobody_reads_that_are_stuck_and_that_are_full() -> None:
    inside = Inside()
    inside.queues = {f"lonely-{number}": {"ready": 1} for number in range(9)}
    inside.queues |= {"stuck": {"ready": 1, "consumers": 1}, "full": {"filled": 100}}
    inside.still_ms = {9: 60_000}
    found = await inside.checks()
    assert await inside.levels() == {"consumers": "warn", "stuck queues": "warn", "full queues": "warn"}
    assert "and 4 more" in found["consumers"]["text"]


async def test_records_that_cannot_be_kept() -> None:
    inside = Inside()
    inside.history_trouble, inside.audit_trouble = "it is damaged", "it cannot be written; free space there"
    found = await inside.checks()
    assert await inside.levels() == {"history": "warn", "audit": "fail"}
    assert found["audit"]["remedy"] == "free space there"
    inside.audit_trouble = ""
    inside.settings = inside.settings.model_copy(update={"audit": "off"})
    assert (await inside.levels())["audit"] == "warn"


async def test_what_the_broker_alarms_of() -> None:
    inside = Inside()
    inside.status.clock_ahead_ms = 60_000
    assert await inside.levels() == {"alarms": "fail"}


@pytest.mark.parametrize(("days", "level"), [(400, "ok"), (15, "ok"), (10, "warn"), (0, "warn"), (-1, "fail")])
def test_the_days_of_a_certificate(days: int, level: str) -> None:
    [check] = _certificates([listener("127.0.0.1", Path("c.pem"))], [(-DAY_MS, days * DAY_MS + DAY_MS // 2)], 0)
    assert check["level"] == level
    assert str(max(days, 0)) in check["text"] or days < 0


def test_a_certificate_that_is_not_valid_yet() -> None:
    """A new one, on a machine whose clock is behind: every client refuses it."""
    [check] = _certificates([listener("127.0.0.1", Path("c.pem"))], [(DAY_MS, 90 * DAY_MS)], DAY_MS - 1)
    assert (check["level"], "from 1970-01-02T00:00:00.000Z on" in check["text"]) == ("fail", True)
    assert "clock" in check["remedy"]
    [check] = _certificates([listener("127.0.0.1", Path("c.pem"))], [(DAY_MS, 90 * DAY_MS)], DAY_MS)
    assert check["level"] == "ok"


async def test_a_certificate_whose_file_cannot_be_read(tmp_path: Path) -> None:
    inside = Inside()
    inside.listeners = [ListenerFacts("native", "127.0.0.1", 1, tmp_path / "none.pem", lambda: 0)]
    assert await inside.levels() == {"certificate of native:1": "fail"}
    (tmp_path / "none.pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    assert await inside.levels() == {"certificate of native:1": "fail"}
