"""No room, no descriptors, no right to grow: publishes are refused with a clear error, everything else goes on.

Each function plays one shortage on one provider, and returns what went wrong. Unlike the sweep of inject.py, these are
the real thing: a disk of its own that is full to the last byte, and limits that the kernel enforces.
"""

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

import vibemq
from tests.crash.ledger import BrokerProcess
from tests.integration.conditions import creates, take, write_until_full
from tests.proof.account import Account, Contents, judge
from tests.proof.contents import drained, open_store
from tests.proof.drained_stores import IN_PART, MEBIBYTES, WHOLLY, Drain, fill_and_drain
from tests.proof.forked import ChildDied, in_fork
from tests.proof.load import ONE_CONNECTION, Load, Plan
from tests.unit.storage.full_store import FullStore
from vibemq.errors import ErrorCode, StorageFull, VibeMQError
from vibemq.model.options import QueueOptions
from vibemq.model.records import GroupCreated, MessagesAdded, QueueCreated
from vibemq.model.rows import Rows, pack_row
from vibemq.storage.local.ballast import BALLAST_FILE

SETTINGS = {
    "lmdb": "segment_bytes = 65536\nballast_bytes = 1048576\ncheckpoint_lag_bytes = 1048576\ncheckpoint_ms = 500\n",
    "sqlite": "wal_bytes = 1048576\nballast_bytes = 1048576\n",
}
DISK_MEBIBYTES = 24
BALLAST_BYTES = 1 << 20
ROOM_WITHOUT_BALLAST = 15 << 17
"""Free bytes, too few for the ballast, which is made where there is room for it twice, and enough for messages."""
SMALL_SEGMENTS = {"lmdb": {"segment_bytes": 1 << 16}, "sqlite": {"wal_bytes": 1 << 16}}
NO_WATERMARKS = "[limits]\ndisk_reserve_bytes = 0\n"
FILLED_MEBIBYTES = 32
SMALL_BALLAST = {
    provider: text.replace("ballast_bytes = 1048576", "ballast_bytes = 262144") for provider, text in SETTINGS.items()
}
"""So that messages alone come to the second watermark, 90 % of such a disk."""
FILLING = {"is": "x" * 100_000}
REFUSALS_IN_A_ROW = 20
"""In more than two rounds of housekeeping, which finds out about watermarks."""
ATTEMPTS = 100
"""Ten seconds."""
FILE_BYTES_MAX = 2 << 20
DESCRIPTORS = 96
REFUSALS_WANTED = 40
PATIENCE_S = 60.0


@dataclass(slots=True)
class Outcome:
    issued: int = 0
    confirmed: int = 0
    lost: int = 0
    resurrected: int = 0
    complaints: list[str] = field(default_factory=list)

    def judge(self, account: Account, contents: Contents, when: str) -> None:
        verdict = judge(account, contents, power_cut=False)
        self.confirmed += verdict.confirmed
        self.lost += len(verdict.lost)
        self.resurrected += len(verdict.resurrected)
        if not verdict.sound:
            self.complaints.append(f"{when}: {verdict.sentence()}")


def full_disk(work: Path, provider: str) -> Outcome:
    """From 100 % full to empty, with a kill and a start at 0 bytes free in between."""
    outcome = Outcome()
    with _memory_disk(work / "small") as disk, _broker(work, disk, provider) as broker:
        account = Account()
        broker.start()
        anyio.run(_publish_until_refused, broker, account, Plan(1, consume=False, publishers=2))
        write_until_full(disk / "filler")
        anyio.run(_publish_until_refused, broker, account, Plan(2, consume=False, publishers=2))
        broker.kill()
        write_until_full(disk / "filler")
        broker.start()
        outcome.judge(account, anyio.run(drained, broker.url), "drained from a full disk")
        anyio.run(_write_what_is_owed, broker, outcome)
        broker.kill()
        write_until_full(disk / "filler")
        broker.start()
        left = anyio.run(drained, broker.url)
        if any(copy.place.where == "queue" for copies in left.copies.values() for copy in copies):
            outcome.complaints.append("what was drained on a full disk came back after a kill")
        (disk / "filler").unlink()
        anyio.run(_publish_again, broker, outcome)
        if (code := broker.stop()) != 0:
            outcome.complaints.append(f"it ended with code {code}: {broker.log_text()}")
    return outcome


