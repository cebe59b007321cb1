"""Text for people, JSON for programs, questions only on a terminal."""

import errno
import io
import json
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from rich import cells
from rich import segment as segment_module
from rich import text as text_module
from rich.console import Console, RenderableType
from rich.live import Live

from vibemq.cli.exits import CommandFailed, Usage
from vibemq.cli.messages import letter_table
from vibemq.cli.output import (
    YEAR_9999_MS,
    Lines,
    Output,
    bytes_text,
    duration_text,
    facts,
    instant_text,
    is_standard,
    table,
    whole_file,
)
from vibemq.cli.progress import PlainTracker, tracked

STEERING = "\x1b]52;c;aGk=\x1b\\"
"""Fills the clipboard of a terminal that obeys it."""


def drawn(renderable: object) -> str:
    stream = io.StringIO()
    Console(file=stream, width=200).print(renderable)
    return stream.getvalue()


def test_json_is_one_line_and_text_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    Output(json=True).emit({"queue": "a"}, "queue a")
    out, err = capsys.readouterr()
    assert json.loads(out) == {"queue": "a"}
    assert err == ""


def test_a_list_is_one_json_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    Output(json=True).emit_many([{"n": 1}, {"n": 2}], "text")
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [{"n": 1}, {"n": 2}]


def test_text_goes_to_stdout_and_notes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output(json=False)
    out.emit({}, "the result")
    out.note("by the way")
    captured = capsys.readouterr()
    assert captured.out == "the result\n"
    assert captured.err == "by the way\n"


def test_notes_are_silent_with_json(capsys: pytest.CaptureFixture[str]) -> None:
    Output(json=True).note("by the way")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("drawable", [STEERING, text_module.Text(STEERING), facts([(STEERING, 1)]), Lines(STEERING)])
def test_what_peers_have_chosen_does_not_steer_the_terminal(
    drawable: RenderableType, capsys: pytest.CaptureFixture[str]
) -> None:
    Output(json=False).emit({}, drawable)
    told = capsys.readouterr().out
    assert "\\x1b]52;c;aGk=" in told
    assert "\x1b" not in told


def test_a_note_is_one_line_that_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    Output(json=False).note("job 1 waits: \x1b[2Jfor\nnothing")
    assert capsys.readouterr().err == "job 1 waits: \\x1b[2Jfor\\nnothing\n"


