"""Exports of very many dead letters: they stream, and say how many there were."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest

from bench.common.watched import watched_broker
from bench.scale.stores import build
from vibemq.model.options import QueueOptions
from vibemq.model.records import DeadFacts, DeadLettered, HandedOut, MessagesAdded, QueueCreated, Reason, Record
from vibemq.model.rows import Rows, pack_row

AT_ONCE = 5_000
GROWN_MIB_MAX = 16
"""Of a broker that has exported many times as much."""


def letters(count: int, size: int) -> Iterator[Sequence[Record]]:
    """Of one queue."""
    yield [QueueCreated(1, "q", QueueOptions(), 5, "00000000000000000000000000000001")]
    for first in range(1, count + 1, AT_ONCE):
        last = min(first + AT_ONCE - 1, count)
        ids = range(first, last + 1)
        yield [
            MessagesAdded(
                1, first, 5, Rows.of([pack_row(f"m{number}", b"%d " % number + b"x" * size) for number in ids])
            ),
            HandedOut(1, 1, [(first, last)]),
            DeadLettered(1, 1, [DeadFacts(n, n, Reason.REJECTED, "bad", 1, 1, 5, 5) for n in ids]),
        ]


def exported(http_port: int, query: dict[str, str]) -> tuple[int, dict[str, int]]:
    """How many letters came, each with its own body and the next id, and the last line."""
    count, last = 0, {}
    address = f"http://127.0.0.1:{http_port}/api/v1/dead-letters/export"
    with httpx.stream("GET", address, params=query, timeout=60, trust_env=False) as response:
        assert response.status_code == 200
        for line in response.iter_lines():
            assert not last, "nothing comes behind the count"
            told = json.loads(line)
            if "dead_id" not in told:
                last = told
                continue
            count += 1
            assert (told["dead_id"], told["payload"].partition(" ")[0]) == (count, str(count))
    return count, last


@pytest.mark.slow
@pytest.mark.parametrize(("count", "size"), [(10_000, 4_000), pytest.param(1_000_000, 200, marks=pytest.mark.long)])
def test_an_export_streams_in_the_same_memory_and_counts_its_lines(count: int, size: int, tmp_path: Path) -> None:
    build(tmp_path, "lmdb", lambda most: letters(most, size), count)
    with watched_broker(watched=False, folder=tmp_path, http={"port": 0, "requests_per_second": 0}) as broker:
        assert exported(broker.http_port, {"to_id": "500"}) == (500, {"count": 500, "damaged": 0})
        before = broker.memory_mib("RssAnon")
        assert exported(broker.http_port, {"queue": "q"}) == (count, {"count": count, "damaged": 0})
        assert broker.memory_mib("RssAnon") - before < GROWN_MIB_MAX
