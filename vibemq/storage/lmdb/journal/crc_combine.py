"""The CRC32C of two byte strings joined, from that of each: data is checked before what stands in front is known.

A zero byte behind a string is a linear map of its checksum over GF(2), a matrix of 32 x 32 bits. The maps for 1, 2,
4, … bytes are made once; a length takes one of them for each of its bits.
"""

from functools import cache

_POLYNOMIAL = 0x82F63B78
_BITS = 32

Matrix = tuple[int, ...]
"""One column for each bit of the vector."""


def combine(first: int, second: int, second_size: int) -> int:
    """The checksum of both strings joined; `second_size`: bytes of the second one."""
    bit = 0
    while second_size >> bit:
        if second_size >> bit & 1:
            first = _times(_zero_bytes(bit), first)
        bit += 1
    return first ^ second


@cache
def _zero_bytes(bit: int) -> Matrix:
    """The map of 2**bit zero bytes."""
    if bit:
        return _square(_zero_bytes(bit - 1))
    one_bit: Matrix = (_POLYNOMIAL, *(1 << column for column in range(_BITS - 1)))
    return _square(_square(_square(one_bit)))


def _times(matrix: Matrix, vector: int) -> int:
    total, column = 0, 0
    while vector:
        if vector & 1:
            total ^= matrix[column]
        vector >>= 1
        column += 1
    return total


def _square(matrix: Matrix) -> Matrix:
    return tuple(_times(matrix, column) for column in matrix)
