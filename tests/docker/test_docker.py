"""The image and the compose file on a real engine: what they promise a careful operator."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

import vibemq
from tests.docker.engine import Composition, Container, build, composition, container, why_no_engine
from tests.waiting import until
from vibemq.client.reconnect import ReconnectPolicy
from vibemq.errors import AuthError

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

KILLS = 3
BATCH = 50
GRACE_S = 40
TOKEN = "only-for-this-test"
PATIENT = ReconnectPolicy(initial_delay=0.05, max_delay=0.5, first_connect=True, offline_timeout=120)


@pytest.fixture(scope="module")
def image() -> str:
    if why := why_no_engine():
        pytest.exit(f"docker-test needs a Docker engine: {why}", returncode=1)
    return build()


@pytest.fixture
def broker(image: str) -> Iterator[Container]:
    with container(image) as running:
        running.wait_until_healthy()
        yield running


@pytest.fixture
def compose(image: str, tmp_path: Path) -> Iterator[Composition]:
    token_file = tmp_path / "token.secret"
    token_file.write_text(TOKEN + "\n")
    token_file.chmod(0o644)
    with composition(image, token_file) as files:
        yield files


async def publish_until(stop: anyio.Event, url: str, confirmed: set[int]) -> None:
    """Publish numbered messages; those that the broker confirmed are in `confirmed`."""
    number = 0
    async with vibemq.connect(url, reconnect=PATIENT) as mq:
        await mq.create_queue("ledger", durability="strong")
        while not stop.is_set():
            numbers = range(number, number + BATCH)
            number += BATCH
            report = await mq.publish_many("ledger", [{"n": n, "fill": "x" * 200} for n in numbers])
            confirmed.update(n for index, n in enumerate(numbers) if index not in report.refused)


async def received(url: str, token: str | None = None) -> set[int]:
    """Every number that is in the queue, taken out and acknowledged."""
    numbers: set[int] = set()
    async with vibemq.connect(url, token=token, reconnect=PATIENT) as mq:
        while messages := await mq.fetch("ledger", max=1000, timeout=2):
            for message in messages:
                numbers.add(message.json()["n"])
                message.ack()
    return numbers


async def test_docker_kill_loses_nothing_that_was_confirmed(broker: Container) -> None:
    confirmed: set[int] = set()
    counts = [0]
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(publish_until, stop, broker.url, confirmed)
        for _ in range(KILLS):
            await until(lambda: len(confirmed) >= counts[-1] + 20 * BATCH)
            await to_thread.run_sync(broker.kill)
            counts.append(len(confirmed))
            await to_thread.run_sync(broker.start)
        stop.set()
    assert len(counts) == KILLS + 1
    assert counts == sorted(set(counts)), "nothing was published between two kills"
    lost = confirmed - await received(broker.url)
    assert lost == set(), f"lost {len(lost)} of {len(confirmed)}"


async def test_stop_drains_and_ends_with_0(broker: Container) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.publish_many("ledger", [{"n": n} for n in range(1000)])
        async with mq.subscribe("ledger", prefetch=100) as messages:
            async for message in messages:
                assert message.attempt == 1
                # One is held while the broker goes: it must be given back, not waited for.
                seconds = await to_thread.run_sync(broker.stop, GRACE_S)
                break
            assert seconds < GRACE_S - 5
            assert broker.inspect("{{.State.ExitCode}}") == "0", broker.logs()
            await to_thread.run_sync(broker.start)
    assert await received(broker.url) == set(range(1000))


async def test_it_runs_as_nobody_special_on_a_read_only_root(broker: Container) -> None:
    assert broker.execute("id", "-u") == "10001"
    assert "Read-only file system" in broker.refuses("touch", "/etc/written")
    status = dict(line.split(":\t", 1) for line in broker.execute("cat", "/proc/1/status").splitlines())
    assert int(status["CapEff"], 16) == 0
    assert int(status["CapBnd"], 16) == 0
    assert status["NoNewPrivs"] == "1"


async def test_it_runs_without_any_hardening_too(image: str) -> None:
    with container(image, options=()) as plain:
        plain.wait_until_healthy()
        async with vibemq.connect(plain.url) as mq:
            assert (await mq.publish("q", {"hello": "container"})).sequence == 1


async def test_compose_with_a_token_keeps_its_messages(compose: Composition) -> None:
    compose("up", "--detach", "--wait", "--no-build")
    with pytest.raises(AuthError):
        async with vibemq.connect(compose.url):
            pass
    async with vibemq.connect(compose.url, token=TOKEN) as mq:
        await mq.create_queue("ledger", durability="strong")
        await mq.publish_many("ledger", [{"n": n} for n in range(500)])
    compose("kill")
    compose("up", "--detach", "--wait", "--no-build")
    assert await received(compose.url, TOKEN) == set(range(500))
    compose("stop")
    assert compose.state()["ExitCode"] == 0


async def test_compose_has_a_place_for_backups(compose: Composition) -> None:
    compose("up", "--detach", "--wait", "--no-build")
    async with vibemq.connect(compose.url, token=TOKEN) as mq:
        await mq.publish("ledger", {"n": 1})
    admin = ("exec", "-T", "broker", "vibemq-admin")
    compose(*admin, "backup", "/var/backups/vibemq/backup-1", "--url", f"vibemq://localhost?token={TOKEN}")
    assert "sound" in compose(*admin, "check", "--data-dir", "/var/backups/vibemq/backup-1")
