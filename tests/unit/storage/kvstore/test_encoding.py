"""Layouts of batches and sealed values; round trips and garbage are in tests/properties."""

import pytest

from vibemq.errors import StorageDamaged
from vibemq.model.options import QueueOptions
from vibemq.model.records import DeadFacts, DeadLettered, MessagesAdded, QueueCreated, Reason, Settled
from vibemq.model.rows import Rows
from vibemq.storage.kvstore.encoding import decode_batch, dump_json, encode_batch, seal, unseal


def test_rows_are_passed_on_not_copied() -> None:
    rows = Rows.of([b"a" * 9, b"b" * 10])
    parts = encode_batch([MessagesAdded(1, 5, 9, rows)])
    assert any(part is rows.data for part in parts)


def test_a_batch_looks_as_drawn() -> None:
    batch = b"".join(encode_batch([Settled(7, 2, [(1, 3)])]))
    assert batch.hex() == (
        "01" "00000001" "0b" "0000001c" "00000007" "00000002" "00000001" "0000000000000001" "0000000000000003"
    )  # fmt: skip


def test_an_empty_batch_is_a_batch() -> None:
    assert decode_batch(b"".join(encode_batch([]))) == []


def test_text_that_is_no_unicode_is_stored_with_replacements() -> None:
    letters = [DeadFacts(1, 2, Reason.REJECTED, "bad \ud800 text", 0, 0, 0, 0)]
    (back,) = decode_batch(b"".join(encode_batch([DeadLettered(1, 0, letters)])))
    assert isinstance(back, DeadLettered)
    assert back.letters[0].error == "bad � text"
    assert dump_json({"\ud800": ("\udfff", 1)}) == '{"�":["�",1]}'.encode()


@pytest.mark.parametrize("cut", [0, 1, 5, 12, -1])
def test_a_cut_batch_is_damage(cut: int) -> None:
    whole = b"".join(encode_batch([QueueCreated(1, "q", QueueOptions(), 5, "ab"), Settled(1, 0, [(1, 2)])]))
    with pytest.raises(StorageDamaged, match=r"journal\.7"):
        decode_batch(whole[:cut], "journal.7")


@pytest.mark.parametrize("tail", [b"\0", b"more"])
def test_bytes_after_the_last_record_are_damage(tail: bytes) -> None:
    with pytest.raises(StorageDamaged):
        decode_batch(b"".join(encode_batch([Settled(1, 0, [])])) + tail)


def test_a_sealed_value_opens_under_its_own_key_only() -> None:
    value = seal(b"key", b"body")
    assert unseal(b"key", value, "file") == b"body"
    with pytest.raises(StorageDamaged, match="checksum"):
        unseal(b"kez", value, "file")


def test_every_flipped_bit_of_a_sealed_value_is_found() -> None:
    value = seal(b"key", b"some body")
    for bit in range(8 * len(value)):
        flipped = bytearray(value)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(StorageDamaged, match="file"):
            unseal(b"key", bytes(flipped), "file")
    for size in range(len(value)):
        with pytest.raises(StorageDamaged):
            unseal(b"key", value[:size], "file")
