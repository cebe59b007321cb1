"""Peers that stop, dribble, vanish or send broken bytes: the broker notices, and nobody else is harmed."""

import asyncio
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

import vibemq
from tests.crash.ledger import BrokerProcess
from tests.proof.chaos_proxy import CALM, ChaosProxy, Weather
from tests.proof.contract import Budget, Finding, Result
from tests.proof.network_load import CLIENT, Account, body_of, quiet_clients, take
from vibemq.errors import VibeMQError
from vibemq.protocols.native.codec.frames import encode_frame
from vibemq.protocols.native.codec.wire import CommandType, encode_body

HANDSHAKE_TIMEOUT_S = 2.0
WAIT_S = 45.0
"""For whatever must happen, on a machine that does other things too."""
MESSAGES = 60
SETTINGS = """
[limits]
idle_timeout_ms = 2000
handshake_timeout_ms = 2000
write_timeout_ms = 4000

[[listeners]]
port = 0
"""
TLS = """
[[listeners]]
port = 0
tls = {{ certificate = "{certificate}", key = "{key}" }}
"""


@dataclass
class Stage:
    """A broker, and a client of it that nothing happens to."""

    broker: BrokerProcess
    work: Path
    rng: random.Random
    steady: Any
    tls_port: int
    told: list[str]
    figures: dict[str, float | int | str]
    account: Account
    scene: int = 0

    def queue(self, name: str) -> str:
        """A name that no earlier scene has used."""
        return f"{name}-{self.scene}"

    async def publish(self, queue: str, count: int = MESSAGES) -> set[str]:
        ids = [f"{queue}-{number}" for number in range(count)]
        for message_id in ids:
            await self.steady.publish(queue, body_of(message_id, self.rng), id=message_id)
        self.account.published.update(ids)
        self.account.confirmed.update(ids)
        return set(ids)

    async def consume_all(self, queue: str, wanted: set[str]) -> None:
        """Have the steady client get and settle everything that is wanted."""
        with anyio.move_on_after(WAIT_S):
            async with self.steady.subscribe(queue, prefetch=20) as messages:
                async for message in messages:
                    take(message, self.account)
                    message.ack()
                    if wanted <= set(self.account.received):
                        return

    async def until(self, happened: Callable[[], Awaitable[bool]], what: str) -> float:
        """Seconds until it was so; a complaint when it was not."""
        start = time.monotonic()
        while time.monotonic() - start < WAIT_S:
            if await happened():
                return time.monotonic() - start
            await anyio.sleep(0.05)
        self.told.append(f"{what}: not within {WAIT_S:.0f} s")
        return WAIT_S

    async def consumers(self, queue: str) -> int:
        info = await self.steady.queue_info(queue)
        return info.consumers if info is not None else 0


# -- stopped ------------------------------------------------------------------------------------------------------


async def stopped_client(stage: Stage) -> None:
    """SIGSTOP to a consumer that holds messages: others get them; after SIGCONT it comes back."""
    queue = stage.queue("stopped-client")
    await stage.steady.create_queue(queue, max_attempts=100, retry_base_ms=50, retry_max_ms=50)
    wanted = await stage.publish(queue)
    url = f"vibemq://127.0.0.1:{stage.broker.port}"
    command = [sys.executable, "-m", "tests.proof.network_peers", url, queue]
    child = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        if not await asyncio.wait_for(child.stdout.readline(), WAIT_S):
            raise AssertionError("the consumer got nothing")
        child.send_signal(signal.SIGSTOP)
        stage.figures["stopped consumer noticed after s"] = round(
            await stage.until(lambda: _gone(stage, queue), "a stopped consumer was not noticed"), 1
        )
        await stage.consume_all(queue, wanted)
        child.send_signal(signal.SIGCONT)
        await stage.until(lambda: _there(stage, queue), "a consumer that was stopped did not subscribe again")
    finally:
        child.kill()
        await child.wait()


async def _gone(stage: Stage, queue: str) -> bool:
    return await stage.consumers(queue) == 0


async def _there(stage: Stage, queue: str) -> bool:
    return await stage.consumers(queue) > 0


async def hold(url: str, queue: str) -> None:
    """The consumer in the child: takes messages and settles none."""
    async with vibemq.connect(url, **CLIENT) as mq, mq.subscribe(queue, prefetch=20) as messages:
        async for message in messages:
            print(message.id, flush=True)


