"""kill -9 under publishing and consuming over HTTP: what was confirmed is never lost, and what is sent again with its
Idempotency-Key is there once.

It is one of the long tests; KILL_CYCLES sets the number of kills.
"""

import json
import os
import random
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

import vibemq
from tests.crash.ledger import BrokerProcess, Ledger
from tests.crash.test_kill_ledger import MESSAGES_PER_CYCLE, PATIENT, drain, kill_again_and_again

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CYCLES = int(os.environ.get("KILL_CYCLES", "3"))
BATCH = 20


class Script:
    """Asks the broker until it answers, as a script does that survives restarts."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self.http = httpx.AsyncClient(timeout=30, trust_env=False)

    async def post(self, path: str, stop: anyio.Event | None = None, **request: Any) -> Any:
        """The answer, of whichever attempt; None once it shall stop."""
        while stop is None or not stop.is_set():
            url = f"http://127.0.0.1:{self._broker.http_port}/api/v1{path}"
            try:
                response = await self.http.post(url, **request)
            except httpx.TransportError:
                await anyio.sleep(0.02)
                continue
            if response.status_code in (409, 429, 503):
                await anyio.sleep(0.02)
                continue
            return response.status_code, response.json()
        return None


async def publish(broker: BrokerProcess, queue: str, stop: anyio.Event, ledger: Ledger) -> None:
    script, number = Script(broker), 0
    async with script.http:
        while not stop.is_set():
            ids = [f"{queue}-{number + i}" for i in range(BATCH)]
            number += BATCH
            lines = "\n".join(json.dumps({"payload": json.dumps({"id": text, "fill": "x" * 200})}) for text in ids)
            headers = {"content-type": "application/x-ndjson", "idempotency-key": ids[0]}
            status, answer = await script.post(f"/queues/{queue}/messages", content=lines, headers=headers)
            assert (status, answer["confirmed"]) == (200, BATCH), answer
            ledger.confirmed.update(ids)


async def consume(broker: BrokerProcess, queue: str, stop: anyio.Event, ledger: Ledger) -> None:
    script = Script(broker)
    async with script.http:
        while not stop.is_set():
            found = await script.post(f"/queues/{queue}/deliveries", stop, json={"max": 50, "wait_ms": 100})
            if found is None:
                return
            items = found[1]["items"]
            ledger.received.update(json.loads(item["payload"])["id"] for item in items)
            if items:
                # After a kill the leases are gone, and the messages come again.
                wanted = [{"lease": item["lease"], "verb": "ack"} for item in items]
                answered = await script.post("/deliveries", stop, json={"settlements": wanted})
                assert answered is None or answered[0] in (200, 410), answered


async def stored_ids(broker: BrokerProcess, queue: str) -> list[str]:
    found: list[str] = []
    async with vibemq.connect(broker.url, reconnect=PATIENT) as mq:
        while batch := await mq.fetch(queue, max=1_000, timeout=1):
            found += [message.json()["id"] for message in batch]
            for message in batch:
                message.ack()
    return found


@pytest.mark.long(covered_by="tests/crash/test_kill_ledger.py::test_no_confirmed_message_is_lost")
async def test_no_confirmed_message_is_lost_and_none_is_there_twice(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    settings = tmp_path / "vibemq.toml"
    settings.write_text("[http]\nrequests_per_second = 0\n")
    broker = BrokerProcess(tmp_path / "data", arguments=("--config", str(settings)))
    broker.start()
    ledger, once = Ledger(), Ledger()
    stop = anyio.Event()
    try:
        async with vibemq.connect(broker.url) as mq:
            await mq.create_queue("orders", max_attempts=1_000)
            await mq.create_queue("once", dedup_window=3_600)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(publish, broker, "orders", stop, ledger)
            tasks.start_soon(publish, broker, "once", stop, once)
            for _ in range(2):
                tasks.start_soon(consume, broker, "orders", stop, ledger)
            await kill_again_and_again(broker, CYCLES, random.Random(seed), ledger)
            stop.set()
        await drain(broker.url, "orders", ledger)
        stored = await stored_ids(broker, "once")
    finally:
        broker.stop()
    assert len(ledger.confirmed) > MESSAGES_PER_CYCLE * CYCLES, "too little was published to prove anything"
    assert ledger.lost == set(), f"lost {len(ledger.lost)} of {len(ledger.confirmed)} with seed {seed}"
    assert once.confirmed <= set(stored), f"lost {len(once.confirmed - set(stored))} with seed {seed}"
    assert len(stored) == len(set(stored)), f"{len(stored) - len(set(stored))} are there twice, with seed {seed}"
