"""Messages whose publisher does not wait for the confirm: `publish(..., wait=False)`. What failed is told later.

Bounded: there are at most as many of them as may be unconfirmed, and nothing more is taken before failures are told.
"""

import logging

from vibemq.client.publishing.outbox import PublishBatch
from vibemq.errors import FailedPublish, PublishFailed, VibeMQError

logger = logging.getLogger(__name__)


class UnwaitedPublishes:
    """Those of one client."""

    def __init__(self) -> None:
        self._under_way: dict[PublishBatch, list[tuple[int, str | None]]] = {}
        self._failures: list[FailedPublish] = []

    @property
    def failed(self) -> bool:
        """Whether there is something to tell."""
        return bool(self._failures)

    def add(self, batch: PublishBatch, index: int, message_id: str | None) -> None:
        places = self._under_way.get(batch)
        if places is None:
            places = self._under_way[batch] = []
            batch.when_done(lambda: self._done(batch))
        places.append((index, message_id))

    def fail(self, queue: str, message_id: str | None, error: VibeMQError) -> None:
        self._failures.append(FailedPublish(queue, message_id, error))

    async def settled(self) -> None:
        """Wait until each that is under way now is confirmed or has failed."""
        for batch in list(self._under_way):
            await batch.done.wait()

    def raise_failures(self) -> None:
        """
        Raises:
            PublishFailed: some have failed since the last time.
        """
        if self._failures:
            failures, self._failures = self._failures, []
            raise PublishFailed(failures)

    def tell(self, error: BaseException | None) -> None:
        """Tell them as a note of an error of the program, which is on its way, and in the log, because whoever catches
        the error may not show its notes; without one, raise them as `raise_failures`."""
        try:
            self.raise_failures()
        except PublishFailed as failed:
            if error is None:
                raise
            error.add_note(str(failed))
            logger.error("%s", failed)

    def log(self) -> None:
        """That some have failed, where perhaps nobody comes to be told."""
        if self._failures:
            logger.error(
                "%d messages of publish(wait=False) are not confirmed: %s",
                len(self._failures),
                self._failures[0].error,
            )

    def _done(self, batch: PublishBatch) -> None:
        places = self._under_way.pop(batch)
        if not batch.refused:
            return
        for index, message_id in places:
            error = batch.refusal(index)
            if error is not None:
                self.fail(batch.queue, message_id, error)
