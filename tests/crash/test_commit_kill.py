"""kill -9 while a transaction is committed: all of its messages are in their queues, each once, or none is."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.crash.ledger import BrokerProcess
from tests.integration.cursor_peer import Peer, rows_of
from vibemq.protocols.native.codec.wire import CommandType, encode_body

pytestmark = pytest.mark.slow

ROUNDS, CHUNKS, ROWS, SIZE = 5, 12, 200, 1_000
STAGES = ("one", "two")
PRIORITY = {0: {"priority": 3}}
"""What has it goes into a staged batch, and what is staged behind it."""


@pytest.fixture(params=["lmdb", "sqlite"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data", provider=request.param)
    process.start()
    yield process
    process.stop()


def bodies(first: int, count: int) -> list[bytes]:
    return [b"b%d" % number for number in range(first, first + count)]


def staged(peer: Peer, version: int, at: int) -> list[bytes]:
    """Stage some messages, plain ones first; return their bodies in the order of the commit."""
    for place, name in enumerate(STAGES):
        for chunk in range(CHUNKS):
            first = at + (place * CHUNKS + chunk) * ROWS
            more: dict[str, Any] = {"extras": PRIORITY} if chunk > CHUNKS // 2 else {}
            peer.stage(
                "q", rows_of(ROWS, size=SIZE, first=first), app="a", version=version, stage=name, chunk=chunk, **more
            )
    return bodies(at, len(STAGES) * CHUNKS * ROWS)


@pytest.mark.long_where(broker="sqlite")
def test_a_commit_is_whole_after_kills(broker: BrokerProcess) -> None:
    peer = Peer(broker.port)
    peer.admin("queue.create", queue="q", options={"mode": "fan-out-with-ack", "retention": "log"})
    wanted: list[bytes] = []
    for version in range(ROUNDS):
        more = staged(peer, version, len(wanted))
        commit = {"app": "a", "version": version, "stages": list(STAGES)}
        # The first is killed at once, the others behind a part of the work.
        request = orjson.dumps({"verb": "transaction.commit", "arguments": commit})
        peer.send(encode_body(CommandType.CURSOR_REQUEST, "x", "", request))
        for _ in range(version):
            peer_of_its_own = Peer(broker.port)
            peer_of_its_own.ask("transaction.last", app="a")
            peer_of_its_own.close()
        broker.kill()
        peer.close()
        broker.start()
        peer = Peer(broker.port)
        peer.ask("transaction.commit", **commit)
        wanted += more
        found = [body.rstrip(b".") for body in peer.read_all("q", 1, len(wanted) + 1)]
        assert found == wanted
        assert peer.ask("group.offsets", "q")["tail"] == len(wanted) + 1
    peer.close()


LOG = {"mode": "fan-out-with-ack", "retention": "log"}
IN_MEMORY = {"mode": "fan-out-with-ack", "durability": "transient"}
TRIES = 4


@pytest.mark.long_where(broker="sqlite")
def test_the_rest_of_a_stage_enters_a_queue_that_was_made_anew_meanwhile(broker: BrokerProcess) -> None:
    """What went into the queue that kept its messages in memory is gone with it; the rest comes whole, and stays."""
    chunk_rows, kept = 600, dict[str, list[bytes]]()
    staged_in = 6 * chunk_rows
    peer, other = Peer(broker.port), Peer(broker.port)
    for attempt in range(TRIES):
        peer.admin("queue.create", queue=f"q{attempt}", options=LOG)
        for chunk in range(6):
            # Of a size with which what is copied at a time ends inside a block.
            rows = rows_of(chunk_rows, size=1_500, first=chunk * chunk_rows)
            peer.stage(f"q{attempt}", rows, app=f"a{attempt}", version=0, stage="s", chunk=chunk)
    peer.close()
    other.close()
    # What was staged is in blocks of the store from here on.
    broker.stop()
    broker.start()
    peer, other = Peer(broker.port), Peer(broker.port)
    for attempt in range(TRIES):
        queue, commit = f"q{attempt}", {"app": f"a{attempt}", "version": 0, "stages": ["s"]}
        peer.admin("queue.delete", queue=queue)
        peer.admin("queue.create", queue=queue, options=IN_MEMORY)
        request = orjson.dumps({"verb": "transaction.commit", "arguments": commit})
        peer.send(encode_body(CommandType.CURSOR_REQUEST, "x", "", request))
        while other.ask("group.offsets", queue)["tail"] == 1:
            pass
        for verb, arguments in (("queue.delete", {"queue": queue}), ("queue.create", {"queue": queue, "options": LOG})):
            other.send(
                encode_body(CommandType.ADMIN, verb, payload=orjson.dumps({"verb": verb, "arguments": arguments}))
            )
        other.answer()
        other.answer()
        peer.answer()
        kept[queue] = _all_of(peer, queue)
        assert kept[queue] == bodies(staged_in - len(kept[queue]), len(kept[queue]))
        if 0 < len(kept[queue]) < staged_in:
            break
    else:
        pytest.fail("the queue was always made anew before the first or behind the last of the stage")
    for end in (broker.kill, broker.stop):
        end()
        peer.close()
        other.close()
        broker.start()
        peer = Peer(broker.port)
        for queue, wanted in kept.items():
            assert _all_of(peer, queue) == wanted
        assert "checkpoint" not in broker.log_text()
    peer.close()


def _all_of(peer: Peer, queue: str) -> list[bytes]:
    found = peer.read_all(queue, 1, peer.ask("group.offsets", queue)["tail"])
    return [body.rstrip(b".") for body in found]
