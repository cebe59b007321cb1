"""Queues by name: who looks through the letters of one queue does not pay for all others."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bench.guard.counting import instructions
from vibemq.model.options import Durability, QueueOptions
from vibemq.model.records import QueueCreated
from vibemq.plugins import find
from vibemq.storage.interface import IStorageProvider

OPTIONS = QueueOptions(durability=Durability.TRANSIENT)


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[IStorageProvider]:
    plugin = find("storage", request.param)
    with closing(plugin.create(tmp_path / "data", plugin.settings())) as storage:
        storage.open()
        yield storage


def test_a_queue_is_found_by_its_name_without_a_look_at_all_others(storage: IStorageProvider) -> None:
    found = []
    for first, last in ((1, 10), (11, 1_000)):
        made = [QueueCreated(number, f"q{number}", OPTIONS, 1, f"{number:x}") for number in range(first, last + 1)]
        storage.append(made)
        assert storage.dead_queues(name="q7") == [(7, "q7")]
        found.append(instructions(lambda: storage.dead_queues(name="q7")).total())
    few, many = found
    assert many < few + 50
