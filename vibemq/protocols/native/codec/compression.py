"""gzip and brotli, bounded: what a frame's flag byte means, and how much a peer may inflate."""

import zlib
from collections.abc import Iterable, Sequence
from enum import IntEnum

import brotli

from vibemq.errors import RemoteProtocolError


class Compression(IntEnum):
    """The flag byte of a frame."""

    NONE = 0
    GZIP = 1
    BROTLI = 2


NAMES = {"gzip": Compression.GZIP, "brotli": Compression.BROTLI}

_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_PIECE_BYTES = 64 * 1024
_ID_ENDS_AT = 4 + 0xFFFF
"""At the latest, in a body."""


def choose(offered: str, supported: Iterable[str]) -> Compression:
    """The first name of the peer's comma list that we support; NONE when there is none."""
    known = set(supported)
    for name in (part.strip().lower() for part in offered.split(",")):
        if name in known and name in NAMES:
            return NAMES[name]
    return Compression.NONE


def compress(body: bytes, how: Compression) -> bytes:
    """Fast levels: gzip 1, brotli quality 1 with a 22 bit window."""
    if how is Compression.GZIP:
        # A gzip member with no time stamp: equal bodies give equal frames.
        packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP_WINDOW)
        return packer.compress(body) + packer.flush()
    if how is Compression.BROTLI:
        packed: bytes = brotli.compress(body, quality=1, lgwin=22)
        return packed
    return body


class InflationCredit:
    """How much a reader of compressed frames inflates on behalf of its peer. Both ends of a direction keep the account:
    the reader refuses what goes beyond it, and the writer sends such a frame plain."""

    def __init__(self, ratio: int = 100, allowance_bytes: int = 16 * 1024 * 1024) -> None:
        self.ratio = ratio
        self._allowance = allowance_bytes
        self._left = allowance_bytes

    def covers(self, packed_bytes: int, body_bytes: int) -> bool:
        """Whether a frame takes nothing of it: its place among the others does not matter. It is not counted."""
        return body_bytes <= packed_bytes * self.ratio

    def take(self, packed_bytes: int, body_bytes: int) -> bool:
        """Whether a frame keeps to it; then it is counted."""
        left = self._left + packed_bytes * self.ratio - body_bytes
        if left < 0:
            return False
        self._left = min(self._allowance, left)
        return True


class GrowsTooLarge(RemoteProtocolError):
    """A compressed body is larger than a body may be; where its frame ends is known all the same."""

    def __init__(self, body_bytes_max: int, start: bytes) -> None:
        super().__init__(f"a compressed body grows past the limit of {body_bytes_max:,} B")
        self.start = start
        """As far as it was inflated, up to where its id ends at most."""


class Inflater:
    """Decompresses frames of one connection within two bounds.

    A single body never grows past `body_bytes_max`: the decoders stop there, so a bomb costs that much memory and no
    more. And over time a peer may not make us inflate more than `ratio` times what it sends, with `allowance_bytes`
    of credit: one very compressible message is fine, a stream of bombs is not.
    """

    def __init__(self, *, body_bytes_max: int, ratio: int = 100, allowance_bytes: int = 16 * 1024 * 1024) -> None:
        self._body_bytes_max = body_bytes_max
        self._credit = InflationCredit(ratio, allowance_bytes)

    def inflate(self, packed: bytes, flag: int) -> bytes:
        """
        Raises:
            GrowsTooLarge: a body over the limit.
            RemoteProtocolError: damaged data, or too much for what was sent.
        """
        try:
            body = self._gunzip(packed) if flag == Compression.GZIP else self._unbrotli(packed)
        except (zlib.error, brotli.error) as error:
            raise RemoteProtocolError(f"compressed body of {len(packed)} B cannot be read: {error}") from None
        except GrowsTooLarge:
            self._count(len(packed), self._body_bytes_max)
            raise
        if len(body) < 2:
            raise RemoteProtocolError(f"a compressed body holds {len(body)} B; the smallest body has 13 B")
        self._count(len(packed), len(body))
        return body

    def _count(self, packed_bytes: int, body_bytes: int) -> None:
        if not self._credit.take(packed_bytes, body_bytes):
            raise RemoteProtocolError(
                f"compressed frames grow more than {self._credit.ratio} times over; send such data in smaller or plain "
                "frames"
            )

    def _gunzip(self, packed: bytes) -> bytes:
        unpacker = zlib.decompressobj(_GZIP_WINDOW)
        body = unpacker.decompress(packed, self._body_bytes_max + 1)
        self._check(len(body), [body])
        if not unpacker.eof:
            raise zlib.error("the stream is cut short")
        return body

    def _unbrotli(self, packed: bytes) -> bytes:
        unpacker = brotli.Decompressor()
        pieces = [unpacker.process(packed, output_buffer_limit=_PIECE_BYTES)]
        size = len(pieces[0])
        while not unpacker.is_finished():
            self._check(size, pieces)
            piece = unpacker.process(b"", output_buffer_limit=_PIECE_BYTES)
            if not piece and not unpacker.is_finished() and unpacker.can_accept_more_data():
                raise RemoteProtocolError(f"compressed body of {len(packed)} B is cut short")
            pieces.append(piece)
            size += len(piece)
        self._check(size, pieces)
        return b"".join(pieces)

    def _check(self, size: int, pieces: Sequence[bytes]) -> None:
        if size > self._body_bytes_max:
            raise GrowsTooLarge(self._body_bytes_max, b"".join(pieces[:2])[:_ID_ENDS_AT])
