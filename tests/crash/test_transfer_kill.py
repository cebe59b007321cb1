"""kill -9 in the middle of moves and imports: each message is in one queue, and enters it once."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.crash.ledger import BrokerProcess
from tests.integration.cursor_peer import Peer, Refusal, rows_of
from vibemq.protocols.native.codec.wire import CommandType, encode_body

pytestmark = pytest.mark.slow

MOVED, IMPORTED, KILLS = 2_000, 1_500, 3
MOVED_AT_ONCE, IMPORTED_AT_ONCE = 90, 70
LINES = [{"id": f"i{number}", "payload": f"{number}", "headers": {"k": "v"}} for number in range(IMPORTED)]


@pytest.fixture(params=["lmdb", "sqlite"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data", provider=request.param)
    process.start()
    yield process
    process.stop()


def say(peer: Peer, verb: str, **arguments: Any) -> None:
    """Ask without waiting for the answer."""
    payload = orjson.dumps({"verb": verb, "arguments": arguments})
    peer.send(encode_body(CommandType.ADMIN, "x", payload=payload))


def everything(peer: Peer, queue: str) -> list[str]:
    """The ids of what the queue keeps, by sequence."""
    ids: list[str] = []
    start = 0
    while start is not None:
        page = peer.admin("queue.export", queue=queue, **{"from": start})
        ids += [message["id"] for message in page["messages"]]
        start = page["next"]
    return ids


def position_of(peer: Peer) -> int:
    """What the next answer confirms of the import; a batch that overtook the one before it is refused."""
    try:
        return int(peer.answer().get("position", 0))
    except Refusal as refusal:
        if refusal.code != "INVALID_OPTIONS":
            raise
        return 0


def batch(position: int) -> dict[str, Any]:
    messages = LINES[position : position + IMPORTED_AT_ONCE]
    return {"queue": "filled", "import_id": "file", "position": position, "messages": messages}


KILLED_BEHIND_THE_COPY = """
import os, shutil, signal, sys

copy = shutil.copyfileobj

def killed(source, target):
    copy(source, target)
    target.flush()
    os.kill(os.getpid(), signal.SIGKILL)

shutil.copyfileobj = killed
sys.argv[1:] = ["queue", "import", "orders", "-"]
from vibemq.cli import run_admin
run_admin()
"""


def test_a_killed_import_from_a_pipe_leaves_no_copy(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED_BEHIND_THE_COPY]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    ended = subprocess.run(command, input=b"messages\n", env=environment, capture_output=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long_where(broker="sqlite")
def test_moves_and_imports_go_on_after_kills(broker: BrokerProcess) -> None:
    peer = Peer(broker.port)
    for queue in ("source", "target", "filled"):
        peer.admin("queue.create", queue=queue)
    peer.publish("source", rows_of(MOVED))
    moving = {"queue": "source", "to": "target", "limit": MOVED_AT_ONCE}
    confirmed = 0
    for round_ in range(KILLS):
        position = peer.admin("queue.import", queue="filled", import_id="file", position=0)["position"]
        assert position >= confirmed
        for number in range(6):
            say(peer, "queue.move", **moving)
            say(peer, "queue.import", **batch(position + number * IMPORTED_AT_ONCE))
        for _ in range(2 + 3 * round_):
            confirmed = max(confirmed, position_of(peer))
        broker.kill()
        peer.close()
        broker.start()
        peer = Peer(broker.port)
        ids = [everything(peer, queue) for queue in ("source", "target")]
        assert sorted(ids[0] + ids[1]) == sorted(f"m{number}" for number in range(MOVED))
    while peer.admin("queue.move", **moving)["count"]:
        pass
    position = peer.admin("queue.import", queue="filled", import_id="file", position=0)["position"]
    while position < IMPORTED:
        position = peer.admin("queue.import", **batch(position))["position"]
    assert everything(peer, "source") == []
    assert sorted(everything(peer, "target")) == sorted(f"m{number}" for number in range(MOVED))
    assert everything(peer, "filled") == [line["id"] for line in LINES]
    peer.close()
