"""Progress of long work: a bar on a terminal, a plain line every two seconds elsewhere, nothing with --json."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TextIO

from vibemq.cli.output import Output

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

LINE_INTERVAL_S = 2.0


class Tracker(Protocol):
    def __call__(self, done: int, total: int) -> None:
        """Stand of the work; total 0 = unknown."""


class PlainTracker:
    """Lines for logs and pipes: the first report, one per interval in which something was done, the last."""

    def __init__(self, title: str, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._title = title
        self._stream = stream
        self._clock = clock
        self._next_at = clock()
        self._shown: tuple[int, int] | None = None
        self._latest: tuple[int, int] | None = None

    def __call__(self, done: int, total: int) -> None:
        self._latest = (done, total)
        if self._latest != self._shown and self._clock() >= self._next_at:
            self._show(done, total)

    def finish(self) -> None:
        if self._latest is not None and self._shown != self._latest:
            self._show(*self._latest)

    def _show(self, done: int, total: int) -> None:
        self._shown = (done, total)
        self._next_at = self._clock() + LINE_INTERVAL_S
        of_total = f" of {total:,} ({100 * done // total} %)" if total else ""
        print(f"{self._title}: {done:,}{of_total}", file=self._stream, flush=True)


@contextmanager
def tracked(title: str, out: Output, *, silent: bool = False) -> Iterator[Tracker]:
    """Report progress among the notes of `out` while the block runs."""
    if silent:
        yield _ignore
        return
    console = out.notes
    if console.is_terminal:
        with bars(console) as progress:
            task = progress.add_task(title, total=None)
            yield lambda done, total: progress.update(task, completed=done, total=total or None)
    else:
        tracker = PlainTracker(title, console.file)  # type: ignore[arg-type]  # rich says IO[str]
        yield tracker
        tracker.finish()


def bars(console: "Console") -> "Progress":
    # Most commands draw none.
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=40),
        MofNCompleteColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(),
        console=console,
    )


def _ignore(done: int, total: int) -> None:
    """Nobody watches."""