def no_ballast(work: Path, provider: str) -> Outcome:
    """Room for messages and none for the ballast: the store itself takes none, a second before the broker's watermarks.

    What settles messages is taken at once, and messages are when there is room for both.
    """
    outcome = Outcome()
    with _memory_disk(work / "small") as disk:
        write_until_full(disk / "filler")
        os.truncate(disk / "filler", (disk / "filler").stat().st_size - ROOM_WITHOUT_BALLAST)
        outcome.complaints += in_fork(lambda: _append_without_ballast(disk, provider))
    return outcome


def _append_without_ballast(disk: Path, provider: str) -> list[str]:
    store, _ = open_store(disk / "data", provider, ballast_bytes=BALLAST_BYTES, **SMALL_SEGMENTS[provider])
    message = [MessagesAdded(1, 1, 1, Rows.of([pack_row("m", b"1")]))]
    complaints = []
    try:
        store.append([QueueCreated(1, "q", QueueOptions(), 1, "a" * 32), GroupCreated(1, 0, "", True, 1)])
    except StorageFull as error:
        complaints.append(f"what is no message is refused, too: {error}")
    try:
        store.append(message)
        complaints.append("it takes messages without a ballast")
    except StorageFull:
        (disk / "filler").unlink()
        store.maintain()
        store.append(message)
    store.close()
    return complaints


def opened_after_a_drain(work: Path, provider: str) -> Outcome:
    """The drain of a full disk has taken the ballast, the store is closed, and others have filled the disk again."""
    outcome = Outcome()
    with _memory_disk(work / "small") as disk:
        outcome.confirmed = in_fork(lambda: _drain_a_full_store(disk, provider))
        if (disk / "data" / BALLAST_FILE).exists():
            outcome.complaints.append("the drain has not taken the ballast")
        for _ in range(2):
            write_until_full(disk / "filler")
            outcome.complaints += in_fork(lambda: _open_and_settle(disk, provider, outcome.confirmed))
    return outcome


def _drain_a_full_store(disk: Path, provider: str) -> int:
    """How many messages the store had confirmed."""
    store, _ = open_store(disk / "data", provider, ballast_bytes=BALLAST_BYTES, **SMALL_SEGMENTS[provider])
    store.close()
    full = FullStore(store, body_bytes=300, batch_bytes=100_000)
    full.fill()
    write_until_full(disk / "filler")
    full.settle(0.9)
    store.close()
    return full.next - 1


def _open_and_settle(disk: Path, provider: str, confirmed: int) -> list[str]:
    try:
        store, state = open_store(disk / "data", provider, ballast_bytes=BALLAST_BYTES, **SMALL_SEGMENTS[provider])
    except VibeMQError as error:
        return [f"on a full disk it does not open after a drain: {error}"]
    if state.queues[1].next_sequence != confirmed + 1:
        return [f"{confirmed} messages were confirmed, and the next one is {state.queues[1].next_sequence}"]
    store.append([QueueCreated(100 + state.lsn, f"q{state.lsn}", QueueOptions(), 1, "a" * 32)])
    store.close()
    return []


def messages_alone(work: Path, provider: str) -> Outcome:
    """A disk that nothing else fills: messages are refused before the last room, which checkpoints and drains need."""
    outcome = Outcome()
    with _memory_disk(work / "small") as disk, _broker(work, disk, provider) as broker:
        account = Account()
        broker.start()
        anyio.run(_publish_until_refused, broker, account, Plan(5, consume=False, publishers=2))
        anyio.run(_checkpoint, broker, outcome)
        if not (disk / BALLAST_FILE).exists():
            outcome.complaints.append("messages alone have cost the ballast")
        broker.kill()
        broker.start()
        outcome.judge(account, anyio.run(drained, broker.url), "drained from a disk full of messages")
        anyio.run(_publish_again, broker, outcome)
        if (code := broker.stop()) != 0:
            outcome.complaints.append(f"it ended with code {code}: {broker.log_text()}")
    return outcome


