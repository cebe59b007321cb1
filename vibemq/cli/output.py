"""Results go to stdout, as text for people or JSON for programs; notes go to stderr and never into a pipe."""

import errno
import fcntl
import json as json_text
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson

from vibemq.cli.exits import CommandFailed, Usage, plain
from vibemq.storage.local.names import open_locked
from vibemq.storage.local.store_file import fsync_folder

if TYPE_CHECKING:
    # Imported below, where something is drawn: a program that reads JSON does not wait for it.
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.segment import Segment
    from rich.table import Table

ROWS_DRAWN_MAX = 500
YEAR_9999_MS = 253_370_764_800_000
"""Later instants have no date in some time zones."""
_CANNOT_FLUSH = (errno.EACCES, errno.EPERM, errno.EINVAL)
"""Of a folder that this user may not read, or whose file system flushes no folders."""
PIPE_WIDTH = 400
"""Columns when stdout is no terminal: nothing is cut off for grep."""


class Output:
    """Where one command writes. `json` decides once, so that no command asks twice."""

    def __init__(self, *, json: bool) -> None:
        self.json = json

    @cached_property
    def console(self) -> "Console":
        """Of stdout."""
        width = None if sys.stdout.isatty() else PIPE_WIDTH
        return _console(highlight=False, markup=False, width=width)

    @cached_property
    def notes(self) -> "Console":
        """Of stderr."""
        return _console(stderr=True, highlight=False, markup=False, soft_wrap=True)

    def emit(self, value: Any, text: "RenderableType") -> None:
        """The result: `value` as one JSON line, or `text`."""
        if self.json:
            print_json(value)
        else:
            self.console.print(text, crop=False)

    def emit_many(self, values: Iterable[Any], text: "RenderableType") -> None:
        """A list: one JSON line each, or one `text` for all."""
        if not self.json:
            self.console.print(text, crop=False)
            return
        for value in values:
            print_json(value)

    def note(self, text: str, style: str = "") -> None:
        """Said beside the result, in one line on stderr; silent with --json."""
        if not self.json:
            self.notes.print(plain(text), style=style)

    def confirm(self, question: str, *, yes: bool, can_dry_run: bool = True) -> None:
        """Ask before something is destroyed. Without a terminal, only --yes will do.

        Raises:
            Usage: nobody to ask, or the answer is no.
        """
        if yes:
            return
        if self.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
            hint = ", or --dry-run to see it" if can_dry_run else ""
            raise Usage(f"{question} There is no terminal to ask on; add --yes to confirm{hint}")
        from rich.prompt import Confirm
        from rich.text import Text

        if not Confirm.ask(Text(question), console=self.notes, default=False):
            raise Usage("not confirmed; nothing was changed")

    def confirm_overwrite(self, file: Path, *, yes: bool) -> None:
        """Ask before a file that is there is replaced. Raises as `confirm`."""
        if file.is_file() and not is_standard(file):
            self.confirm(f"Overwrite {file}?", yes=yes, can_dry_run=False)


def _console(**options: Any) -> "Console":
    """One that writes escapes in the place of what a terminal would obey, whatever is printed: text of peers is in
    tables, sentences and sheets alike."""
    from rich.console import Console

    class Escaping(Console):
        def render(self, renderable: "RenderableType", options: "ConsoleOptions | None" = None) -> Iterable["Segment"]:
            for segment in super().render(renderable, options):
                # Those of control are the console's own, as for the screen of `top`.
                yield segment if segment.control else segment._replace(text=_plain_lines(segment.text))

    # What stands between two colons is part of an address or a name, and no emoji.
    return Escaping(emoji=False, **options)


def _plain_lines(text: str) -> str:
    return "\n".join(map(plain, text.split("\n")))


def would(done: str, *, dry_run: bool) -> str:
    """What was done, such as `removed`, or in a dry run what would be."""
    return f"would be {done}" if dry_run else done


def is_standard(file: Path) -> bool:
    """Whether it is `-`, which stands for standard input or output, or another name of standard output."""
    return str(file) in ("-", "/dev/stdout")


def content_of(file: Path) -> bytes:
    """`-` is stdin."""
    return sys.stdin.buffer.read() if is_standard(file) else file.read_bytes()


