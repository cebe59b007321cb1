"""The proof that nothing confirmed is lost: what each method is given, and what it answers.

`python -m tests.proof crash` (10 minutes) and `python -m tests.proof torture` (60 minutes) run every method within its
share of the time and print one table; `test_short.py` runs the smallest form of each in every CI run.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Budget:
    """How much one run of a method may do. It stops at `cases` or at `seconds`, whichever comes first."""

    cases: int
    seconds: float
    seed: int
    """Everything random follows from it; the same seed and cases give the same run where no real process takes part."""
    work: Path
    """An empty folder of the method's own, on a real disk; what it leaves there is deleted."""
    aim: str = ""
    """Only cases whose description has a match of this regular expression, where the method can choose; "" = all."""


@dataclass(slots=True)
class Finding:
    """One case that broke a promise, told so that it can be repeated."""

    what: str
    repeat: str
    """Seed and options, or the command, that shows it again."""


@dataclass(slots=True)
class Result:
    """What a method counted. Every number is counted by the run itself; None = the method cannot measure it."""

    cases: int = 0
    unit: str = "cases"
    """What a case is: images, kills, cuts, injections, flips, executions, connections."""
    confirmed: int = 0
    """Confirmed messages whose fate was checked."""
    lost: int = 0
    """Confirmed messages that the policy promised to keep and that were gone."""
    resurrected: int = 0
    """Messages that had been settled for good and came back, or that nobody ever published."""
    undetected: int = 0
    """Damage that was served or kept silent."""
    worst_weak_ms: float | None = None
    """Oldest confirmed weak message that a power cut lost."""
    figures: dict[str, float | int | str] = field(default_factory=dict)
    """Whatever else is worth a line below the table."""
    findings: list[Finding] = field(default_factory=list)
    complete: bool = True
    """False when the time ended before the planned cases."""

    @property
    def is_empty(self) -> bool:
        """Nothing was tried, so nothing is proved."""
        return not self.cases and not self.findings


@dataclass(frozen=True, slots=True)
class Size:
    cases: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Method:
    """One way to look for a loss. `tests/proof/methods.py` lists them all."""

    name: str
    title: str
    run: Callable[[Budget], Result]
    short: Size
    """In CI: a few seconds."""
    crash: Size
    torture: Size
    missing: Callable[[], str | None] = lambda: None
    """Why this machine cannot run it (no root, no strace …), or None."""
    waits: bool = False
    """Mostly for disks, clocks and peers, so that two others may run beside it."""
    alone: bool = False
    """It measures speed, so nothing may run beside it."""
    least_s: float = 1.0
    """With less time it would prove nothing, so it is left out."""
