"""Disks that are full, that fail, and processes that end at the wrong moment: nothing confirmed is lost."""

import os
import resource
import shutil
import signal
from pathlib import Path

import anyio
import pytest

import vibemq
from tests.crash.ledger import BrokerProcess
from tests.integration.conditions import (
    Book,
    accepts,
    broker_on,
    check,
    creates,
    failing,
    fill,
    running,
    serve,
    small_disk,
    small_settings,
    until,
)
from vibemq.client.reconnect import ReconnectPolicy
from vibemq.errors import Blocked, VibeMQError

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PATIENT = ReconnectPolicy(initial_delay=0.02, max_delay=0.2, first_connect=True)
ONE_TRY = ReconnectPolicy(max_attempts=0)
IN_BULK = 20
BIG = 20_000


@pytest.fixture(params=["lmdb", "sqlite"])
def provider(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


async def publish_until_refused(mq: vibemq.Client, book: Book) -> None:
    with anyio.fail_after(60):
        refused = 0
        while refused < 10:
            refused = 0 if await book.publish(mq, "q", 50) else refused + 1


async def publish_for_ever(mq: vibemq.Client, book: Book) -> None:
    while True:
        await book.publish(mq, "q", 5)


async def drain_beside_a_publisher(mq: vibemq.Client, book: Book) -> int:
    """Settle everything, every tenth by rejection, while somebody goes on publishing. How many were rejected."""
    rejected, drained = 0, anyio.Event()

    async def publish() -> None:
        # Its last publish is waited for: one that is cancelled may still be on its way into the queue.
        while not drained.is_set():
            await book.publish(mq, "q", 20, size=3000)
            await anyio.sleep(0.02)

    async with anyio.create_task_group() as tasks, mq.subscribe("q", prefetch=200) as messages:
        tasks.start_soon(publish)
        with anyio.fail_after(60):
            while book.lost:
                async for message in messages:
                    number = message.json()["n"]
                    book.received.add(number)
                    if number % 10:
                        message.ack()
                    else:
                        rejected += 1
                        message.reject("bad")
                    if not book.lost:
                        break
        drained.set()
    return rejected


SMALL_DISK = {
    "lmdb, 64 KiB segments": ("lmdb", "segment_bytes = 65536\ncheckpoint_ms = 500\n"),
    "lmdb, 1 MiB segments": ("lmdb", "segment_bytes = 1048576\ncheckpoint_ms = 500\n"),
    "lmdb, segments as always": ("lmdb", "checkpoint_ms = 500\n"),
    "sqlite": ("sqlite", ""),
}


async def fill_the_store(mq: vibemq.Client, book: Book, disk: Path) -> None:
    """Publish until messages have taken the disk: refused, and checkpointed in between, and refused again."""
    with anyio.fail_after(90):
        refused = 0
        while refused < 60 or (refused < 400 and shutil.disk_usage(disk).free > 4 << 20):
            if await book.publish(mq, "q", 20, size=4000):
                refused = 0
            else:
                refused += 1
                await anyio.sleep(0.02)
    assert book.refusals


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.long] if "MiB" in kind or "KiB" in kind else []) for kind in SMALL_DISK],
)
@pytest.mark.long_where(kind="sqlite")
async def test_an_empty_broker_takes_messages_again_after_a_full_disk(tmp_path: Path, kind: str) -> None:
    """Nothing else is on the disk, nobody helps, with and without a restart after the drain."""
    provider, settings = SMALL_DISK[kind]
    with small_disk(tmp_path / "disk", 32) as disk:
        toml = f"[storage.settings]\n{settings}" if settings else ""
        with running(broker_on(disk / "data", tmp_path, provider=provider, toml=toml)) as broker:
            for restart in (False, True):
                book = Book()
                async with vibemq.connect(broker.url) as mq:
                    await mq.create_queue("q")
                    await fill_the_store(mq, book, disk)
                    await book.drain(mq, "q")
                    assert book.lost == set()
                if restart:
                    assert broker.stop() == 0
                    broker.start()
                async with vibemq.connect(broker.url) as mq:
                    await until(lambda mq=mq: accepts(mq, "q", {"n": -1}), anyio.sleep)  # type: ignore[misc]
                    await mq.purge_queue("q")
            assert broker.stop() == 0
        assert "sound" in check(disk / "data").out


