"""What an operator sees of a real broker by HTTP: every metric, and never at the expense of the messages."""

import re
import time
import urllib.request
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from prometheus_client.parser import text_string_to_metric_families

import vibemq
from tests.waiting import until
from tests.watchdog import HOLD_S_MAX, longest_hold_s
from vibemq import plugins
from vibemq.config import Http, Listener, Settings, StorageChoice
from vibemq.model.commands import CreateQueue
from vibemq.model.options import Durability, QueueOptions
from vibemq.model.records import GroupCreated, MessagesAdded, QueueCreated
from vibemq.model.rows import Rows, pack_row
from vibemq.server.broker import Broker
from vibemq.server.monitoring.prometheus import HISTOGRAMS, METRICS
from vibemq.testing.timed_broker import TimedBroker

pytestmark = pytest.mark.anyio

QUEUES = 10_000
SCRAPE_SHARE_MAX = 0.01
SCRAPE_PERIOD_S = 15
ATTEMPTS = 5


def settings(data_dir: Path, provider: str = "lmdb") -> Settings:
    return Settings(
        data_dir=data_dir,
        storage=StorageChoice(provider=provider),
        listeners=(Listener(port=0),),
        http=Http(port=0),
    )


async def get(broker: Broker, path: str) -> str:
    assert broker.http_address is not None
    host, port = broker.http_address

    def fetch() -> str:
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=60) as answer:
            return str(answer.read().decode())

    return await to_thread.run_sync(fetch)


# -- every metric ---------------------------------------------------------------------------------------------------


async def test_a_broker_with_traffic_has_a_sample_of_every_metric(tmp_path: Path) -> None:
    async with Broker(settings=settings(tmp_path / "data")) as broker, vibemq.connect(broker.url) as mq:
        await mq.publish("jobs", b"x")
        await mq.create_queue("history", retention="log")
        await mq.publish("history", b"x")
        await mq.admin("group.join", queue="history", group="readers")
        await until(lambda: broker.status.storage is not None)
        page = await get(broker, "/metrics/prometheus")
    families = {family.name: family for family in text_string_to_metric_families(page)}
    for metric in METRICS:
        family = families[metric.name.removesuffix("_total")]
        assert family.type == metric.kind, metric.name
        assert family.documentation == metric.help
        assert family.samples, metric.name
        assert {tuple(sample.labels) for sample in family.samples} == {metric.by}, metric.name
    for name, _, _ in HISTOGRAMS:
        assert families[name].samples, name
    assert len(families) == len(METRICS) + len(HISTOGRAMS)


async def test_a_broker_that_nobody_has_reached_has_a_sample_of_every_listener(tmp_path: Path) -> None:
    async with Broker(settings=settings(tmp_path / "data")) as broker:
        page = await get(broker, "/metrics/prometheus")
    assert 'vibemq_connections{protocol="native"} 0\n' in page


# -- many queues ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
async def crowded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Broker]:
    """A broker with very many queues."""
    async with Broker(settings=settings(tmp_path_factory.mktemp("crowded"), "memory")) as broker:
        assert broker._parts is not None
        options = QueueOptions(durability=Durability.TRANSIENT)
        for first in range(0, QUEUES, 500):
            numbers = range(first, first + 500)
            commands = [CreateQueue(0, None, f"queue-{number:05}", options) for number in numbers]
            broker._parts.decider.decide(commands)
            await anyio.sleep(0)
        yield broker


@pytest.mark.parametrize("path", ["/health/", "/metrics/", "/metrics/prometheus"])
async def test_no_page_holds_the_loop_however_many_queues_there_are(crowded: Broker, path: str) -> None:
    page = await get(crowded, path)
    assert str(QUEUES) in page

    async def forget_the_last(attempt: int) -> str:
        crowded.report.snapshots.attach(crowded.report.snapshots._observed)
        return path

    assert await longest_hold_s(partial(get, crowded), forget_the_last) <= HOLD_S_MAX