async def stopped_broker(stage: Stage) -> None:
    """SIGSTOP to the broker: its clients notice; after SIGCONT they go on, and what was confirmed is there."""
    queue = stage.queue("stopped-broker")
    await stage.steady.create_queue(queue, max_attempts=100)
    wanted = await stage.publish(queue)
    address = f"vibemq://127.0.0.1:{stage.broker.port}"
    async with vibemq.connect(address, **CLIENT) as mq:
        stage.broker._process.send_signal(signal.SIGSTOP)  # type: ignore[union-attr]
        try:
            noticed = await stage.until(lambda: _offline(mq), "a client did not notice that its broker had stopped")
            stage.figures["stopped broker noticed after s"] = round(noticed, 1)
        finally:
            stage.broker._process.send_signal(signal.SIGCONT)  # type: ignore[union-attr]
        await stage.until(lambda: _online(mq), "a client did not come back to its broker")
        await stage.until(lambda: _online(stage.steady), "the steady client did not come back to its broker")
    await stage.consume_all(queue, wanted)


async def _offline(mq: Any) -> bool:
    return not mq.is_connected


async def _online(mq: Any) -> bool:
    try:
        await mq.ping()
    except VibeMQError:
        return False
    return True


# -- half there ---------------------------------------------------------------------------------------------------


async def dribbling(stage: Stage) -> None:
    """One byte a second: before the login the handshake's timeout ends it."""
    frame = encode_frame(encode_body(CommandType.CONNECT, "c", headers={"k": "v" * 90}))
    reader, writer = await asyncio.open_connection("127.0.0.1", stage.broker.port)
    start = time.monotonic()
    try:
        async with asyncio.timeout(WAIT_S):
            for at in range(len(frame)):
                writer.write(frame[at : at + 1])
                if await _ended(reader, 1.0):
                    break
    except (TimeoutError, ConnectionError):
        pass
    finally:
        writer.transport.abort()
    took = time.monotonic() - start
    stage.figures["one byte a second: closed after s"] = round(took, 1)
    if took >= WAIT_S or took < HANDSHAKE_TIMEOUT_S - 0.5:
        stage.told.append(f"a peer that sends one byte a second was closed after {took:.1f} s")


async def _ended(reader: asyncio.StreamReader, seconds: float) -> bool:
    """Whether the stream ends within so long; words before the end are read over."""
    try:
        async with asyncio.timeout(seconds):
            while await reader.read(4_096):
                pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


async def half_open(stage: Stage) -> None:
    """A line that goes dead without a word: both ends notice, others get the messages, the client comes back."""
    queue = stage.queue("half-open")
    await stage.steady.create_queue(queue, max_attempts=100, retry_base_ms=50, retry_max_ms=50)
    async with ChaosProxy(lambda: stage.broker.port, stage.rng) as proxy, AsyncExitStack() as stack:
        mq = await stack.enter_async_context(vibemq.connect(f"vibemq://127.0.0.1:{proxy.port}", **CLIENT))
        await stack.enter_async_context(mq.subscribe(queue, prefetch=20))
        wanted = await stage.publish(queue)
        proxy.weather = Weather(stalled=True)
        stage.figures["dead line noticed by the broker after s"] = round(
            await stage.until(lambda: _gone(stage, queue), "the broker did not notice a dead line"), 1
        )
        await stage.until(lambda: _offline(mq), "the client did not notice a dead line")
        await stage.consume_all(queue, wanted)
        proxy.weather = CALM
        proxy.reset_all()
        await stage.until(lambda: _online(mq), "the client of a dead line did not come back")


# -- broken bytes -------------------------------------------------------------------------------------------------


async def corrupted(stage: Stage) -> None:
    """Plain TCP has no checksum but TCP's own, which these bytes have passed: so bodies may arrive changed. The broker
    must survive whatever the bytes say, and a client on a sound line must not notice."""
    queue = stage.queue("sound-line")
    await stage.steady.create_queue(queue)
    account, proxy = await _through_corruption(stage, stage.broker.port, stage.queue("corrupted"), tls=False)
    stage.figures["bytes changed on a plain line"] = proxy.corrupted
    stage.figures["bodies that arrived changed, plain line"] = len(account.broken)
    await stage.consume_all(queue, await stage.publish(queue))


async def corrupted_tls(stage: Stage) -> None:
    """With TLS every changed byte ends its connection: nothing arrives changed, and nothing confirmed is lost."""
    if not stage.tls_port:
        stage.figures["TLS"] = "not tried: openssl is missing"
        return
    account, proxy = await _through_corruption(stage, stage.tls_port, stage.queue("corrupted-tls"), tls=True)
    stage.figures["bytes changed on a TLS line"] = proxy.corrupted
    if account.broken:
        stage.told.append(f"{len(account.broken)} changed bodies arrived over TLS")
    if account.lost:
        stage.told.append(f"{len(account.lost)} confirmed messages were lost behind a corrupting TLS line")
    stage.account.confirmed |= account.confirmed
    stage.account.received.update(account.received)
    stage.account.published |= account.published
    stage.account.broken += account.broken


