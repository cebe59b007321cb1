"""One cell, several peers in turn, several rounds: what disturbs the machine disturbs all of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.common.lab import Cell, Lab, Mode
from bench.common.load import Job
from bench.common.peer import peer_class
from bench.common.report import Journal, fsync_ms, si
from bench.common.servers import ServerFailed
from bench.common.worker import LoadFailed

FIRST_PROBE_MESSAGES = 200
PROBE_MESSAGES = 2_000
PROBE_S = 0.5
"""A first probe that took longer is enough."""
MESSAGES_MAX = 300_000
CONTENDERS_SHARE = 1 / 8
"""A peer that is slower in the probe than this share of the fastest peer decides nothing, and is not asked again."""
KEPT_UP_SHARE = 0.8
"""A peer below this share of a fixed rate only measures its own queue."""


@dataclass(slots=True)
class Scale:
    """How long everything may take."""

    rounds: int = 5
    seconds: float = 3.0
    """Of one run, about."""
    window: int = 0
    """Unconfirmed messages at most; 0 = each client's best."""


@dataclass(slots=True)
class Results:
    runs: dict[Cell, dict[str, list[dict[str, Any]]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """Who was left out, and why."""


class Interleaver:
    def __init__(self, lab: Lab, journal: Journal, scale: Scale, say: Callable[[str], None]) -> None:
        self._lab = lab
        self._journal = journal
        self._scale = scale
        self._say = say
        self.results = Results()

    def run(self, cell: Cell, names: Sequence[str]) -> None:
        """Measure the cell with everybody who can; VibeMQ is the first of the names."""
        median_ms, p99_ms = fsync_ms(self._lab.folder)
        self._journal.write("fsync", p50_ms=median_ms, p99_ms=p99_ms)
        self._say(f"{cell.name}   (fsync p50 {median_ms:.2f} ms, p99 {p99_ms:.2f} ms)")
        jobs = self._contenders(cell, [name for name in names if self._fit(name, cell)])
        runs = self.results.runs[cell] = {name: [] for name in jobs}
        for number in range(self._scale.rounds):
            order = [*jobs]
            turn = number % len(order) if order else 0
            for name in (*order[turn:], *order[:turn]):
                if name not in jobs:
                    continue
                run = self._measured(name, cell, jobs[name], number)
                if run is None:
                    del jobs[name], runs[name]
                    continue
                runs[name].append(run)
                self._say(_line(name, cell, run))
                if name != names[0] and run["rate"] < cell.rate * KEPT_UP_SHARE:
                    del jobs[name]
                    self.results.notes.append(f"{name}: kept up with {si(run['rate'])}/s only, not asked again")

    def _fit(self, name: str, cell: Cell) -> bool:
        """Whether the peer can be measured at all; a reason is noted once."""
        try:
            kind = peer_class(name)
        except ImportError as error:
            return self._without(name, f"its Python client is not installed (pip install --group bench): {error}")
        if cell.guarantee not in kind.guarantees:
            return False
        why = kind.missing() or kind(cell.guarantee).unfit()
        return self._without(name, why) if why else True

    def _without(self, name: str, why: str) -> bool:
        note = f"{name}: {why}"
        if note not in self.results.notes:
            self.results.notes.append(note)
            self._say(f"  without {note}")
        return False

    def _contenders(self, cell: Cell, names: Sequence[str]) -> dict[str, Job]:
        """Probe everybody, once and not counted; the messages that each can do in the time of a run."""
        if cell.mode is Mode.LATENCY:
            return dict.fromkeys(names, self._job(cell, int(cell.rate * max(3.0, self._scale.seconds))))
        rates: dict[str, float] = {}
        for name in names:
            run = self._measured(name, cell, self._job(cell, FIRST_PROBE_MESSAGES // cell.subscribers), -1)
            if run is not None and run["seconds"] < PROBE_S:
                run = self._measured(name, cell, self._job(cell, PROBE_MESSAGES // cell.subscribers), -1)
            if run is not None:
                rates[name] = run["rate"]
        fastest_peer = max((rate for name, rate in rates.items() if name != names[0]), default=0.0)
        for name, rate in list(rates.items()):
            if name != names[0] and rate < fastest_peer * CONTENDERS_SHARE:
                del rates[name]
                self.results.notes.append(f"{name}: in the probe of {cell.name} only {si(rate)}/s, no contender there")
        return {name: self._job(cell, self._messages(rate, cell)) for name, rate in rates.items()}

    def _messages(self, rate: float, cell: Cell) -> int:
        # The probe is too short to be fast: warm runs take less than `seconds`.
        return max(PROBE_MESSAGES, min(MESSAGES_MAX, int(1.5 * rate * self._scale.seconds))) // cell.subscribers

    def _job(self, cell: Cell, messages: int) -> Job:
        return Job(
            messages=messages,
            size=cell.size,
            rate=cell.rate,
            subscribers=cell.subscribers,
            window=self._scale.window,
        )

    def _measured(self, name: str, cell: Cell, job: Job, number: int) -> dict[str, Any] | None:
        try:
            run = self._lab.measure(name, cell, job)
        except (ServerFailed, LoadFailed) as error:
            self._without(name, f"{cell.name}: {error}")
            return None
        self._journal.write("probe" if number < 0 else "run", round=number, **run)
        return run


def _line(name: str, cell: Cell, run: dict[str, Any]) -> str:
    latency = run["latency"]
    figures = f"{si(run['rate']):>7}/s  server {run['server_cpu_s_per_100k']:.2f} CPU s per 100k"
    if cell.mode is Mode.LATENCY:
        figures = f"p50 {latency['p50_ms']:.2f} ms  p99 {latency['p99_ms']:.2f} ms"
    return f"  {name:<17} {figures}  (others on this machine: {run['foreign_cores']:.1f} cores)"