@pytest.mark.parametrize(
    "mebibytes", [24, pytest.param(48, marks=pytest.mark.long), pytest.param(64, marks=pytest.mark.long)]
)
async def test_with_the_settings_as_always_a_drained_disk_takes_as_much_again(
    tmp_path: Path, provider: str, mebibytes: int
) -> None:
    """Without any settings, whether the broker is killed, stopped or left alone between the drain and the messages."""
    with (
        small_disk(tmp_path / "disk", mebibytes) as disk,
        running(broker_on(disk / "data", tmp_path, provider=provider)) as broker,
    ):
        for restart in ("none", "kill", "stop"):
            book = Book()
            async with vibemq.connect(broker.url) as mq:
                await mq.create_queue("q")
                filled = await fill_in_bulk(mq, book)
            if restart == "stop":  # a full store must open as well
                assert broker.stop() == 0
                broker.start()
            async with vibemq.connect(broker.url) as mq:
                await book.drain(mq, "q")
            assert book.lost == set()
            if restart == "kill":
                broker.kill()
                broker.start()
            async with vibemq.connect(broker.url) as mq:
                with anyio.fail_after(60):
                    again = 0
                    while again < filled // 3:
                        taken = await book.publish(mq, "q", IN_BULK, size=BIG)
                        again += taken
                        if not taken:
                            await anyio.sleep(0.1)
                await book.drain(mq, "q")
            assert book.lost == set()
        assert broker.stop() == 0


async def fill_in_bulk(mq: vibemq.Client, book: Book) -> int:
    """Publish until some are refused; how many were taken."""
    taken = 0
    with anyio.fail_after(60):
        while (accepted := await book.publish(mq, "q", IN_BULK, size=BIG)) == IN_BULK:
            taken += accepted
    return taken + accepted


@pytest.mark.long_where(provider="lmdb")
async def test_a_full_disk_is_refused_drained_and_survived(tmp_path: Path, provider: str) -> None:
    with small_disk(tmp_path / "data", 32) as disk:
        settings = "[limits]\ndisk_reserve_bytes = 0\n" + small_settings(provider)
        with running(broker_on(disk, tmp_path, provider=provider, toml=settings)) as broker:
            book = Book()
            async with vibemq.connect(broker.url) as mq:
                await mq.create_queue("q")
                await book.publish(mq, "q", 5000)
                fill(disk / "filler")
                await publish_until_refused(mq, book)
            assert set(book.refusals) <= {"STORAGE_FULL", "BLOCKED"}
            assert "free" in book.refusals["STORAGE_FULL"]
            assert str(disk) in book.refusals["STORAGE_FULL"]

            broker.kill()
            fill(disk / "filler")
            broker.start()
            assert len(book.confirmed) >= 5000
            async with vibemq.connect(broker.url) as mq:
                rejected = await drain_beside_a_publisher(mq, book)
                await book.drain(mq, "q")
                info = await mq.queue_info("q")
                assert info is not None
                assert (info.ready, info.in_flight, info.delayed, info.dead) == (0, 0, 0, rejected)
                # What met the full disk beside a refused publish is owed, and written before anything that follows.
                await until(lambda: creates(mq, "after"), anyio.sleep)
            assert book.lost == set()

            broker.kill()
            broker.start()
            async with vibemq.connect(broker.url) as mq:
                info = await mq.queue_info("q")
                assert info is not None
                assert (info.ready, info.dead) == (0, rejected), "what was settled on the full disk stays settled"
                (disk / "filler").unlink()
                await until(lambda: accepts(mq, "q", {"n": -1}), anyio.sleep)
            assert broker.stop() == 0


async def test_a_disk_above_its_watermark_blocks_publishers_only(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "data", 32) as disk,
        running(broker_on(disk, tmp_path, toml=small_settings("lmdb"))) as broker,
    ):
        async with vibemq.connect(broker.url) as mq:
            book = Book()
            await mq.create_queue("q")
            await book.publish(mq, "q", 100)
            fill(disk / "filler")
            await until(lambda: mq_refuses(mq, "BLOCKED"), anyio.sleep)
            await book.drain(mq, "q")
            assert book.lost == set()
            (disk / "filler").unlink()
            await until(lambda: accepts(mq, "q", {"n": -1}), anyio.sleep)
        assert broker.stop() == 0


async def mq_refuses(mq: vibemq.Client, code: str) -> bool:
    try:
        receipt = await mq.publish("q", {"n": -1})
    except VibeMQError as error:
        return error.code == code
    return receipt.sequence < 0