async def test_a_scrape_now_and_then_costs_next_to_nothing(crowded: Broker) -> None:
    costs = []
    for _ in range(ATTEMPTS):
        crowded.report.snapshots.attach(crowded.report.snapshots._observed)
        before = time.process_time()
        page = await crowded.report.prometheus()
        costs.append(time.process_time() - before)
        if costs[-1] <= SCRAPE_SHARE_MAX * SCRAPE_PERIOD_S:
            break
    assert min(costs) <= SCRAPE_SHARE_MAX * SCRAPE_PERIOD_S
    assert len(re.findall(rb"^vibemq_queue_depth\{", page, re.M)) == 201


# -- a clock that was wrong -------------------------------------------------------------------------------------------

YEAR_MS = 365 * 86_400_000
DAY_S = 86_400


def write_a_year_ahead(data_dir: Path, provider: str) -> None:
    """A store with one message, as a broker leaves it whose clock is a year ahead."""
    plugin = plugins.find("storage", provider)
    storage = plugin.create(data_dir, plugin.settings())
    storage.open()
    at = int(time.time() * 1000) + YEAR_MS
    queue = QueueCreated(1, "jobs", QueueOptions(), at, "ab" * 16)
    message = MessagesAdded(1, 1, at, Rows.of([pack_row("1", b"x")]))
    storage.append([queue, GroupCreated(1, 0, "", True, 1), message])
    storage.close()


@pytest.mark.parametrize("provider", ["lmdb", "sqlite"])
async def test_what_is_due_tomorrow_waits_after_a_run_with_a_clock_a_year_ahead(
    tmp_path: Path, provider: str, caplog: pytest.LogCaptureFixture
) -> None:
    write_a_year_ahead(tmp_path / "data", provider)
    async with Broker(tmp_path / "data", storage=provider) as broker, vibemq.connect(broker.url) as mq:
        await mq.publish("jobs", b"tomorrow", deliver_at=time.time() + DAY_S)
        info = broker.queue_info("jobs")
        assert info is not None
        assert (info.ready, info.delayed) == (1, 1)
        assert info.oldest_at <= time.time() * 1000
        [alarm] = broker.health()["alarms"]
    said = [record for record in caplog.records if getattr(record, "event", "") == "clock.behind_store"]
    assert [record.levelname for record in said] == ["WARNING"]
    assert re.search(r"the clock was 31,53\d,\d{3} s behind the latest instant in the store", alarm)


async def test_ages_and_figures_follow_the_clock_that_dates_the_messages(tmp_path: Path) -> None:
    """Whoever sets the wall clock makes no message older nor younger: here the broker's clock alone moves."""
    broker = TimedBroker(settings=settings(tmp_path / "data"))
    async with broker, vibemq.connect(broker.url) as mq:
        await mq.publish("jobs", b"1")
        before = await mq.admin("broker.overview")
        broker.advance(3_600)

        async def told() -> list[float]:
            page = (await broker.report.prometheus()).decode()
            depth = await broker.report.queue_depth("jobs")
            rows = (await mq.admin("queue.rows"))["queues"]
            oldest = (await mq.admin("broker.overview"))["oldest"] or {"age_ms": 0}
            return [
                *(float(age_s) for age_s in re.findall(r'age_seconds\{queue="jobs"\} (\S+)', page)),
                0 if depth is None else depth["oldest_age_seconds"],
                *(row["oldest_age_ms"] / 1_000 for row in rows),
                oldest["age_ms"] / 1_000,
            ]

        async def are_true() -> bool:
            return await told() == pytest.approx([3_600] * 4, abs=60)

        await until(are_true)
        after = await mq.admin("broker.overview")
        history = await mq.admin("history.get", range="6h")
    assert after["started_at"] == pytest.approx(before["started_at"], abs=1)
    assert history["restarts"] == [pytest.approx(before["started_at"], abs=1)]
