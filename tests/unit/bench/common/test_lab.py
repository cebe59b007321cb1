"""The laboratory measures a real broker, in every mode and shape."""

from collections.abc import Iterator

import pytest

from bench.common.accounting import process_tree
from bench.common.lab import Cell, Lab, Mode
from bench.common.load import Job
from bench.common.peer import Guarantee
from bench.common.worker import LoadFailed
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

MESSAGES = 300


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(tmp_path_factory.mktemp("bench")) as made:
        yield made


@pytest.mark.long_where(mode=[Mode.PUBLISH, Mode.DRAIN])
@pytest.mark.parametrize("mode", Mode)
def test_every_mode_counts_every_message(lab: Lab, mode: Mode) -> None:
    subscribers = 3 if mode is Mode.FAN_OUT else 1
    rate = 1000.0 if mode is Mode.LATENCY else 0.0
    cell = Cell(Guarantee.STRONG, mode, 128, subscribers, rate)
    run = lab.measure("vibemq", cell, Job(messages=MESSAGES, size=128, subscribers=subscribers, rate=rate))
    assert run["rate"] * run["seconds"] == pytest.approx(MESSAGES * subscribers)
    assert (
        run["delivered_latency"].get("count", 0)
        == {
            Mode.PUBLISH: 0,
            Mode.E2E: MESSAGES,
            Mode.DRAIN: MESSAGES,
            Mode.LATENCY: MESSAGES * 9 // 10,
            Mode.FAN_OUT: MESSAGES * subscribers,
        }[mode]
    )


@pytest.mark.parametrize(("shape", "mode"), [("vibemq-queues", Mode.E2E), ("vibemq-connections", Mode.PUBLISH)])
def test_every_shape_counts_every_message(lab: Lab, shape: str, mode: Mode) -> None:
    cell = Cell(Guarantee.TRANSIENT, mode, 128)
    run = lab.measure(shape, cell, Job(messages=MESSAGES, size=128, width=10))
    assert run["rate"] * run["seconds"] == pytest.approx(MESSAGES)


def test_what_was_confirmed_outlives_a_kill(lab: Lab) -> None:
    peer = lab.peer("vibemq", Guarantee.STRONG)
    job = Job(messages=MESSAGES, size=128)
    peer.set_up(job)
    assert lab.work(peer, "produce", job)["messages"] == MESSAGES
    lab.kill_and_restart(peer)
    assert lab.work(peer, "consume", job)["messages"] == MESSAGES
    peer.tear_down()


def test_a_load_that_fails_says_why_and_is_replaced(lab: Lab) -> None:
    peer = lab.peer("vibemq", Guarantee.STRONG)
    with pytest.raises(LoadFailed, match="no_such_role"):
        lab.worker("vibemq", "producer").prepare(peer, "no_such_role", Job(messages=1, size=128))
    assert lab.worker("vibemq", "producer").alive


def with_checkpointer(pids: list[int]) -> list[int]:
    """All processes, once the broker has started its own."""
    return wait_until(lambda: found if len(found := list(process_tree(pids))) >= 2 else None) or []


def test_nothing_is_left(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("bench")
    with Lab(root) as lab:
        peer = lab.peer("vibemq", Guarantee.STRONG)
        worker = lab.worker("vibemq", "producer")
        pids = with_checkpointer(lab.server(peer).pids)
    assert not any(pid in process_tree([1]) for pid in pids)
    assert not worker.alive
    assert list(root.iterdir()) == []