def drained_and_full_again(work: Path, provider: str) -> Outcome:
    """A disk that messages have filled takes some again once they are drained, in part or wholly, without and with a
    restart: it is no longer full for the store, nor for the broker's watermarks."""
    outcome, kept = Outcome(), set[str]()
    with (
        _memory_disk(work / "small", FILLED_MEBIBYTES) as disk,
        _broker(work, disk / "data", provider, "", SMALL_BALLAST) as broker,
    ):
        broker.start()
        for part, when in ((0.4, "drained in part"), (1.0, "drained wholly")):
            anyio.run(_fill, broker, kept, provider, outcome)
            anyio.run(_take, broker, kept, int(part * len(kept)))
            for restarted in ("", " and started again"):
                anyio.run(_publish_soon, broker, kept, f"{when}{restarted}", outcome)
                if outcome.complaints:
                    return outcome
                if (code := broker.stop()) != 0:
                    outcome.complaints.append(f"it ended with code {code}: {broker.log_text()}")
                broker.start()
        found = anyio.run(drained, broker.url).copies.keys()
        outcome.lost, outcome.resurrected = len(kept - found), len(found - kept)
        if outcome.lost or outcome.resurrected:
            outcome.complaints.append(f"lost: {sorted(kept - found)[:9]}, back: {sorted(found - kept)[:9]}")
    return outcome


def drained_in_part(work: Path, provider: str) -> Outcome:
    """The same of a store alone, where so much is left that the store keeps its size, with segments of any size."""
    return _fill_and_drain(work, provider, IN_PART)


def drained_wholly(work: Path, provider: str) -> Outcome:
    """A store alone that may give the disk back what it does not use."""
    return _fill_and_drain(work, provider, WHOLLY)


def _fill_and_drain(work: Path, provider: str, drains: Sequence[Drain]) -> Outcome:
    outcome = Outcome()
    for drain in drains:
        if drain.segment_bytes and provider == "sqlite":
            continue
        with _memory_disk(work / "small", MEBIBYTES) as disk:
            try:
                outcome.confirmed += in_fork(partial(fill_and_drain, disk / "data", provider, drain))
            except (RuntimeError, ChildDied) as error:
                outcome.complaints.append(f"{drain}: {error}")
    return outcome


def file_limit(work: Path, provider: str) -> Outcome:
    """A limit of file size (what a quota looks like, too): refused while it lasts; raised, all is there."""
    outcome = Outcome()
    with _broker(work, work / "limited", provider) as broker:
        account = Account()
        broker.start(prefix=("prlimit", f"--fsize={FILE_BYTES_MAX}"))
        said = anyio.run(_publish_until_refused, broker, account, Plan(3, consume=False, sizes=(6000,)))
        if not broker.is_alive:
            outcome.complaints.append(f"it ended with code {broker.wait()}: {broker.log_text()}")
        elif not any("limit" in sentence for sentence in said):
            outcome.complaints.append(f"the error names no limit: {said}")
        broker.kill()
        broker.start()
        outcome.judge(account, anyio.run(drained, broker.url), "after the limit was raised")
        if (code := broker.stop()) != 0:
            outcome.complaints.append(f"it ended with code {code}: {broker.log_text()}")
    return outcome


def no_descriptors(work: Path, provider: str) -> Outcome:
    """Connections until the broker can open nothing more: who is connected is served, and others again later."""
    outcome = Outcome()
    with _broker(work, work / "crowded", provider, "[limits]\nhandshake_timeout_ms = 120000\n") as broker:
        account = Account()
        broker.start(prefix=("prlimit", f"--nofile={DESCRIPTORS}:{DESCRIPTORS}"))
        anyio.run(_serve_in_a_crowd, broker, account, outcome)
        if not broker.is_alive:
            outcome.complaints.append(f"it ended with code {broker.wait()}: {broker.log_text()}")
            broker.start()
        outcome.judge(account, anyio.run(drained, broker.url), "after the crowd")
        if (code := broker.stop()) != 0:
            outcome.complaints.append(f"it ended with code {code}: {broker.log_text()}")
    return outcome


