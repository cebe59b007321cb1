"""What the operating system knows of the bytes on their way to the other end of a TCP connection."""

import socket
import struct
import sys

if sys.platform == "linux":
    import fcntl
    import termios

_INFO_BYTES = 136
_ACKNOWLEDGED = struct.Struct("@Q")
_ACKNOWLEDGED_AT = 120
"""`tcpi_bytes_acked` of struct tcp_info (linux/tcp.h), since Linux 4.1."""
_NOTHING = b"\0\0\0\0"


class TcpLine:
    """Asked now and then.

    Args:
        carrier: the connection's socket; None, or not on Linux: nothing is known of it.
    """

    def __init__(self, carrier: socket.socket | None) -> None:
        self._socket = carrier
        self._acknowledged = 0
        self._waiting = 0
        """Bytes that the other end had not acknowledged at the last look."""

    def is_slow(self) -> bool:
        """Whether some of what was on its way at the last look still is, although the other end's system has taken
        some since."""
        if sys.platform != "linux" or self._socket is None:
            return False
        try:
            info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
            (waiting,) = struct.unpack("@i", fcntl.ioctl(self._socket.fileno(), termios.TIOCOUTQ, _NOTHING))
        except (OSError, ValueError):
            # No TCP, or closed, of which uvloop tells with a ValueError.
            return False
        if len(info) < _INFO_BYTES:
            return False
        (acknowledged,) = _ACKNOWLEDGED.unpack_from(info, _ACKNOWLEDGED_AT)
        taken = acknowledged - self._acknowledged
        is_slow: bool = 0 < taken < self._waiting
        self._acknowledged, self._waiting = acknowledged, waiting
        return is_slow
