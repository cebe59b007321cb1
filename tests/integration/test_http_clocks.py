"""What the HTTP API does by the second: replays with a rate, limits of requests, what a cursor is behind, tails. The
clocks are the test's."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import vibemq
from tests.integration.access import PASSWORD
from tests.integration.http_api import ApiClient, everybody, serving
from tests.integration.test_http_streams import reading
from tests.waiting import until
from vibemq.testing.timed_broker import TimedBroker
from vibemq.web.api.guardrails.rates import BURST, CHANGE_COSTS
from vibemq.web.api.streams import tail as tails

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiClient]:
    async with serving(tmp_path, broker_type=TimedBroker) as api:
        yield api


# -- delays and times to live -------------------------------------------------------------------------------------


def said_in_headers(body: str, **times: int) -> dict[str, Any]:
    names = {f"VibeMQ-{name.replace('_', '-')}": str(value) for name, value in times.items()}
    return {"content": body, "headers": {"content-type": "application/octet-stream", **names}}


def said_in_json(body: str, **times: int) -> dict[str, Any]:
    return {"json": {"messages": [{"payload": body, **times}]}}


def said_in_lines(body: str, **times: int) -> dict[str, Any]:
    line = json.dumps({"payload": body, **times})
    return {"content": line, "headers": {"content-type": "application/x-ndjson"}}


@pytest.mark.parametrize("said", [said_in_headers, said_in_json, said_in_lines])
async def test_delay_and_ttl_count_from_the_publish_on_a_connection_that_is_kept(
    api: ApiClient, said: Callable[..., dict[str, Any]]
) -> None:
    broker, connections = api.broker, set[Any]()
    assert isinstance(broker, TimedBroker)

    async def publish(queue: str, body: str, **times: int) -> None:
        response = await api.ask("POST", f"/queues/{queue}/messages", **said(body, **times))
        assert response.is_success, response.text
        connections.add(response.extensions["network_stream"].get_extra_info("client_addr"))

    async def fetched(most: int) -> list[str]:
        await broker.time_has_moved()
        shown = await api.done("POST", "/queues/q/deliveries", json={"max": most})
        return [message["payload"] for message in shown["items"]]

    for _ in range(150):
        await publish("busy", "x")
        broker.advance_unseen(1)
    await publish("q", "later", delay_ms=400)
    await publish("q", "short", ttl_ms=4_000)
    await publish("q", "never", ttl_ms=4_000)
    assert len(connections) == 1, "requests had connections of their own"
    assert await fetched(1) == ["short"], "a ttl of 4 s is not over, nor is a delay of 0.4 s"
    broker.advance(0.4)
    broker.advance(3.6)
    assert await fetched(5) == ["later"], "both are over now"


# -- replays ------------------------------------------------------------------------------------------------------


async def reject_all(api: ApiClient, queue: str, count: int) -> None:
    await api.done("PUT", f"/queues/{queue}", json={"dead_letter": True})
    async with vibemq.connect(api.broker.url) as mq:
        await mq.publish_many(queue, [b"%d" % number for number in range(count)])
        left = count
        while left:
            for message in await mq.fetch(queue, max=min(left, 500), timeout=30):
                message.reject(f"no {'stock' if left % 2 else 'address'}")
                left -= 1
        await until(lambda: (info := api.broker.queue_info(queue)) is not None and info.dead == count)


class Replay:
    """A job of the broker, and its clock."""

    def __init__(self, api: ApiClient, path: str) -> None:
        self._api = api
        self._path = path

    async def at(self) -> dict[str, Any]:
        job: dict[str, Any] = await self._api.done("GET", self._path)
        return job

    async def done(self) -> int:
        count: int = (await self.at())["done"]
        return count

    async def change(self, **to: Any) -> dict[str, Any]:
        job: dict[str, Any] = await self._api.done("PATCH", self._path, json=to)
        return job

    async def after(self, seconds: float) -> int:
        """How many letters it has done in so many seconds, which pass in steps of 100 ms."""
        await until(self._sleeps)
        before = await self.done()
        broker = self._api.broker
        assert isinstance(broker, TimedBroker)
        for _ in range(round(seconds * 10)):
            broker.advance(0.1)
            await until(self._sleeps)
        return await self.done() - before

    def _sleeps(self) -> bool:
        """Until its next letters may go."""
        workers = self._api.broker._running().job_runner._workers.values()
        return bool(workers) and all(worker.due is not None and not worker._nudge.is_set() for worker in workers)


@pytest.mark.parametrize("letters", [5_000, pytest.param(20_000, marks=pytest.mark.long)])
async def test_a_replay_follows_its_rate_and_whoever_changes_it_and_does_what_its_preview_said(
    api: ApiClient, letters: int
) -> None:
    rate = letters // 10
    await reject_all(api, "q", letters)
    told = await api.done("POST", "/dead-letters/preview", json={"filter": {"queue": "q"}, "rate": rate})
    assert (told["count"], told["exact"], told["duration_ms"]) == (letters, True, 10_000)
    assert [(target["queue"], target["count"]) for target in told["targets"]] == [("q", letters)]
    started = await api.done("POST", "/jobs", json={"kind": "replay", "filter": {"queue": "q"}, "rate": rate})
    replay = Replay(api, f"/jobs/{started['job']}")
    assert await replay.after(2) == pytest.approx(2 * rate, rel=0.05)
    assert (await replay.at())["rate_now"] == pytest.approx(rate, rel=0.1)
    await replay.change(rate=rate // 4)
    assert await replay.after(2) == pytest.approx(rate // 2, rel=0.05)
    paused = await replay.change(state="paused")
    assert isinstance(api.broker, TimedBroker)
    api.broker.advance(60)
    assert await replay.done() == paused["done"]
    await replay.change(state="running", rate=rate)
    # The minute is not made up for.
    assert await replay.after(2) == pytest.approx(2 * rate, rel=0.05)
    cancelled = await replay.change(state="cancelled")
    queue = await api.done("GET", "/queues/q")
    back = cancelled["done"]
    assert (cancelled["state"], queue["ready"], queue["dead"]) == ("cancelled", back, letters - back)
    told = await api.done("POST", "/dead-letters/preview", json={"filter": {"queue": "q"}})
    assert told["count"] == queue["dead"]
    path = f"/jobs/{(await api.done('POST', '/jobs', json={'kind': 'replay', 'filter': {'queue': 'q'}}))['job']}"
    rest = Replay(api, path)

    async def has_ended() -> bool:
        return bool((await rest.at())["state"] == "done")

    await until(has_ended)
    ended, queue = await rest.at(), await api.done("GET", "/queues/q")
    assert (ended["selected"], ended["done"], ended["skipped"]) == (told["count"], told["count"], 0)
    assert (queue["ready"], queue["dead"]) == (letters, 0)


# -- limits -------------------------------------------------------------------------------------------------------


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


async def taken(api: ApiClient, method: str, path: str, **more: Any) -> tuple[int, int]:
    """How many requests are answered before one is refused, and the seconds that the refusal tells."""
    for count in range(10_000):
        response = await api.ask(method, path, **more)
        if response.status_code == 429:
            assert response.json()["code"] == "RATE_LIMITED"
            return count, int(response.headers["retry-after"])
        assert response.is_success, response.text
    raise AssertionError("nothing was refused")


async def test_limits_of_requests_are_exact_and_retry_after_is_true(tmp_path: Path) -> None:
    per_second = 20
    async with serving(tmp_path, requests_per_second=per_second) as api:
        web = api.broker._listeners.web
        assert web is not None
        assert web._api is not None
        clock = web._api.app.rates._monotonic = Clock()
        reads = partial(taken, api, "GET", "/session")
        count, wait_s = await reads()
        assert count == per_second * BURST
        clock.now_s += 2.5
        assert (await reads())[0] == per_second * 2.5
        clock.now_s += wait_s
        assert (await api.get("/session")).status_code == 200
        clock.now_s += 1_000
        changes = partial(taken, api, "PUT", "/queues/q", json={"durability": "transient"})
        count, wait_s = await changes()
        assert count == per_second / CHANGE_COSTS * BURST
        assert (await api.get("/session")).status_code == 200
        clock.now_s += 1.5
        assert (await changes())[0] == per_second / CHANGE_COSTS * 1.5
        clock.now_s += wait_s
        await api.done("PUT", "/queues/q", json={"durability": "transient"})
        await reads()
        assert api.broker.report.metrics.rate_limited == 5, "each answer 429 is counted"
        for page in ("/livez", "/readyz", "/startupz", "/metrics", "/metrics/prometheus", "/health/"):
            assert (await api.http.get(page)).status_code == 200


# -- logins -------------------------------------------------------------------------------------------------------


async def test_sessions_and_codes_end_while_the_machine_is_suspended(tmp_path: Path) -> None:
    """The broker's clock goes on then; timers of the loop, and what follows them, stand still."""
    async with serving(tmp_path, auth=everybody(), broker_type=TimedBroker) as api:
        assert isinstance(api.broker, TimedBroker)

        async def status() -> int:
            return (await api.get("/session")).status_code

        await api.done("POST", "/session", json={"user": "owner", "password": PASSWORD})
        api.broker.advance(1_799)
        assert await status() == 200
        api.broker.advance(1_799)
        assert await status() == 200
        api.broker.advance(1_801)
        assert await status() == 401
        api.http.cookies.clear()
        code = (await api.done("POST", "/session/codes", "owner"))["code"]
        late = (await api.done("POST", "/session/codes", "owner"))["code"]
        api.broker.advance(59)
        assert (await api.ask("POST", "/session", json={"code": code})).is_success
        api.http.cookies.clear()
        api.broker.advance(1)
        assert await api.code("POST", "/session", json={"code": late}) == (401, "AUTH_FAILED")