@contextmanager
def whole_file(file: Path) -> Iterator[BinaryIO]:
    """A file for its owner alone that appears whole, and is on the disk, when the block ends, or not at all. `-` is
    stdout; a pipe or a device is written into; a symbolic link stays, and the file it leads to is replaced.

    Raises:
        CommandFailed: another command is writing it.
    """
    if is_standard(file):
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if file.exists() and not file.is_file():
        with file.open("wb") as stream:
            yield stream
        return
    if file.is_symlink() and not file.absolute().is_relative_to("/dev") and not file.absolute().is_relative_to("/proc"):
        # Looked at first: the kernel refuses others' links in /tmp to whoever follows them, not to whoever reads them.
        with suppress(FileNotFoundError):
            file.stat()
        file = Path(os.path.realpath(file))
    part = file.with_name(file.name + ".part")
    descriptor = open_locked(part, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, fcntl.LOCK_EX)
    if descriptor is None:
        raise CommandFailed(f"another command is writing {file}; wait for its end, or name another file")
    with os.fdopen(descriptor, "wb") as stream:
        try:
            # An earlier command may have been killed. What users have sent is for its owner alone.
            os.fchmod(descriptor, 0o600)
            stream.truncate()
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            part.replace(file)
        except BaseException:
            # Once it has its name, a part of that name is another command's.
            part.unlink(missing_ok=True)
            raise
    _flush_names(file.parent)


def _flush_names(folder: Path) -> None:
    try:
        fsync_folder(folder)
    except OSError as error:
        if error.errno not in _CANNOT_FLUSH:
            raise


def print_json(value: Any) -> None:
    try:
        line = orjson.dumps(value, default=str).decode()
    except orjson.JSONEncodeError:
        # The name of a file may be no text; its bytes become escapes.
        line = json_text.dumps(value, default=str)
    sys.stdout.write(line + "\n")


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None, whole: bool = False
) -> "RenderableType":
    """Names on the left, numbers on the right. Cells are plain text: what users named their queues is no markup.

    Long tables are lines that are made at once: `rich` takes a millisecond for each row.

    Args:
        whole: no cell is cut or folded, however narrow the terminal is, so that each can be copied from it.
    """
    materialized = [[_cell(value) for value in row] for row in rows]
    if whole or len(materialized) > ROWS_DRAWN_MAX:
        return Lines(_lines(columns, materialized, title))
    from rich import box
    from rich.table import Table
    from rich.text import Text

    result = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(columns):
        numeric = bool(materialized) and all(_is_number(row[index]) for row in materialized)
        result.add_column(name, justify="right" if numeric else "left", no_wrap=numeric or index == 0)
    for row in materialized:
        result.add_row(*(Text(cell) for cell in row))
    return result


class Lines:
    """Text that is written as it is: not measured, not wrapped."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.segment import Segment

        yield Segment(self._text)


def _lines(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None) -> str:
    cells = [[cell.replace("\n", " ") for cell in row] for row in rows]
    parts = []
    for index, name in enumerate(columns):
        column = [row[index] for row in cells]
        width = max(map(len, (name, *column)))
        adjust = str.rjust if column and all(map(_is_number, column)) else str.ljust
        parts.append([adjust(text, width) for text in (name, *column)])
    lines = [title] if title else []
    lines += ("  ".join(line).rstrip() for line in zip(*parts, strict=True))
    return "\n".join(lines) + "\n"


def facts(pairs: Iterable[tuple[str, object]], *, title: str | None = None) -> "Table":
    """A sheet of names and values."""
    from rich.table import Table
    from rich.text import Text

    sheet = Table(title=title, title_justify="left", title_style="bold", box=None, show_header=False, pad_edge=False)
    sheet.add_column(style="dim", no_wrap=True)
    sheet.add_column(overflow="fold")
    for name, value in pairs:
        sheet.add_row(Text(plain(name)), Text(_cell(value)))
    return sheet


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return _plain_lines(str(value))


def _is_number(text: str) -> bool:
    return text == "–" or text.replace(",", "").replace(".", "").replace(" ", "").lstrip("-").isdecimal()


def count_text(count: int, noun: str) -> str:
    """The count with its noun, which takes an s."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def bytes_text(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def duration_text(milliseconds: float) -> str:
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"


def instant_text(epoch_ms: int) -> str:
    """Local time to the second, with its offset from UTC; a dash for 0."""
    if not epoch_ms:
        return "–"
    if epoch_ms >= YEAR_9999_MS:
        return "after the year 9998"
    return datetime.fromtimestamp(epoch_ms / 1000).astimezone().isoformat(" ", "seconds")
