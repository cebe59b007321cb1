import google_crc32c
from hypothesis import given
from hypothesis import strategies as st

from vibemq.storage.lmdb.journal.crc_combine import combine


@given(st.binary(max_size=300), st.binary(max_size=3_000))
def test_it_is_the_checksum_of_both_joined(first: bytes, second: bytes) -> None:
    parts = google_crc32c.value(first), google_crc32c.value(second)
    assert combine(*parts, len(second)) == google_crc32c.value(first + second)


def test_of_many_megabytes() -> None:
    second = b"\x5a" * (17 << 20)
    assert combine(google_crc32c.value(b"a"), google_crc32c.value(second), len(second)) == google_crc32c.value(
        b"a" + second
    )
