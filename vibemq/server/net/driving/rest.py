"""While a session keeps back what its peer sends, the kernel gathers it: a wake-up of the loop for each piece costs
more than the pieces.

The kernel is told so by SO_RCVLOWAT. Merely not to read would have it keep back its acknowledgements as well, for which
a peer with little room in its socket waits.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

REST_S = 0.001
"""After so long it is looked at what has come."""
GATHERED_BYTES = 65_536
"""So much is read as it comes."""
READ_BYTES = 65_536


class ReadingRest:
    """
    Args:
        connected: the accepted socket. Nothing stands between it and the session, such as TLS.
        take: takes what was read.
    """

    __slots__ = ("_connected", "_take", "_timer")

    def __init__(self, connected: socket.socket, take: Callable[[bytes], None]) -> None:
        self._connected = connected
        self._take = take
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        if self._timer is None and self._wake_at(GATHERED_BYTES):
            self._timer = asyncio.get_running_loop().call_later(REST_S, self._look)

    def _look(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(REST_S, self._look)
        self.read()

    def read(self) -> bool:
        """Take what has come meanwhile, or the first part of it; False: nothing has, and the rest is over."""
        if self._timer is None:
            return False
        try:
            data = self._connected.recv(READ_BYTES)
        except OSError:
            # Nothing has come. Whatever else it is, the transport meets it as well, as it meets the end of the stream.
            data = b""
        if data:
            self._take(data)
        else:
            self.end()
        return bool(data)

    def end(self) -> None:
        """What comes is read at once. Idempotent."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            self._wake_at(1)

    def _wake_at(self, size: int) -> bool:
        with suppress(OSError):
            self._connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
            return True
        return False
