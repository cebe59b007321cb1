"""A thread that keeps a spare journal segment ready, so that `append` in the event loop never has to make one, and the
checkpointer busy during a burst."""

import logging
import threading
from collections.abc import Callable

from vibemq.errors import StorageError

logger = logging.getLogger(__name__)


class SpareSegments:
    """Calls `work` once after any number of `wake`s. An error is logged: the next append meets it as well."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._wanted = threading.Event()
        self._working = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="vibemq-upkeep", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether what was wanted is not done yet, one way or the other."""
        return self._working or self._wanted.is_set()

    def wake(self) -> None:
        self._wanted.set()

    def stop(self) -> None:
        """Return when the thread has ended. Idempotent."""
        self._stopping = True
        self._wanted.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._working = True
            self._wanted.clear()
            if self._stopping:
                return
            try:
                self._work()
            except (StorageError, OSError) as error:
                logger.warning("housekeeping: %s", error)
            except Exception:
                # Who sends much waits for what is busy, and this is as long as something is wanted.
                logger.exception("housekeeping failed")
            finally:
                self._working = False
