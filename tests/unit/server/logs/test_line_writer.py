"""What is logged comes out in order, or is counted where it would stand; nobody waits for its reader."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from vibemq.server.logs.line_writer import TOGETHER_MAX, LineWriter

KEPT_BYTES = 2_000
FOREVER_S = 10**6


def left_out_line(count: int) -> bytes:
    return b"left out %d\n" % count


def lines(begin: int, end: int) -> list[bytes]:
    return [b"line %d\n" % number for number in range(begin, end)]


@dataclass
class Pipe:
    """Of one page, so that it is full soon."""

    ends: tuple[int, int] = field(default_factory=os.pipe)

    def __post_init__(self) -> None:
        fcntl.fcntl(self.ends[1], fcntl.F_SETPIPE_SZ, 4_096)

    def fill(self) -> None:
        """What fits, and not a byte more."""
        os.set_blocking(self.ends[1], False)
        with suppress(BlockingIOError):
            while True:
                os.write(self.ends[1], b"x")
        os.set_blocking(self.ends[1], True)

    def read(self, end: bytes) -> bytes:
        """Without what it was filled with."""
        data = b""
        while not data.endswith(end):
            data += os.read(self.ends[0], 4_096).lstrip(b"x")
        return data

    def close(self) -> None:
        for end in self.ends:
            os.close(end)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


@pytest.fixture
def writer(pipe: Pipe) -> LineWriter:
    writer = LineWriter(pipe.ends[1], left_out_line, kept_bytes_max=KEPT_BYTES)
    writer.start()
    return writer


def test_lines_come_out_in_order(pipe: Pipe) -> None:
    writer = LineWriter(pipe.ends[1], left_out_line)
    sent = lines(0, 2 * TOGETHER_MAX + 1)
    for line in sent:
        writer.put(line)
    writer.start()
    assert writer.flush(FOREVER_S)
    assert pipe.read(sent[-1]) == b"".join(sent)


def test_what_a_reader_that_stands_still_leaves_no_room_for_is_counted_in_its_place(
    pipe: Pipe, writer: LineWriter
) -> None:
    pipe.fill()
    sent = lines(0, 1_000)
    for line in sent:
        writer.put(line)
    assert not writer.flush(0.0)
    told = pipe.read(b"left out 766\n")
    kept = told.splitlines(keepends=True)[:-1]
    assert kept == sent[:234]
    assert sum(map(len, kept)) <= KEPT_BYTES < sum(map(len, sent[:235]))
    assert writer.flush(FOREVER_S)
    writer.put(b"after\n")
    assert pipe.read(b"after\n") == b"after\n"


def test_an_end_waits_once_for_a_reader_that_stands_still(pipe: Pipe, writer: LineWriter) -> None:
    pipe.fill()
    writer.put(b"last words\n")
    assert not writer.flush(0.0)
    assert not writer.flush(FOREVER_S)
    assert pipe.read(b"words\n") == b"last words\n"
    while not writer.flush(FOREVER_S):
        os.sched_yield()  # The pipe has it, the writer has not heard of it.
    pipe.fill()
    writer.put(b"more\n")
    assert not writer.flush(0.0)
    assert pipe.read(b"more\n") == b"more\n"


def test_a_line_longer_than_what_is_kept_is_written(pipe: Pipe, writer: LineWriter) -> None:
    line = b"y" * (2 * KEPT_BYTES) + b"\n"
    writer.put(line)
    assert pipe.read(b"\n") == line


def test_a_descriptor_that_does_not_block_loses_nothing(pipe: Pipe, writer: LineWriter) -> None:
    pipe.fill()
    os.set_blocking(pipe.ends[1], False)
    writer.put(b"waits\n")
    assert not writer.flush(0.0)
    assert pipe.read(b"waits\n") == b"waits\n"


def test_a_full_disk_is_told_of_when_it_takes_lines_again(tmp_path: Path) -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    writer = LineWriter(descriptor, left_out_line)
    writer.start()
    for line in lines(0, 3):
        writer.put(line)
        assert writer.flush(FOREVER_S)
    freed = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    os.dup2(freed, descriptor)
    writer.put(b"line 3\n")
    assert writer.flush(FOREVER_S)
    assert (tmp_path / "log").read_bytes() == b"left out 3\nline 3\n"
    os.close(freed)
    os.close(descriptor)


def test_only_what_is_not_there_as_a_whole_is_counted_and_the_next_line_is_one_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    whole = os.write
    room = [4, 6, 0]

    def write(number: int, data: bytes) -> int:
        if number != descriptor or not room:
            return whole(number, data)
        if not (count := room.pop(0)):
            raise OSError(28, "No space left on device")
        return whole(number, data[:count])

    monkeypatch.setattr(os, "write", write)
    writer = LineWriter(descriptor, left_out_line)
    for line in lines(0, 3):
        writer.put(line)
    writer.start()
    assert writer.flush(FOREVER_S)
    writer.put(b"line 3\n")
    assert writer.flush(FOREVER_S)
    assert path.read_bytes() == b"line 0\nlin\nleft out 2\nline 3\n"
    os.close(descriptor)
