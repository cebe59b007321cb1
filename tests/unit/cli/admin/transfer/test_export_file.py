"""The file of an exported queue: what was written is read, and a file that was cut or changed is refused."""

import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vibemq.cli.admin.transfer import export_file
from vibemq.cli.admin.transfer.export_file import ExportFile, ExportWriter, FileInvalid
from vibemq.config import MESSAGE_BYTES_LIMIT

HEAD: dict[str, Any] = {"queue": "q", "incarnation": "i", "options": {}, "exported_at": 1, "broker": "1"}


def written(count: int, head: dict[str, Any] = HEAD) -> bytes:
    stream = io.BytesIO()
    writer = ExportWriter(stream, head)
    for number in range(count):
        writer.add({"sequence": number, "id": f"m{number}", "headers": {}, "payload": "π" * number})
    writer.finish()
    return stream.getvalue()


def file_of(folder: Path, content: bytes) -> ExportFile:
    path = folder / "export"
    path.write_bytes(content)
    return ExportFile(path)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_what_was_written_is_read(tmp_path: Path, count: int) -> None:
    file = file_of(tmp_path, written(count))
    file.check()
    assert (file.count, file.head["queue"], len(file.sha256)) == (count, "q", 64)
    assert [line.number for line in file.messages()] == list(range(2, count + 2))
    assert [line.value["id"] for line in file.messages()] == [f"m{number}" for number in range(count)]


def test_a_file_that_was_cut_anywhere_is_refused(tmp_path: Path) -> None:
    whole = written(3)
    for size in range(len(whole) - 1):
        with pytest.raises(FileInvalid, match=r"line \d+: .*; nothing was imported"):
            file_of(tmp_path, whole[:size]).check()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.data())
def test_a_file_that_was_changed_anywhere_is_refused(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(written(3))
    place = data.draw(st.integers(0, len(content) - 2))
    content[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(FileInvalid):
        file_of(tmp_path, bytes(content)).check()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "line 1: the file ends here"),
        (b"[]\n", "line 1: it is not a JSON object"),
        (b"{nonsense\n", "line 1: it is not JSON"),
        (b'{"id": "a"}\n', "line 1: it is not the first line of an export"),
        (written(1).replace(b'"vibemq_export":1', b'"vibemq_export":2'), "line 1: the format has version 2"),
        (written(1, {"queue": "q"}), "line 1: the first line must have the keys"),
        (written(2).replace(b'"id":"m1"', b'"id":""'), "line 3: the id of a message"),
        (written(2) + b"{}\n", "line 5: it follows the last line"),
        (written(2).replace(b'"messages":2', b'"messages":3'), "line 4: it says 3 messages, but 2 precede it"),
    ],
)
def test_the_line_and_the_reason_are_named(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(FileInvalid, match=reason):
        file_of(tmp_path, content).check()


def test_a_line_has_room_for_the_largest_message() -> None:
    assert export_file.LINE_BYTES_MAX > 2 * MESSAGE_BYTES_LIMIT


def test_a_line_without_an_end_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_file, "LINE_BYTES_MAX", 100)
    with pytest.raises(FileInvalid, match="line 1: it is longer than 100 bytes"):
        file_of(tmp_path, b"x" * 1_000).check()
