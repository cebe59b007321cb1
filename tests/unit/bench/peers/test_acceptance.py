"""The table of goals says what the figures say."""

import pytest

from bench.common.lab import Cell, Mode
from bench.common.peer import PLACES, Guarantee
from bench.peers.acceptance import CPU, P99, PEERS, RATE, ROWS, Row, cells, judge

CELL = Cell(Guarantee.STRONG, Mode.PUBLISH, 1024)


def rates(*values: float) -> list[dict[str, object]]:
    return [{"rate": value} for value in values]


def test_the_best_peer_is_the_one_that_comes_closest() -> None:
    verdict = judge(Row("", CELL, RATE, 1.5), {"vibemq": rates(300), "redis": rates(100), "postgresql": rates(150)})
    assert (verdict.best, verdict.ratio, verdict.word) == ("postgresql", 2.0, "pass")


def test_ratios_are_taken_round_by_round() -> None:
    # The machine was three times slower in the second round, for both.
    runs = {"vibemq": rates(300, 100, 310), "redis": rates(200, 66, 200)}
    assert judge(Row("", CELL, RATE, 1.5), runs).ratio == pytest.approx(100 / 66)


def test_a_round_that_a_peer_did_not_finish_makes_no_pair() -> None:
    verdict = judge(Row("", CELL, RATE, 1.5), {"vibemq": rates(300, 10), "redis": rates(100)})
    assert (verdict.ratio, verdict.rounds) == (3.0, 1)


def test_less_is_better_for_processor_time() -> None:
    runs = {
        "vibemq": [{"server_cpu_s_per_100k": 0.8}],
        "redis": [{"server_cpu_s_per_100k": 1.0}],
        "nats": [{"server_cpu_s_per_100k": 4.0}],
    }
    verdict = judge(Row("", CELL, CPU, 0.7), runs)
    assert (verdict.best, verdict.ratio, verdict.word) == ("redis", 0.8, "falls short")


def test_less_is_better_for_latency() -> None:
    runs = {"vibemq": [{"latency": {"p99_ms": 2.0}}], "redis": [{"latency": {"p99_ms": 4.0}}]}
    assert judge(Row("", CELL, P99, 1.0), runs).word == "pass"


def test_only_the_peers_of_the_row_count() -> None:
    row = Row("", CELL, RATE, 1.0, peers=("redis",))
    assert judge(row, {"vibemq": rates(2), "redis": rates(1), "postgresql": rates(9)}).best == "redis"


def test_without_peers_there_is_no_verdict() -> None:
    assert judge(Row("", CELL, RATE, 1.0), {"vibemq": rates(1)}).word == "no peer"


def test_a_cell_that_two_rows_share_is_measured_once() -> None:
    wanted = cells()
    assert len(wanted) == len({row.cell for row in ROWS}) < len(ROWS)
    assert all(set(row.peers) <= set(wanted[row.cell]) for row in ROWS)


def test_every_peer_of_a_row_exists() -> None:
    assert {peer for row in ROWS for peer in row.peers} == set(PEERS) <= set(PLACES)