def test_a_screen_that_is_drawn_anew_keeps_its_own_controls(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Live(console=Output(json=False).console, screen=True, auto_refresh=False) as screen:
        screen.update(STEERING, refresh=True)
    told = capsys.readouterr().out
    assert "\x1b[?1049h" in told
    assert "\\x1b]52;c;aGk=" in told
    assert "\x1b]52" not in told


def test_without_a_terminal_only_yes_confirms() -> None:
    Output(json=False).confirm("Drop 3 messages?", yes=True)
    with pytest.raises(Usage, match="add --yes"):
        Output(json=False).confirm("Drop 3 messages?", yes=False)


def test_a_pipe_in_the_place_of_a_file_is_written_into_without_a_question(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        Output(json=False).confirm_overwrite(pipe, yes=False)
        with whole_file(pipe) as stream:
            stream.write(b"all of it")
        assert os.read(reader, 100) == b"all of it"
        assert pipe.is_fifo()
    finally:
        os.close(reader)


def test_a_file_is_written_by_one_command_at_a_time(tmp_path: Path) -> None:
    file = tmp_path / "file"
    (tmp_path / "file.part").write_bytes(b"what a command has left that was killed")
    with whole_file(file) as stream:
        stream.write(b"the ")
        stream.flush()
        with pytest.raises(CommandFailed, match="another command is writing"), whole_file(file):
            pass
        stream.write(b"first")
    assert file.read_bytes() == b"the first"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("earlier", ["of last time", None], ids=["", "of-nothing-yet"])
def test_the_file_behind_a_link_is_written_and_the_link_stays(tmp_path: Path, earlier: str | None) -> None:
    """Its part is on the disk of that file, too: the one of the link may be small."""
    folder, link = tmp_path / "backups", tmp_path / "latest"
    folder.mkdir()
    link.symlink_to(Path("backups", "orders"))
    if earlier is not None:
        (folder / "orders").write_text(earlier)
    with whole_file(link) as stream:
        stream.write(b"of today")
        assert (folder / "orders.part").exists()
    assert link.is_symlink()
    assert (folder / "orders").read_text() == "of today"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["backups", "latest", "orders"]


def test_an_open_file_is_no_link(tmp_path: Path) -> None:
    """What `/dev/fd/3` leads to may be written by others, too."""
    archive = tmp_path / "archive"
    archive.write_text("before")
    with archive.open() as opened, pytest.raises(OSError, match="part"), whole_file(Path(f"/dev/fd/{opened.fileno()}")):
        pass
    assert archive.read_text() == "before"


def test_what_stands_between_colons_is_no_emoji(capsys: pytest.CaptureFixture[str]) -> None:
    Output(json=False).console.print("[2001:db8:a:b::1] orders:x:eu")
    assert capsys.readouterr().out == "[2001:db8:a:b::1] orders:x:eu\n"


def test_a_link_that_may_not_be_followed_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In folders such as /tmp the kernel refuses links of other users, which `realpath` does not ask."""
    file, link, real = tmp_path / "file", tmp_path / "link", Path.stat

    def stat_of(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if path == link and follow_symlinks:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, follow_symlinks=follow_symlinks)

    file.write_text("of another user")
    link.symlink_to(file)
    monkeypatch.setattr(Path, "stat", stat_of)
    with pytest.raises(PermissionError), whole_file(link):
        pass
    assert file.read_text() == "of another user"


def test_the_part_of_the_next_command_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is free as soon as the first one's part has its own."""
    file, real = tmp_path / "file", Path.replace

    def replace(part: Path, target: Path) -> Path:
        whole = real(part, target)
        part.write_bytes(b"of the next one")
        return whole

    monkeypatch.setattr(Path, "replace", replace)
    with whole_file(file) as stream:
        stream.write(b"first")
    assert (tmp_path / "file.part").read_bytes() == b"of the next one"


def test_what_is_not_written_whole_leaves_nothing(tmp_path: Path) -> None:
    def write() -> None:
        with whole_file(tmp_path / "file") as stream:
            stream.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert list(tmp_path.iterdir()) == []


def test_a_whole_file_and_its_name_are_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has exported letters may purge them then."""
    file, flush, flushed = tmp_path / "file", os.fsync, list[tuple[bool, bool]]()

    def fsync(descriptor: int) -> None:
        flushed.append((stat.S_ISDIR(os.fstat(descriptor).st_mode), file.exists()))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with whole_file(file) as stream:
        stream.write(b"letters")
    assert flushed == [(False, False), (True, True)]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EACCES])
def test_a_folder_that_cannot_be_flushed_takes_whole_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(_: Path) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("vibemq.cli.output.fsync_folder", refuse)
    with whole_file(tmp_path / "file") as stream:
        stream.write(b"letters")
    assert (tmp_path / "file").read_bytes() == b"letters"


def test_standard_output_has_two_names() -> None:
    assert [is_standard(Path(name)) for name in ("-", "/dev/stdout", "out")] == [True, True, False]


def test_names_with_brackets_are_no_markup() -> None:
    assert "[red]queue[/red]" in drawn(table(("name",), [("[red]queue[/red]",)]))
    assert "[bold]" in drawn(facts([("name", "[bold]")]))


def test_of_dead_letters_nothing_is_cut_off_on_a_narrow_terminal() -> None:
    letter = {
        "dead_id": 1_234_567,
        "queue": "invoices.incoming",
        "id": "0123456789abcdef0123456789abcdef",
        "reason": "deserialization",
        "error": "the price is missing, and so is the article; what came was neither JSON nor anything else known",
        "attempts": 3,
        "dead_at": 1_700_000_000_000,
    }
    stream = io.StringIO()
    out = Output(json=False)
    out.console = Console(file=stream, width=80, force_terminal=True, color_system=None)
    out.emit_many([letter, letter], letter_table([letter, letter]))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert all(str(letter[part]) in lines[2] for part in ("dead_id", "queue", "id", "reason", "error"))
    assert "dead id" in drawn(letter_table([]))


def test_cells() -> None:
    text = drawn(table(("a", "b", "c", "d"), [(1234567, None, True, 1.5)]))
    assert all(part in text for part in ("1,234,567", "–", "yes", "1.50"))


def test_sizes_durations_and_instants() -> None:
    assert [bytes_text(size) for size in (0, 1023, 1536, 3 << 30, 5 << 40)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "3.0 GiB",
        "5.0 TiB",
    ]
    assert [duration_text(ms) for ms in (12, 1500, 90_000, 7_200_000, 172_800_000)] == [
        "12 ms",
        "1.5 s",
        "1.5 min",
        "2.0 h",
        "2.0 d",
    ]
    assert instant_text(0) == "–"


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        ("UTC0", "2023-11-14 22:13:20+00:00"),
        ("CET-1", "2023-11-14 23:13:20+01:00"),
        ("NPT-5:45", "2023-11-15 03:58:20+05:45"),
        ("EST5", "2023-11-14 17:13:20-05:00"),
    ],
)
def test_a_time_says_its_zone(zone: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        assert instant_text(1_700_000_000_000) == text
    time.tzset()


def test_an_instant_that_no_calendar_has() -> None:
    assert instant_text(YEAR_9999_MS - 1).startswith("999")
    assert instant_text(YEAR_9999_MS) == instant_text(1 << 63) == "after the year 9998"


def test_plain_progress_is_a_line_per_interval_and_the_last() -> None:
    now = 0.0
    stream = io.StringIO()
    tracker = PlainTracker("replayed", stream, clock=lambda: now)
    for step in range(1, 101):
        now += 0.1
        tracker(step, 200)
    tracker.finish()
    lines = stream.getvalue().splitlines()
    assert lines[0] == "replayed: 1 of 200 (0 %)"
    assert lines[-1] == "replayed: 100 of 200 (50 %)"
    assert len(lines) == 6


def test_plain_progress_of_what_waits_is_not_told_again_and_again() -> None:
    stream, now = io.StringIO(), 0.0
    tracker = PlainTracker("replayed", stream, clock=lambda: now)
    for _ in range(1_000):
        now += 0.25
        tracker(0, 1)
    tracker(1, 1)
    tracker.finish()
    assert stream.getvalue().splitlines() == ["replayed: 0 of 1 (0 %)", "replayed: 1 of 1 (100 %)"]


def noting(**console: Any) -> Output:
    out = Output(json=False)
    out.notes = Console(**console)
    return out


def test_plain_progress_of_unknown_length() -> None:
    stream = io.StringIO()
    with tracked("exported", noting(file=stream)) as progress:
        progress(17, 0)
    assert stream.getvalue() == "exported: 17\n"


def test_work_that_reports_no_progress_has_no_line_of_it() -> None:
    stream = io.StringIO()
    with tracked("looked at", noting(file=stream)):
        pass
    assert stream.getvalue() == ""


def test_progress_is_silent_on_request() -> None:
    stream = io.StringIO()
    with tracked("exported", noting(file=stream), silent=True) as progress:
        progress(17, 0)
    assert stream.getvalue() == ""


def test_progress_on_a_terminal_is_a_bar() -> None:
    stream = io.StringIO()
    with tracked("exported", noting(file=stream, force_terminal=True, width=100)) as progress:
        progress(50, 100)
    assert "50/100" in stream.getvalue()


def test_a_long_table_is_written_without_measuring_its_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = 0

    def counted(text: str) -> int:
        nonlocal measured
        measured += 1
        return sound(text)

    sound = cells.cell_len
    for module in (cells, segment_module, text_module):
        monkeypatch.setattr(module, "cell_len", counted)
    rows = [(f"queue-{n}", n, "1.0 KiB") for n in range(10_000)]
    lines = drawn(table(("queue", "ready", "size"), rows, title="all")).splitlines()
    assert lines[:3] == ["all", "queue       ready  size", "queue-0         0  1.0 KiB"]
    assert lines[-1] == "queue-9999  9,999  1.0 KiB"
    assert len(lines) == 10_002
    assert measured <= len(lines), "once for a line, not several times for each cell"
