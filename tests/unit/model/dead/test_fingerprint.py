"""Texts that say the same have one fingerprint, whatever ids and numbers stand in them."""

import os
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.model.dead.fingerprint import (
    LINE_MAX,
    OTHER,
    SAMPLE_BYTES_MAX,
    fingerprint,
    fingerprint_number,
    fingerprint_text,
    sample_of,
)

SAME = [
    ("order 17 is unknown", "order 4711 is unknown"),
    ("order 'A-17' is unknown", "order 'B' is unknown"),
    ('no column "a b"', 'no column "c"'),
    ("`x` failed", "`why not` failed"),
    ("took 1.5 s", "took 12,345.75 s"),
    ("rate 1e5", "rate 2.5E-3"),
    ("at 0x7f00deadbeef", "at 0x1"),
    ("commit 3f2a91c is gone", "commit 99deadbeef0 is gone"),
    ("job 123e4567-e89b-12d3-a456-426614174000", "job FFFFFFFF-FFFF-ffff-ffff-ffffffffffff"),
    ("2026-11-26T00:00:00Z: late", "2025-01-02T03:04:05Z: late"),
    ("retry  3\tof 5", " retry 1 of 9 "),
    ("boom\n  at a.py:3", "boom\r\n  at b.py:9"),
    ("\n\nboom", "boom"),
    (
        "Traceback (most recent call last):\n  File 'a'\nKeyError: 'x'",
        "Traceback (most recent call last):\nKeyError: 'y'\n",
    ),
]
DIFFERENT = [
    ("order 17 is unknown", "order 17 is closed"),
    ("can't read what isn't there", "can't write what isn't there"),
    ("deaf cabbage", "dead cabbage"),
    ("", "x"),
    ("ä", "ö"),
    ("Traceback (most recent call last):\nKeyError: 1", "Traceback (most recent call last):\nValueError: 1"),
]
KNOWN = {
    "": 0xE4A6A0577479B2B4,
    "order 17 is unknown": 0x1B0B86508F859732,
    "Bestellung „A“ fehlt: \U0001f600": 0x59CF9B7741C6F93D,
    "\ud800": 0x8C9BB6307BE96347,
}
"""Stores hold these numbers."""


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_varies_does_not_count(one: str, other: str) -> None:
    assert fingerprint(one) == fingerprint(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_words_count(one: str, other: str) -> None:
    assert fingerprint(one) != fingerprint(other)


@pytest.mark.parametrize("text", KNOWN)
def test_the_numbers_never_change(text: str) -> None:
    assert fingerprint(text) == KNOWN[text]


def test_another_process_with_another_hash_seed_comes_to_the_same() -> None:
    code = "from vibemq.model.dead.fingerprint import fingerprint; print(fingerprint('order 17 is unknown'))"
    seed = {**os.environ, "PYTHONHASHSEED": "7"}
    told = subprocess.run(
        [sys.executable, "-c", code], env=seed, cwd=Path(__file__).parents[4], capture_output=True, check=True
    )
    assert int(told.stdout) == fingerprint("order 17 is unknown")


@given(st.text())
def test_any_text_has_a_number_that_stands_for_no_others(text: str) -> None:
    found = fingerprint(text)
    assert OTHER < found < 2**64
    assert fingerprint_number(fingerprint_text(found)) == found


WORDS = st.lists(st.sampled_from(["order", "failed:", "can't", "(code", "in", "über"]), min_size=1, max_size=8)


@given(
    WORDS,
    st.integers(0, 10**30),
    st.uuids(),
    st.text(st.characters(exclude_characters="'\r\n"), max_size=30),
    st.data(),
)
def test_whatever_number_id_or_name_is_put_in(
    words: list[str], number: int, uuid: UUID, name: str, data: st.DataObject
) -> None:
    varying = data.draw(st.permutations([str(number), str(uuid), f"'{name}'", hex(number)]))
    at = data.draw(st.integers(0, len(words)))
    marked = [*words[:at], *["7"] * len(varying), *words[at:]]
    told = [*words[:at], *varying, *words[at:]]
    assert fingerprint(" ".join(told)) == fingerprint(" ".join(marked))


@given(st.text(), st.text())
def test_further_lines_do_not_count(line: str, more: str) -> None:
    first = "x" + line.replace("\r", "").replace("\n", "")
    assert fingerprint(f"{first}\n{more}") == fingerprint(first)


def test_a_long_line_counts_up_to_a_length() -> None:
    assert fingerprint("x" * LINE_MAX + "a") == fingerprint("x" * LINE_MAX + "b")
    assert fingerprint("'" * 100_000) == fingerprint("'" * 100_001)


@given(st.text(st.characters(codec=None), max_size=600))
def test_a_sample_is_text_of_bounded_size(text: str) -> None:
    sample = sample_of(text)
    assert len(sample) <= SAMPLE_BYTES_MAX
    stored = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert stored.startswith(sample.decode())
    assert (sample_of(stored), fingerprint(stored)) == (sample, fingerprint(text))


def test_a_sample_of_a_traceback_is_the_line_that_says_what_happened() -> None:
    frames = "".join(f'  File "/srv/app/part{at}.py", line {at}, in handle\n    check(order)\n' for at in range(20))
    error = f"Traceback (most recent call last):\n{frames}ValueError: total of order 7 is negative\n"
    assert sample_of(error) == b"ValueError: total of order 7 is negative"


@pytest.mark.parametrize("text", ["", "0" * 15, "0" * 17, "F" * 16, "g" * 16, "٣" * 16, " " * 16])
def test_other_texts_are_no_fingerprint(text: str) -> None:
    with pytest.raises(ValueError, match="16 hex digits"):
        fingerprint_number(text)
