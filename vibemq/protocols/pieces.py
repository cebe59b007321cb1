"""Bytes that come piece by piece, until they are whole."""

_PIECE_BYTES = 1 << 14


def keep_piece(pieces: list[bytes | bytearray], piece: bytes) -> None:
    """Append it; small ones are put together, because each of them would cost many times its size."""
    if not pieces or len(piece) >= _PIECE_BYTES:
        pieces.append(piece)
    elif type(pieces[-1]) is bytearray and len(pieces[-1]) < _PIECE_BYTES:
        pieces[-1] += piece
    else:
        pieces.append(bytearray(piece))
