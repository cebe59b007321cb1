"""What one sees while the demo runs: bars on a terminal, a line every two seconds elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import Progress

from vibemq.cli.output import Output
from vibemq.cli.progress import LINE_INTERVAL_S, bars
from vibemq.demos.flights.ledger import Ledger


class View(Protocol):
    def update(self, ledger: Ledger) -> None: ...

    def say(self, text: str) -> None:
        """An event worth a line of its own."""


class BarView:
    def __init__(self, progress: Progress, rows: int) -> None:
        self._progress = progress
        self._published = progress.add_task("published", total=rows)
        self._settled = progress.add_task("consumed ", total=rows)

    def update(self, ledger: Ledger) -> None:
        self._progress.update(self._published, completed=ledger.published)
        self._progress.update(self._settled, completed=ledger.distinct)

    def say(self, text: str) -> None:
        self._progress.console.print(text)


class LineView:
    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        self._console = console
        self._clock = clock
        self._next_at = 0.0

    def update(self, ledger: Ledger) -> None:
        now = self._clock()
        if now < self._next_at:
            return
        self._next_at = now + LINE_INTERVAL_S
        self.say(
            f"published {ledger.published:,} of {ledger.rows:,}, consumed {ledger.distinct:,}"
            f" (rejected {ledger.cancelled:,}, duplicates {ledger.duplicates:,})"
        )

    def say(self, text: str) -> None:
        self._console.print(text)


class NoView:
    def update(self, ledger: Ledger) -> None:
        """Nobody watches."""

    def say(self, text: str) -> None:
        """Nobody watches."""


@contextmanager
def view(out: Output, rows: int, clock: Callable[[], float]) -> Iterator[View]:
    if out.json:
        yield NoView()
    elif out.notes.is_terminal:
        with bars(out.notes) as progress:
            yield BarView(progress, rows)
    else:
        yield LineView(out.notes, clock)