async def _through_corruption(stage: Stage, port: int, queue: str, *, tls: bool) -> tuple[Account, ChaosProxy]:
    """Publish and consume through a line that changes bytes; then calm, until all that was confirmed has come."""
    account = Account()
    scheme, query = ("vibemqs", "?skipCertValidation=true") if tls else ("vibemq", "")
    options = {"durability": "strong", "max_attempts": 1_000, "retry_base_ms": 50, "retry_max_ms": 50}
    await stage.steady.create_queue(queue, **options)
    async with ChaosProxy(lambda: port, stage.rng) as proxy:
        async with vibemq.connect(f"{scheme}://127.0.0.1:{proxy.port}{query}", **CLIENT) as mq:
            proxy.weather = Weather(corrupt=0.05)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_consume, mq, queue, account)
                for number in range(4 * MESSAGES):
                    await _publish(mq, queue, f"{queue}-{number}", stage.rng, account)
                proxy.weather = CALM
                # Streams that were changed may still say what nobody can understand, or nothing.
                proxy.reset_all()
                with anyio.move_on_after(WAIT_S if tls else 5.0):
                    while account.lost:
                        await anyio.sleep(0.05)
                tasks.cancel_scope.cancel()
        await stage.until(lambda: _online(stage.steady), "a client on a sound line was disturbed")
    return account, proxy


async def _publish(mq: Any, queue: str, message_id: str, rng: random.Random, account: Account) -> None:
    body = body_of(message_id, rng)
    account.published.add(message_id)
    with anyio.move_on_after(2.0):
        try:
            await mq.publish(queue, body, id=message_id, dedup_id=message_id)
        except VibeMQError:
            return
        account.confirmed.add(message_id)


async def _consume(mq: Any, queue: str, account: Account) -> None:
    while True:
        try:
            async with mq.subscribe(queue, prefetch=20) as messages:
                async for message in messages:
                    take(message, account)
                    message.ack()
        except VibeMQError:
            # On a plain line the answer to a Subscribe may have been changed into a refusal.
            await anyio.sleep(0.05)


# -- all of them --------------------------------------------------------------------------------------------------

SCENES: tuple[Callable[[Stage], Awaitable[None]], ...] = (
    dribbling,
    stopped_client,
    corrupted,
    stopped_broker,
    half_open,
    corrupted_tls,
)


def run(budget: Budget) -> Result:
    """Play the scenes in turns."""
    result = Result(unit="scenes")
    with quiet_clients():
        asyncio.run(_run(budget, result))
    result.complete = result.cases >= budget.cases
    return result


async def _run(budget: Budget, result: Result) -> None:
    work = budget.work
    deadline = time.monotonic() + budget.seconds
    (work / "peers.toml").write_text(SETTINGS + _tls_listener(work))
    broker = BrokerProcess(work / "data", arguments=("--config", str(work / "peers.toml")))
    await asyncio.to_thread(broker.start)
    try:
        broker.ports["native"], tls_port = _ports(broker)
        async with vibemq.connect(f"vibemq://127.0.0.1:{broker.port}", **CLIENT) as steady:
            rng = random.Random(budget.seed)
            stage = Stage(broker, work, rng, steady, tls_port, [], result.figures, Account())
            while result.cases < budget.cases and time.monotonic() < deadline:
                await SCENES[stage.scene % len(SCENES)](stage)
                stage.scene += 1
                result.cases += 1
                if not broker.is_alive:
                    stage.told.append(f"the broker has ended: {broker.log_text()[-400:]}")
                    break
    finally:
        if broker.is_alive:
            broker.kill()
    account = stage.account
    result.confirmed += len(account.confirmed)
    result.lost += len(account.lost)
    result.undetected += len(account.broken)
    result.resurrected += len(account.phantoms)
    if "Traceback" in broker.log_text():
        stage.told.append(f"the broker logged an exception: {broker.log_text()[-600:]}")
    result.findings += [
        Finding(what, f"python -m tests.proof.network {6 * budget.cases} {budget.seed}") for what in stage.told
    ]


def _tls_listener(work: Path) -> str:
    if shutil.which("openssl") is None:
        return ""
    key, certificate = work / "key.pem", work / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    return TLS.format(certificate=certificate, key=key)


def _ports(broker: BrokerProcess) -> tuple[int, int]:
    """Of the plain listener and of the one with TLS (0: there is none), as the broker's log names them."""
    ports = [int(found[1]) for found in re.finditer(r"native listens on \S+:(\d+)", broker.log_text())]
    return ports[0], ports[1] if len(ports) > 1 else 0


if __name__ == "__main__":
    asyncio.run(hold(sys.argv[1], sys.argv[2]))