SHORTAGES: list[tuple[str, str, Callable[[Path, str], Outcome]]] = [
    ("a limit of file size", "sqlite", file_limit),
    ("a store drained in part", "lmdb", drained_in_part),
    ("a store drained in part", "sqlite", drained_in_part),
    ("drained and full again", "lmdb", drained_and_full_again),
    ("drained and full again", "sqlite", drained_and_full_again),
    ("a store drained wholly", "lmdb", drained_wholly),
    ("a store drained wholly", "sqlite", drained_wholly),
    ("no descriptors", "lmdb", no_descriptors),
    ("no descriptors", "sqlite", no_descriptors),
    ("no ballast", "lmdb", no_ballast),
    ("no ballast", "sqlite", no_ballast),
    ("opened after a drain", "sqlite", opened_after_a_drain),
    ("messages alone", "lmdb", messages_alone),
    ("messages alone", "sqlite", messages_alone),
    ("a full disk", "lmdb", full_disk),
    ("a full disk", "sqlite", full_disk),
]
"""(name, provider, how it is played). With lmdb a limit of file size shows at the first segment, not under load."""


WITHOUT_A_DISK = ("a limit of file size", "no descriptors")


def missing(name: str) -> str | None:
    """Why a shortage cannot be played on this machine."""
    if shutil.which("prlimit") is None:
        return "prlimit is not installed (Debian: apt-get install util-linux)"
    if name not in WITHOUT_A_DISK and not _can_mount():
        return "mounting a small disk needs root, and the right to mount"
    return None


@cache
def _can_mount() -> bool:
    with TemporaryDirectory() as folder:
        mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder]
        if os.geteuid() != 0 or shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
            return False
        subprocess.run(["umount", "--lazy", folder], check=True)
        return True


# -- parts ----------------------------------------------------------------------------------------------------------


@contextmanager
def _memory_disk(folder: Path, mebibytes: int = DISK_MEBIBYTES) -> Iterator[Path]:
    folder.mkdir()
    size = f"size={mebibytes}m"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)], check=True, capture_output=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


@contextmanager
def _broker(
    work: Path, data_dir: Path, provider: str, limits: str = NO_WATERMARKS, settings: dict[str, str] = SETTINGS
) -> Iterator[BrokerProcess]:
    config = work / "shortage.toml"
    config.write_text(f"{limits}[storage.settings]\n{settings[provider]}")
    broker = BrokerProcess(data_dir, provider=provider, arguments=("--config", str(config)), log=work / "shortage.log")
    try:
        yield broker
    finally:
        if broker.is_alive:
            broker.kill()
        shutil.rmtree(data_dir, ignore_errors=True)


async def _publish_until_refused(broker: BrokerProcess, account: Account, plan: Plan) -> set[str]:
    """The sentences of the refusals."""
    load = Load(broker.url, account, plan)
    with anyio.move_on_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(load.run)
            while len(load.refusals) < REFUSALS_WANTED and not load.stop.is_set():
                await anyio.sleep(0.05)
            load.stop.set()
    return set(load.refusals)


async def _fill(broker: BrokerProcess, kept: set[str], provider: str, outcome: Outcome) -> None:
    """One message after another, until none is taken although everything before it is in the store."""
    refused = 0
    said = set[str]()
    async with vibemq.connect(broker.url, reconnect=ONE_CONNECTION) as mq:
        while refused < REFUSALS_IN_A_ROW:
            try:
                await _publish_one(mq, kept, outcome)
                refused = 0
            except VibeMQError as error:
                refused += 1
                said.add(error.code)
                await _checkpoint(broker, outcome, provider)
                await anyio.sleep(0.1)
    if ErrorCode.BLOCKED not in said:
        outcome.complaints.append(f"no watermark was reached, only {said}")


