"""The account of what a peer inflates: the writer keeps it as the reader does."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.errors import RemoteProtocolError
from vibemq.protocols.native.codec.compression import Compression, InflationCredit
from vibemq.protocols.native.codec.frames import NativeFrameReader, encode_frame

BODY = 256 * 1024
ALIKE = b'{"order": 1, "state": "new"}' * (BODY // 28)


@pytest.mark.parametrize("how", [Compression.GZIP, Compression.BROTLI])
def test_equal_messages_never_end_the_connection(how: Compression) -> None:
    reader, credit, sent = NativeFrameReader(), InflationCredit(), 0
    for _ in range(200):
        frame = encode_frame(ALIKE, how, inflates=credit.take)
        sent += len(frame)
        reader.receive_data(frame)
        assert reader.bodies() == [ALIKE]
    assert sent < 200 * len(ALIKE) * 0.8, "the credit is used"


def test_a_writer_without_the_account_is_refused() -> None:
    reader = NativeFrameReader()
    reader.receive_data(encode_frame(ALIKE, Compression.BROTLI) * 200)
    with pytest.raises(RemoteProtocolError, match="more than 100 times"):
        list(iter(reader.bodies, []))


@given(st.lists(st.tuples(st.integers(2, 300_000), st.booleans(), st.sampled_from(list(Compression))), max_size=40))
def test_the_reader_takes_whatever_a_writer_with_the_account_sends(
    messages: list[tuple[int, bool, Compression]],
) -> None:
    reader = NativeFrameReader()
    # Small accounts, so that their ends are met.
    credit = InflationCredit(allowance_bytes=100_000)
    reader._inflater._credit = InflationCredit(allowance_bytes=100_000)
    for size, is_noise, how in messages:
        body = os.urandom(size) if is_noise else bytes(size)
        # Whether it was counted or not.
        rule = credit.take if size % 2 else credit.covers
        reader.receive_data(encode_frame(body, how, inflates=rule))
        assert reader.bodies() == [body]
