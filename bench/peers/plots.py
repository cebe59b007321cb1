"""The acceptance table as a picture."""

from collections.abc import Sequence
from pathlib import Path

from bench.common.svg import Bar, bars
from bench.peers.acceptance import Verdict


def ratios_plot(verdicts: Sequence[Verdict], path: Path) -> None:
    """One bar per row: how much better than the best peer, above 1 is ours, with the goal as a mark."""
    drawn = [verdict for verdict in verdicts if verdict.best and verdict.ratio > 0]
    bars(
        path, "VibeMQ beside the best peer of each cell (1 = equal, longer = VibeMQ is better)", list(map(_bar, drawn))
    )


def _bar(verdict: Verdict) -> Bar:
    def advantage(ratio: float) -> float:
        return ratio if verdict.row.figure.higher_is_better else 1 / ratio

    return Bar(f"{verdict.row.title} ({verdict.best})", advantage(verdict.ratio), advantage(verdict.row.goal))