@pytest.mark.parametrize("ballast", [True, False], ids=["above the ballast", "no ballast"])
@pytest.mark.long_where(provider="lmdb", ballast=True)
@pytest.mark.long_where(provider="sqlite")
async def test_a_limit_of_file_size_is_a_small_disk(tmp_path: Path, provider: str, ballast: bool) -> None:
    """Messages are refused with the limit's name while the store can be drained; then it takes as many again."""
    mebibytes = 80 if ballast and provider == "lmdb" else 20
    least = (mebibytes << 20) // 3 // 50_000
    toml = "" if ballast else "[storage.settings]\nballast_bytes = 0\n"
    prefix = ("prlimit", f"--fsize={mebibytes << 20}")
    broker = broker_on(tmp_path / "data", tmp_path, provider=provider, toml=toml)
    with running(broker, prefix=prefix):
        for restart in (True, False):
            book = Book()
            async with vibemq.connect(broker.url) as mq:
                await mq.create_queue("q")
                # Of the drain before the second time no checkpoint may have got through yet: it is refused until then.
                await fill_to_the_limit(mq, book, least=0 if restart else least)
            assert all("limit" in text or "in this process" in text for text in book.refusals.values()), book.refusals
            assert len(book.confirmed) > least
            if restart:
                assert broker.stop() == 0
                broker.start(prefix=prefix)
            async with vibemq.connect(broker.url) as mq:
                await book.drain(mq, "q")
                assert book.lost == set()
                await until(lambda mq=mq: accepts(mq, "q", {"n": -1}), anyio.sleep)  # type: ignore[misc]
                await mq.purge_queue("q")
        assert broker.stop() == 0
    assert "Traceback" not in broker.log_text()
    assert "restart to recover" not in broker.log_text()
    assert "sound" in check(tmp_path / "data").out


async def fill_to_the_limit(mq: vibemq.Client, book: Book, *, least: int) -> None:
    """Publish until messages are refused by the store and by housekeeping, and more than `least` were accepted."""
    with anyio.fail_after(60):
        while set(book.refusals) != {"BLOCKED", "STORAGE_FULL"} or len(book.confirmed) <= least:
            if not await book.publish(mq, "q", 20, size=50_000):
                await anyio.sleep(0.02)


@pytest.mark.long_where(provider="lmdb")
async def test_a_limit_of_file_size_stays_the_reason(tmp_path: Path, provider: str) -> None:
    """Housekeeping blocks publishers, and still says what to raise."""
    with running(
        broker_on(tmp_path / "data", tmp_path, provider=provider), prefix=("prlimit", "--fsize=1048576")
    ) as broker:
        async with vibemq.connect(broker.url) as mq:
            await until(lambda: mq_refuses(mq, "BLOCKED"), anyio.sleep)
            with pytest.raises(Blocked, match="limit of file size"):
                await mq.publish("q", "x")
        assert broker.stop() == 0


async def test_a_limit_of_file_size_that_is_lowered_under_a_running_broker_is_named(tmp_path: Path) -> None:
    """A journal segment has its whole size from the start; beyond the new limit nothing can be written into it. Whether
    a message or housekeeping meets the limit first decides whether the broker ends or refuses messages."""
    book = Book()
    named = "a file may have 65536 bytes in this process (`ulimit -f`"
    with running(broker_on(tmp_path / "data", tmp_path)) as broker:
        async with vibemq.connect(broker.url) as mq:
            await book.publish(mq, "q", 20, size=5000)
        soft, hard = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (65536, hard))
        refusal = await publish_until_blocked(broker, book)
        if refusal is None:
            assert broker.wait() == 70
            assert named in broker.log_text()
            assert "raise that limit and restart, nothing that was confirmed is lost" in broker.log_text()
        else:
            assert named in str(refusal)
            resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (soft, hard))
            assert broker.stop() == 0
        broker.start()
        async with vibemq.connect(broker.url) as mq:
            await book.drain(mq, "q")
        assert book.lost == set()
        assert broker.stop() == 0


async def publish_until_blocked(broker: BrokerProcess, book: Book) -> Blocked | None:
    """What says that messages are refused for now; None: the broker has ended, or ends."""
    while broker.is_alive:
        try:
            async with vibemq.connect(broker.url, reconnect=ONE_TRY, command_timeout=10) as mq:
                await publish_for_ever(mq, book)
        except Blocked as error:
            return error
        except VibeMQError:
            pass  # It ends, or was too slow to answer: it is asked again.
    return None


def test_a_new_store_on_a_full_disk_is_one_clear_error(tmp_path: Path, provider: str) -> None:
    with small_disk(tmp_path / "data", 2) as disk:
        fill(disk / "filler")
        said = serve(disk, "--storage", provider)
        assert said.code == 1
        assert said.error.startswith("error STORAGE_FULL: ")
        assert str(disk) in said.error
        assert "free" in said.error


