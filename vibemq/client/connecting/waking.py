"""When a link has something to send: for connections whose writer is a task."""

from typing import Final

import anyio

LINGER_S: Final = 0.002
"""How long acknowledgements may wait for more of them."""


class Waking:
    """The link calls `wake` and `linger`; the writer waits in `woken`."""

    def __init__(self) -> None:
        self._wake = anyio.Event()
        self._hurry = anyio.Event()

    def wake(self) -> None:
        if not self._hurry.is_set():
            self._wake.set()
            self._hurry.set()

    def send_now(self) -> None:
        self.wake()

    def linger(self) -> None:
        self._wake.set()

    async def woken(self) -> None:
        """Return when there is something to send that should go now, or has waited for long enough."""
        await self._wake.wait()
        if not self._hurry.is_set():
            with anyio.move_on_after(LINGER_S):
                await self._hurry.wait()
        self._wake, self._hurry = anyio.Event(), anyio.Event()
