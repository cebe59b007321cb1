"""The results of a run as one table, for people and for the documentation."""

from collections.abc import Collection
from dataclasses import dataclass

from tests.proof.contract import Method, Result

HEAD = ("method", "cases", "confirmed", "lost", "resurrected", "undetected", "worst weak window", "seconds", "")


@dataclass(frozen=True, slots=True)
class Row:
    method: Method
    planned: int
    seconds: float
    result: Result | None
    """None when it was not run."""
    why: str = ""

    @property
    def is_good(self) -> bool:
        """Whether nothing was found; a method that this machine cannot run proves nothing and breaks nothing."""
        result = self.result
        return result is None or not (result.lost or result.resurrected or result.undetected or result.findings)


def is_proof(rows: list[Row], named: Collection[str]) -> bool:
    """Whether something was run, nothing was found, and none of those that somebody has named was left out."""
    were_run = {row.method.name for row in rows if row.result is not None}
    return bool(were_run) and were_run.issuperset(named) and all(row.is_good for row in rows)


def table(rows: list[Row]) -> str:
    """Markdown; columns padded so that it reads in a terminal too."""
    cells = [HEAD, *(cells_of(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEAD))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def cells_of(row: Row) -> tuple[str, ...]:
    result = row.result
    if result is None:
        return (row.method.title, "-", "-", "-", "-", "-", "-", "-", f"not run: {row.why}")
    weak = "-" if result.worst_weak_ms is None else f"{result.worst_weak_ms:,.0f} ms"
    counts = (result.confirmed, result.lost, result.resurrected, result.undetected)
    return (
        row.method.title,
        f"{result.cases:,} {result.unit}",
        *(f"{count:,}" for count in counts),
        weak,
        f"{row.seconds:,.0f}",
        verdict(row, result),
    )


def verdict(row: Row, result: Result) -> str:
    if not row.is_good:
        return f"FAILED: {len(result.findings)} finding{'s' * (len(result.findings) != 1)}"
    return "" if result.complete else f"{row.planned:,} planned, the time ended"


def details(rows: list[Row]) -> str:
    """What the table has no column for: figures, and every finding with the way to repeat it."""
    lines: list[str] = []
    for row in rows:
        if row.result is None:
            continue
        figures = ", ".join(f"{name} {value}" for name, value in row.result.figures.items())
        if figures:
            lines.append(f"{row.method.title}: {figures}")
        for finding in row.result.findings:
            lines += [f"  FOUND by {row.method.name}: {finding.what}", f"    repeat: {finding.repeat}"]
    return "\n".join(lines)
