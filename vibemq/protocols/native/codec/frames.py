"""Frames of the native protocol: cut a byte stream into bodies, and wrap bodies into frames.

    size   u32 BE   bytes of the body as sent, from 2 to the limit
    flag   u8       0 plain, 1 gzip, 2 brotli
    body   size bytes

Source: docs/spec/native.md, "Frame".
"""

import struct
from collections.abc import Callable
from typing import NamedTuple

from vibemq.errors import LocalProtocolError, RemoteProtocolError
from vibemq.protocols.native.codec.compression import Compression, Inflater, compress

HEADER = struct.Struct("!IB")
HEADER_SIZE = HEADER.size
BODY_BYTES_MIN = 2
BODY_BYTES_MAX = 1_048_576
"""What a .NET client accepts, and the default of the server; the size as sent."""
COMPRESSION_THRESHOLD = 1024
DOTNET_INFLATED_BYTES_MAX = 64 << 20
"""What a .NET client inflates. All others hold a body to the limit of a frame then, too."""


class Frame(NamedTuple):
    """Where a complete frame's body lies in the buffer it was found in."""

    flag: int
    start: int
    end: int


class FrameTooLong(RemoteProtocolError):
    """The body of a frame is larger than an ordinary one may be."""

    def __init__(self, size: int, body_bytes_max: int) -> None:
        super().__init__(f"a frame announces a body of {size:,} B; allowed are 2 to {body_bytes_max:,}")
        self.size = size


def find_frame(data: bytes, at: int, body_bytes_max: int) -> Frame | None:
    """The complete frame at `at`, or None when more bytes are needed.

    Raises:
        FrameTooLong: as judged before the body is there.
        RemoteProtocolError: another impossible length, or an unknown flag (once the body is there).
    """
    available = len(data) - at
    if available < 4:
        return None
    size = int.from_bytes(data[at : at + 4], "big")
    if not BODY_BYTES_MIN <= size <= body_bytes_max:
        other = _other_protocol(data[at : at + 4])
        if size > body_bytes_max and not other:
            raise FrameTooLong(size, body_bytes_max)
        raise RemoteProtocolError(
            other or f"a frame announces a body of {size:,} B; allowed are 2 to {body_bytes_max:,}"
        )
    end = at + HEADER_SIZE + size
    if len(data) < end:
        return None
    flag = data[at + 4]
    if flag > Compression.BROTLI:
        raise RemoteProtocolError(f"a frame has the flag {flag:#04x}; known are 0 (plain), 1 (gzip) and 2 (brotli)")
    return Frame(flag, at + HEADER_SIZE, end)