# -- cursors ------------------------------------------------------------------------------------------------------


async def test_what_a_cursor_is_behind_is_told_as_of_now(api: ApiClient) -> None:
    """A page that asks every two seconds is never further behind than that. No clock moves here."""
    await api.done("PUT", "/queues/q", json={"durability": "transient"})
    async with vibemq.connect(api.broker.url) as mq:
        epoch = (await mq.admin("group.join", queue="q", group="job", start="earliest"))["epoch"]

        async def backlog() -> list[int]:
            return [row["backlog"] for row in (await api.done("GET", "/cursors"))["items"]]

        async def is_there() -> bool:
            return len(await backlog()) == 1

        await until(is_there)
        for count in (1, 500, 4_000):
            before = (await backlog())[0]
            await mq.publish_many("q", [b"x"] * count)
            assert await backlog() == [before + count]
        await mq.admin("group.commit", queue="q", group="job", epoch=epoch, sequence=4_001)
        assert await backlog() == [501]


# -- tails --------------------------------------------------------------------------------------------------------


class Ticks:
    """In place of asyncio: what waits goes on when the test moves the clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.looks = 0
        """How often somebody has begun to wait."""
        self._moved = asyncio.Event()

    def get_running_loop(self) -> "Ticks":
        return self

    def time(self) -> float:
        return self.now_s

    def move(self, seconds: float) -> None:
        self.now_s += seconds
        self._moved.set()
        self._moved = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.looks += 1
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            await self._moved.wait()


async def test_a_tail_shows_a_few_of_very_many_and_leaves_nothing_behind(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """5,000 messages come for each second of the clock that the tail follows."""
    per_second, seconds = 5_000, 4
    await api.done("PUT", "/queues/q", json={"durability": "transient"})
    clock = Ticks()
    monkeypatch.setattr(tails, "asyncio", clock)
    async with vibemq.connect(api.broker.url) as mq, reading(api, "/queues/q/tail") as events:
        await until(lambda: api.broker._running().committer.taps)
        published = 0
        await until(lambda: clock.looks > 0)
        for _ in range(seconds * tails.FLUSHES_PER_SECOND):
            looks, at_once = clock.looks, per_second // tails.FLUSHES_PER_SECOND // 2
            for _ in range(2):
                await mq.publish_many("q", [b"x"] * at_once)
                published += at_once
                clock.move(0.5001 / tails.FLUSHES_PER_SECOND)
            await until(partial(_has_looked, clock, looks))

        def told() -> int:
            return sum(len(data["messages"]) + data["skipped"] for data in events.of("messages"))

        clock.move(1)
        await until(lambda: told() == published == per_second * seconds)
        shown = [message["sequence"] for data in events.of("messages") for message in data["messages"]]
        # One frame more than there were: the first goes at once.
        assert 0.9 * tails.PER_SECOND_MAX * seconds <= len(shown) <= tails.PER_SECOND_MAX * seconds + 10
        assert shown == sorted(set(shown))
    await until(lambda: not api.broker._running().committer.taps)
    queue = await api.done("GET", "/queues/q")
    assert (queue["ready"], queue["in_flight"], queue["consumers"]) == (per_second * seconds, 0, 0)
    assert queue["counters"]["delivered"] == 0
    assert (await api.done("GET", "/queues/q/consumers"))["items"] == []


def _has_looked(clock: Ticks, looks: int) -> bool:
    return clock.looks > looks