async def _publish_one(mq: vibemq.Client, kept: set[str], outcome: Outcome) -> None:
    outcome.issued += 1
    message_id = f"m{outcome.issued}"
    await mq.publish("strong", FILLING, id=message_id)
    kept.add(message_id)
    outcome.confirmed += 1


async def _publish_soon(broker: BrokerProcess, kept: set[str], when: str, outcome: Outcome) -> None:
    async with vibemq.connect(broker.url, reconnect=ONE_CONNECTION) as mq:
        for _ in range(ATTEMPTS):
            try:
                await _publish_one(mq, kept, outcome)
                return
            except VibeMQError:
                await anyio.sleep(0.1)
    outcome.complaints.append(f"{when}, it still refuses messages")


async def _take(broker: BrokerProcess, kept: set[str], count: int) -> None:
    async with vibemq.connect(broker.url, reconnect=ONE_CONNECTION) as mq:
        for message in await take(mq, "strong", count):
            message.ack()
            kept.remove(message.id)
        await mq.ping()


async def _publish_again(broker: BrokerProcess, outcome: Outcome) -> None:
    """Once there is room again, messages are taken again."""
    async with vibemq.connect(broker.url, reconnect=ONE_CONNECTION) as mq:
        with anyio.move_on_after(PATIENCE_S):
            while True:
                try:
                    await mq.publish("strong", {"again": True})
                    return
                except VibeMQError:
                    await anyio.sleep(0.1)
    outcome.complaints.append("with room again, messages are still refused")


async def _write_what_is_owed(broker: BrokerProcess, outcome: Outcome) -> None:
    """What met the full disk beside a refused publish is written before anything that follows."""
    async with vibemq.connect(broker.url, reconnect=ONE_CONNECTION) as mq:
        with anyio.move_on_after(PATIENCE_S):
            while not await creates(mq, "after"):
                await anyio.sleep(0.1)
            return
    outcome.complaints.append("drained on a full disk, it takes nothing that settles or creates")


async def _checkpoint(broker: BrokerProcess, outcome: Outcome, provider: str = "lmdb") -> None:
    """Wait until the store has everything that the journal has. SQLite has no journal."""
    if provider != "lmdb":
        return
    async with vibemq.connect(broker.url, reconnect=ONE_CONNECTION) as mq:
        storage: dict[str, Any] = {}
        with anyio.move_on_after(PATIENCE_S):
            while True:
                storage = (await mq.admin("broker.info"))["storage"]
                if storage["applied_lsn"] >= storage["last_lsn"]:
                    return
                await anyio.sleep(0.1)
    outcome.complaints.append(f"no checkpoint of everything within {PATIENCE_S:.0f} s: {storage}")


async def _serve_in_a_crowd(broker: BrokerProcess, account: Account, outcome: Outcome) -> None:
    load = Load(broker.url, account, Plan(4))
    crowd: list[socket.socket] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(load.run)
        await _more_confirms(account, 200, load, outcome, "before the crowd")
        crowd += [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(2 * DESCRIPTORS)]
        await _more_confirms(account, 400, load, outcome, "in the crowd")
        for connection in crowd:
            connection.close()
        load.stop.set()
    if not broker.is_alive:
        return
    with anyio.move_on_after(PATIENCE_S):
        while True:
            try:
                async with vibemq.connect(broker.url, reconnect=ONE_CONNECTION) as mq:
                    await mq.ping()
                    return
            except VibeMQError:
                await anyio.sleep(0.1)
    outcome.complaints.append("nobody can connect after the crowd has left")


async def _more_confirms(account: Account, count: int, load: Load, outcome: Outcome, when: str) -> None:
    goal = account.confirmed_count + count
    with anyio.move_on_after(PATIENCE_S):
        while account.confirmed_count < goal:
            if load.stop.is_set():
                outcome.complaints.append(f"{when}: the broker has left its clients")
                return
            await anyio.sleep(0.05)
        return
    outcome.complaints.append(f"{when}: not even {count} messages were confirmed in {PATIENCE_S:.0f} s")
