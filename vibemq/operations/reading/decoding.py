"""gzip and brotli for people who look at a message: as much as they want to see, bounded in bytes and in time. Pure."""

import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import brotli

from vibemq.errors import InvalidPayload, MessageTooLarge

DECODED_BYTES_MAX = 16_777_216
"""Of one body that is opened."""
DECODED_S_MAX = 2.0
PIECE_BYTES = 65_536
_GZIP_WINDOW = 16 + zlib.MAX_WBITS


class Decoded(NamedTuple):
    """What has come out of a compressed body."""

    data: bytes
    whole: bool
    """There is nothing behind it."""


def decoded(packed: bytes, how: str, most: int, monotonic: Callable[[], float]) -> Decoded:
    """The first `most` bytes of what the body holds. Runs in a thread.

    Raises:
        InvalidPayload: it is not compressed so, is damaged or cut short, or takes too long.
    """
    end = monotonic() + DECODED_S_MAX
    pieces: list[bytes] = []
    size = 0
    try:
        for piece in _gunzipped(packed) if how == "gzip" else _unbrotlied(packed):
            pieces.append(piece)
            size += len(piece)
            if size > most:
                return Decoded(b"".join(pieces)[:most], whole=False)
            if monotonic() >= end:
                raise InvalidPayload(
                    f"the body cannot be opened as {how} within {DECODED_S_MAX:g} s; load it as it is, without decode"
                )
    except (zlib.error, brotli.error) as error:
        raise InvalidPayload(f"the body cannot be opened as {how}: {error}; load it without decode") from None
    return Decoded(b"".join(pieces), whole=True)


def decoded_whole(packed: bytes, how: str, monotonic: Callable[[], float]) -> bytes:
    """Raises InvalidPayload as `decoded`; MessageTooLarge when there is more than `DECODED_BYTES_MAX`."""
    found = decoded(packed, how, DECODED_BYTES_MAX, monotonic)
    if not found.whole:
        raise MessageTooLarge(
            f"the body holds more than {DECODED_BYTES_MAX:,} bytes once it is opened as {how}; load it without decode"
        )
    return found.data


def _gunzipped(packed: bytes) -> Iterator[bytes]:
    """Of all members of the stream, one behind the other."""
    while packed:
        unpacker = zlib.decompressobj(_GZIP_WINDOW)
        waiting = packed
        while not unpacker.eof:
            piece = unpacker.decompress(waiting, PIECE_BYTES)
            waiting = unpacker.unconsumed_tail
            if not (piece or waiting or unpacker.eof):
                raise zlib.error("it is cut short")
            yield piece
        packed = unpacker.unused_data


def _unbrotlied(packed: bytes) -> Iterator[bytes]:
    unpacker = brotli.Decompressor()
    given = packed
    while True:
        piece = unpacker.process(given, output_buffer_limit=PIECE_BYTES)
        given = b""
        yield piece
        if unpacker.is_finished():
            return
        if not piece and unpacker.can_accept_more_data():
            raise brotli.error("it is cut short")
