"""A connected blocking client: its loop, its connections, and how they end.

Whoever has published without waiting counts on the client to go on until all is confirmed. So everything that runs is
kept here, not by the object of the program, and ends in one of three ways: the program closes it; nothing of the
program refers to it any more; the process ends. Interpreters run exit handlers then, but not in the children that
`multiprocessing` forks: these have finalizers of their own.
"""

import atexit
import logging
import os
import sys
import time
from threading import Thread, current_thread, main_thread
from threading import enumerate as running_threads
from types import TracebackType
from typing import TYPE_CHECKING

from vibemq import client as asynchronous
from vibemq.client.connecting.forking import watch_forks
from vibemq.errors import VibeMQError
from vibemq.sync.direct_publishes import DirectPublishes
from vibemq.sync.loop_thread import LoopThread

if TYPE_CHECKING:
    from multiprocessing.util import Finalize

logger = logging.getLogger(__name__)

_LAST = -100
"""Priority of finalizers of `multiprocessing`: those of the program may still publish."""


class OpenClient:
    """Of one process.

    Raises:
        VibeMQError: no connection.
    """

    def __init__(self, client: asynchronous.Client) -> None:
        self.client = client
        self.ending = False
        """What is handed over from now on may be sent by nobody."""
        self._is_let_go = False
        self.loop = LoopThread("vibemq-client")
        try:
            self.loop.call(client.open)
            self.direct = DirectPublishes(self.loop, client)
            watch_forks(self)
            _open.add(self)
            _watch_workers()
        except BaseException:
            _open.discard(self)
            self.loop.close()
            raise

    def end(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        """Say goodbye, and wait until all is over. `error`: of the program, on its way."""
        self.ending = True
        if self.loop.closed:
            _open.discard(self)
            return
        until = time.monotonic() + self.client.settings.command_timeout
        self.direct.begin_closing()
        try:
            self.loop.call(self.client.__aexit__, kind, error, trace)
        finally:
            self.direct.close(max(0.0, until - time.monotonic()))
            self.loop.close()
            _open.discard(self)

    def let_go(self) -> None:
        """Nothing of the program refers to it any more: it ends by itself once all is confirmed. A finalizer calls
        this, in any thread and at any moment, so it only hands over."""
        self._is_let_go = True
        try:
            self.loop.post(self._begin_leaving)
        except VibeMQError:
            _open.discard(self)  # It has ended, or is the parent's.
        except BaseException:
            self._is_let_go = False
            raise

    def end_with_the_process(self) -> None:
        if self._is_let_go:
            self.loop.join()
        else:
            self.end()

    def forked(self) -> None:
        """See `vibemq.client.connecting.forking.Forkable`."""
        self.direct.forked()
        self.loop.abandon(self)
        _open.discard(self)

    # -- in the loop --------------------------------------------------------------------------------------------------

    def _begin_leaving(self) -> None:
        self.loop.start(self._leave())

    async def _leave(self) -> None:
        self.ending = True
        self.direct.begin_closing()
        try:
            await self.client.close()
        except Exception:
            # Nobody is left to be told.
            logger.exception("a client that nothing referred to any more could not be closed")
        finally:
            self.direct.close(0)
            self.loop.close()
            _open.discard(self)


_open: set[OpenClient] = set()


@atexit.register
def _close_all() -> None:
    for client in list(_open):
        try:
            client.end_with_the_process()
        except Exception:
            logger.exception("a client could not be closed at the end of the program")


# -- children of multiprocessing --------------------------------------------------------------------------------------

_at_the_end: "Finalize | None" = None
_at_the_end_of = 0
"""Which process."""
_watching = False
"""`multiprocessing` calls `_become_a_worker` in children. They inherit that with its registry."""


def _watch_workers() -> None:
    global _watching
    # Whoever has children has imported it, and so has each child.
    if "multiprocessing.util" not in sys.modules:
        return
    from multiprocessing import parent_process, util

    if not _watching:
        _watching = True
        util.register_after_fork(_become_a_worker, _become_a_worker)
    if parent_process() is not None:
        _become_a_worker()


def _become_a_worker(_: object = None) -> None:
    """In a child of `multiprocessing` that has begun, which forgets all finalizers just before."""
    global _at_the_end, _at_the_end_of
    from multiprocessing import get_start_method, util

    # What is spawned runs its exit handlers, which may still publish.
    if get_start_method(allow_none=True) == "spawn":
        return
    if _at_the_end is None or not _at_the_end.still_active() or _at_the_end_of != os.getpid():
        _at_the_end = util.Finalize(None, _end_a_worker, exitpriority=_LAST)
        _at_the_end_of = os.getpid()


def _end_a_worker() -> None:
    """The process waits for its threads after this, and they may still publish: so this waits for them, too, in one
    of them."""
    here = current_thread(), main_thread()
    threads = [thread for thread in running_threads() if not thread.daemon and thread not in here]
    if not threads:
        _close_all()
        return
    try:
        Thread(target=_close_behind, args=(threads,), name="vibemq-end", daemon=False).start()
    except RuntimeError:
        logger.warning("there is no thread to wait for the others of this process with; its clients are closed now")
        _close_all()


def _close_behind(threads: list[Thread]) -> None:
    for thread in threads:
        thread.join()
    _close_all()