_OTHERS = (
    (b"HTTP", "the answer is HTTP: this is a port for HTTP; use the port of the native protocol, usually 2925"),
    (b"\x15\x03", "a TLS alert came: this port speaks TLS; write vibemqs:// instead of vibemq://"),
    (b"\x16\x03", "a TLS handshake came to a listener without TLS; the client should write vibemq://, not vibemqs://"),
    *(
        (
            verb,
            "an HTTP request came to the native protocol's port; HTTP is served on another, usually 2926",
        )
        for verb in (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC", b"CONN", b"PRI ")
    ),
)


def _other_protocol(start: bytes) -> str:
    """What was probably meant by bytes that cannot be the start of a frame; "" when nobody knows."""
    return next((sentence for prefix, sentence in _OTHERS if start.startswith(prefix)), "")


def encode_frame(
    body: bytes,
    how: Compression = Compression.NONE,
    threshold: int = COMPRESSION_THRESHOLD,
    *,
    body_bytes_max: int = BODY_BYTES_MAX,
    inflated_bytes_max: int | None = None,
    inflates: Callable[[int, int], bool] | None = None,
) -> bytes:
    """Wrap a body; from `threshold` bytes on it is compressed, when that makes it smaller and the peer inflates it.

    Args:
        inflated_bytes_max: largest body that the peer inflates; None: as it is sent.
        inflates: whether the peer inflates so many bytes to so many; None: whatever comes.

    Raises:
        LocalProtocolError: more bytes to send than a peer accepts.
    """
    size, most = len(body), body_bytes_max if inflated_bytes_max is None else inflated_bytes_max
    if size > most:
        raise _too_large(size, most)
    flag = Compression.NONE
    if how and size >= threshold:
        packed = compress(body, how)
        if BODY_BYTES_MIN <= len(packed) < size and (inflates is None or inflates(len(packed), size)):
            body, flag, size = packed, how, len(packed)
    if size > body_bytes_max:
        raise _too_large(size, body_bytes_max)
    return HEADER.pack(size, flag) + body


def _too_large(size: int, most: int) -> LocalProtocolError:
    return LocalProtocolError(f"a body of {size:,} B does not fit into a frame; the limit is {most:,}")


class ByteBuffer:
    """Bytes that have come but are not used up. Every byte is copied a bounded number of times, however it is cut.

    A chunk that meets an empty buffer is used as it is, without a copy. While a frame is incomplete its bytes only
    gather; they are joined once it is complete.
    """

    __slots__ = ("_partial", "_whole")

    def __init__(self) -> None:
        self._whole = b""
        self._partial = bytearray()

    def __len__(self) -> int:
        return len(self._whole) + len(self._partial)

    def append(self, data: bytes) -> None:
        if self._partial:
            self._partial += data
        elif self._whole:
            self._partial += self._whole
            self._partial += data
            self._whole = b""
        else:
            self._whole = data

    def take(self, body_bytes_max: int) -> bytes:
        """Everything, once its first frame is complete or its length is one that `find_frame` refuses; else b"".

        What is not used is given back with `put_back`.
        """
        if not self._partial:
            whole, self._whole = self._whole, b""
            return whole
        have = len(self._partial)
        size = int.from_bytes(self._partial[:4], "big")
        if have < 4 or (have < HEADER_SIZE + size and BODY_BYTES_MIN <= size <= body_bytes_max):
            return b""
        data = bytes(self._partial)
        self._partial.clear()
        return data

    def take_all(self) -> bytes:
        """Everything, whatever it begins with."""
        data = bytes(self._partial) if self._partial else self._whole
        self._whole = b""
        self._partial.clear()
        return data

    def put_back(self, rest: bytes) -> None:
        """Keep what `take` returned too much; only valid before the next append."""
        self._partial += rest


class NativeFrameReader:
    """Cuts a byte stream into bodies, however the network cut it first. For clients; the server's session has its own
    loop, because it reads Publish frames without cutting their bodies out.

    Args:
        body_bytes_max: largest body, both as sent and decompressed.
    """

    def __init__(self, *, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        self._body_bytes_max = body_bytes_max
        self._buffer = ByteBuffer()
        self._inflater = Inflater(body_bytes_max=body_bytes_max)

    def receive_data(self, data: bytes) -> None:
        self._buffer.append(data)

    @property
    def buffered(self) -> int:
        """Bytes of a frame that is not complete; not 0 at the end of the stream means it was cut."""
        return len(self._buffer)

    def bodies(self) -> list[bytes]:
        """The bodies of all complete frames, decompressed, in order.

        Raises:
            RemoteProtocolError: the stream cannot be read on. The bodies before the broken frame are returned first;
                the error comes with the next call.
        """
        data = self._buffer.take(self._body_bytes_max)
        at = 0
        bodies: list[bytes] = []
        try:
            while (frame := find_frame(data, at, self._body_bytes_max)) is not None:
                body = data[frame.start : frame.end]
                bodies.append(self._inflater.inflate(body, frame.flag) if frame.flag else body)
                at = frame.end
        except RemoteProtocolError:
            if not bodies:
                raise
        finally:
            if at < len(data):
                self._buffer.put_back(data[at:])
        return bodies
