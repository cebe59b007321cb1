"""The documentation as data: pages, their fenced blocks, their links and their tables.

Words after a fence's language say what the test does with it:

    python            a whole program; it is run and must end with 0
    python worker     a program that does not end; it runs while the rest of the page does, and is then stopped
    python cell       a cell of a notebook; those up to the next output are run together
    python tests      a file of tests; pytest runs it, and all of them pass
    python fragment   not run: part of a program shown elsewhere
    sh run            shell commands; they are run and must end with 0
    text output       what the block before it printed
    toml broker       settings of the broker that the page is worked through with, as its superuser
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"

_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """`line` is that of the first line inside the fence."""

    path: Path
    line: int
    words: tuple[str, ...]
    text: str

    @property
    def place(self) -> str:
        return f"{self.path.relative_to(REPOSITORY)}:{self.line}"


def pages() -> list[Path]:
    """Every page for a reader, README first."""
    top = [REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return [*top, *sorted(DOCS.rglob("*.md"))]


def blocks(path: Path) -> Iterator[Block]:
    text = path.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.start("text")) + 1
        indent = len(found["indent"])
        body = "".join(part[indent:] if part.strip() else part for part in found["text"].splitlines(keepends=True))
        yield Block(path, line, tuple(found["info"].split()), body)


def prose(path: Path) -> str:
    """The page without its fenced blocks and without code in backticks."""
    return re.sub(r"`[^`\n]*`", "", _FENCE.sub("", path.read_text(encoding="utf-8")))


def links(path: Path) -> list[str]:
    return _LINK.findall(prose(path))


def headings(path: Path) -> list[str]:
    return _HEADING.findall(_FENCE.sub("", path.read_text(encoding="utf-8")))


def anchors(path: Path) -> set[str]:
    """Anchors of the headings, as GitHub makes them."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings(path)}
