"""Memory for a large row."""

import pytest

from vibemq.model.memory import fresh
from vibemq.model.memory.fresh import HUGE_PAGE_BYTES, fresh_memory

SIZES = [0, 1, HUGE_PAGE_BYTES - 1, HUGE_PAGE_BYTES, 3 * HUGE_PAGE_BYTES + 17]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("has_wishes", [True, False])
def test_what_is_written_is_returned(size: int, has_wishes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_wishes:
        monkeypatch.setattr(fresh, "_advise", None)
    data = (bytes(range(251)) * (size // 251 + 1))[:size]
    memory = fresh_memory(size)
    for at in range(0, size, 1 << 20):
        memory.write(data[at : at + (1 << 20)])
    memory.truncate()
    assert memory.getvalue() == data


def test_it_is_cut_where_the_bytes_end() -> None:
    memory = fresh_memory(4 * HUGE_PAGE_BYTES)
    memory.write(b"few")
    memory.truncate()
    assert memory.getvalue() == b"few"


def test_the_bytes_are_no_copy() -> None:
    memory = fresh_memory(HUGE_PAGE_BYTES)
    memory.write(b"x" * HUGE_PAGE_BYTES)
    assert memory.getvalue() is memory.getvalue()


def test_the_wish_is_for_whole_pages_within_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    wishes: list[tuple[int, int]] = []
    monkeypatch.setattr(fresh, "_advise", lambda at, size, _: wishes.append((at.value, size.value)))
    memory = fresh_memory(3 * HUGE_PAGE_BYTES)
    assert len(memory.getvalue()) == 3 * HUGE_PAGE_BYTES
    [(begin, size)] = wishes
    assert begin % fresh.mmap.PAGESIZE == size % fresh.mmap.PAGESIZE == 0
    assert 3 * HUGE_PAGE_BYTES - 2 * fresh.mmap.PAGESIZE < size <= 3 * HUGE_PAGE_BYTES
