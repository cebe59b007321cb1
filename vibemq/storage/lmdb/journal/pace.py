"""A large row gives way to what others flush."""

import time
from collections.abc import Callable

FLUSHES = 2
"""Of others, since the row was begun: one may be that of a timer, or of the large row before."""
REST_MAX_S = 0.005
"""A piece that took longer was held up by something else."""


class RowPace:
    """Between two pieces of a row a rest, as long as the piece has taken, once others flush meanwhile: then a row has
    at most half of the disk, of the interpreter and of a processor. While nobody does it has all that it can get.

    Args:
        flushes: how many there have been.
        monotonic: seconds.
    """

    def __init__(
        self,
        flushes: Callable[[], int],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._flushes = flushes
        self._monotonic = monotonic
        self._pause = pause
        self._flushes_before = flushes()
        self._began = monotonic()

    def rest(self) -> None:
        """A piece is done."""
        if self._flushes() - self._flushes_before >= FLUSHES:
            self._pause(min(self._monotonic() - self._began, REST_MAX_S))
        self._began = self._monotonic()