@pytest.mark.parametrize(("provider", "durability"), [("lmdb", "strong"), ("lmdb", "weak"), ("sqlite", "strong")])
async def test_after_a_failed_flush_nothing_is_confirmed(tmp_path: Path, provider: str, durability: str) -> None:
    book = Book()
    with running(broker_on(tmp_path / "data", tmp_path, provider=provider, toml="weak_flush_ms = 50")) as broker:
        async with vibemq.connect(broker.url) as mq:
            await mq.create_queue("q", durability=durability)
            await book.publish(mq, "q", 500)
        before = set(book.confirmed)
        with failing(broker.pid, "fdatasync", "EIO", nth=3):
            async with vibemq.connect(broker.url, reconnect=ONE_TRY, command_timeout=10) as mq:
                with pytest.raises(VibeMQError):
                    await publish_for_ever(mq, book)
            assert broker.wait() == 70
        assert "fdatasync" in broker.log_text() or "Input/output error" in broker.log_text()
        broker.start()
        async with vibemq.connect(broker.url) as mq:
            await book.drain(mq, "q")
        assert book.lost == set()
        assert before <= book.confirmed
        assert broker.stop() == 0


@pytest.mark.parametrize(("provider", "call"), [("lmdb", "pwritev,pwritev2"), ("sqlite", "pwrite64")])
async def test_a_failed_write_ends_the_process_and_loses_nothing(tmp_path: Path, provider: str, call: str) -> None:
    book = Book()
    with running(broker_on(tmp_path / "data", tmp_path, provider=provider)) as broker:
        async with vibemq.connect(broker.url) as mq:
            await mq.create_queue("q")
            await book.publish(mq, "q", 500)
        with failing(broker.pid, call, "EIO"):
            async with vibemq.connect(broker.url, reconnect=ONE_TRY, command_timeout=10) as mq:
                with pytest.raises(VibeMQError):
                    await publish_for_ever(mq, book)
            assert broker.wait() == 70
        broker.start()
        async with vibemq.connect(broker.url) as mq:
            await book.drain(mq, "q")
        assert book.lost == set()
        assert broker.stop() == 0


async def test_a_killed_checkpointer_is_started_again(tmp_path: Path) -> None:
    book = Book()
    with running(broker_on(tmp_path / "data", tmp_path, toml=small_settings("lmdb"))) as broker:
        async with vibemq.connect(broker.url) as mq:
            await mq.create_queue("q")

            async def details() -> dict[str, object]:
                found: dict[str, object] = (await mq.admin("broker.info"))["storage"]["details"]
                return found

            async def is_another(pid: object) -> bool:
                now = await details()
                return now["checkpointer_pid"] not in (None, pid) and bool(now["checkpointer_running"])

            for _ in range(2):
                await book.publish(mq, "q", 2000, size=1000)
                await until(lambda: is_another(0), anyio.sleep)
                pid = (await details())["checkpointer_pid"]
                assert isinstance(pid, int)
                os.kill(pid, signal.SIGKILL)
                await book.publish(mq, "q", 2000, size=1000)
                await until(lambda pid=pid: is_another(pid), anyio.sleep)  # type: ignore[misc]

            async def all_applied() -> bool:
                storage = (await mq.admin("broker.info"))["storage"]
                return bool(storage["applied_lsn"] >= storage["last_lsn"] - 1)

            await until(all_applied, anyio.sleep)
            await book.drain(mq, "q")
        assert book.lost == set()
        assert len(book.confirmed) == 8_000
        assert broker.stop() == 0


@pytest.mark.long_where(provider="sqlite")
async def test_sigterm_under_load_loses_nothing_and_blames_no_message(tmp_path: Path, provider: str) -> None:
    """The consumer holds messages when the broker stops: that is no failed delivery of theirs."""
    book = Book()
    with running(broker_on(tmp_path / "data", tmp_path, provider=provider)) as broker:
        async with vibemq.connect(broker.url) as mq:
            await mq.create_queue("q", max_attempts=1)
            async with anyio.create_task_group() as tasks:

                async def publish() -> None:
                    async with vibemq.connect(broker.url, reconnect=PATIENT) as other:
                        while True:
                            await book.publish(other, "q", 50)

                async def hold() -> None:
                    async with mq.subscribe("q", prefetch=300) as held:
                        async for _ in held.batches():
                            pass

                tasks.start_soon(publish)
                tasks.start_soon(hold)
                await until(lambda: len(book.confirmed) > 1000, anyio.sleep)
                code = await anyio.to_thread.run_sync(broker.stop)
                tasks.cancel_scope.cancel()
        assert code == 0
        broker.start()
        async with vibemq.connect(broker.url) as mq:
            async with mq.subscribe("q", prefetch=1000) as messages:
                with anyio.fail_after(60):
                    async for message in messages:
                        book.received.add(message.json()["n"])
                        message.ack()
                        if not book.lost:
                            break
            info = await mq.queue_info("q")
            assert info is not None
            assert info.dead == 0
        assert broker.stop() == 0
