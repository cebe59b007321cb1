"""What is in `static/`, by name. A request's path is looked up in a table of names that was made from the directory;
it never becomes a path of the file system, so nothing outside can be named.
"""

import gzip
import hashlib
import html
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import brotli

from vibemq.web.console.pages import ConsolePage

STATIC = Path(__file__).parent / "static"
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
SMALL_BYTES = 256
"""What is smaller is not compressed."""
_COMMENT = re.compile(rb"^[ \t]*(?://.*|/\*(?:[^*]|\*(?!/))*\*/[ \t]*)$", re.MULTILINE)
BROTLI_QUALITY = 11
"""Once for each file and process, in a thread: about 55 ms of CPU for the largest file (uPlot), and half a second for
all of them."""


class Asset:
    """One file, or page. It is compressed when that is asked for the first time, which is work for a thread."""

    def __init__(self, content: bytes, media_type: str) -> None:
        self.content = content
        self.media_type = media_type

    @cached_property
    def etag(self) -> str:
        return f'"{hashlib.sha256(self.content).hexdigest()[:32]}"'

    @cached_property
    def _brotli(self) -> bytes:
        return bytes(brotli.compress(self.content, mode=brotli.MODE_TEXT, quality=BROTLI_QUALITY))

    @cached_property
    def _gzip(self) -> bytes:
        return gzip.compress(self.content, mtime=0)

    def encoded(self, accepted: str) -> tuple[str | None, bytes]:
        """The smallest form that `Accept-Encoding` names, and its name."""
        names = {name for name, _, weight in (part.partition(";") for part in _parts(accepted)) if weight != "q=0"}
        if len(self.content) >= SMALL_BYTES:
            if "br" in names:
                return "br", self._brotli
            if "gzip" in names:
                return "gzip", self._gzip
        return None, self.content


def _parts(accepted: str) -> list[str]:
    return [part.replace(" ", "").lower() for part in accepted.split(",")]


def read_assets(root: Path = STATIC) -> dict[str, Asset]:
    """By path below `root`; templates of pages are no assets."""
    found = (path for path in sorted(root.rglob("*")) if path.is_file() and path.suffix in TYPES.keys() - {".html"})
    return {path.relative_to(root).as_posix(): Asset(_served(path, root), TYPES[path.suffix]) for path in found}


def _served(path: Path, root: Path) -> bytes:
    content = path.read_bytes()
    is_own = path.suffix in (".js", ".css") and not path.is_relative_to(root / "vendor")
    return without_comments(content) if is_own else content


def without_comments(source: bytes) -> bytes:
    """Of JavaScript or CSS of ours, which is written so that no text in it has a line that begins like a comment. Lines
    that are comments and nothing else become empty ones, so an error in a browser names the line of the source."""
    return _COMMENT.sub(lambda found: b"\n" * found[0].count(b"\n"), source)


def read_page(page: ConsolePage, version: str, root: Path = STATIC) -> Asset:
    return _filled("page.html", {"title": page.title, "module": page.module, "version": version}, root)


def read_refusal(title: str, text: str, root: Path = STATIC) -> Asset:
    """A page without scripts. `text` may repeat what stood in a request."""
    return _filled("refused.html", {"title": title, "text": html.escape(text)}, root)


def _filled(name: str, values: Mapping[str, str], root: Path) -> Asset:
    """The values are our own, or escaped."""
    text = (root / name).read_text()
    for key, value in values.items():
        text = text.replace("{" + key + "}", value)
    return Asset(text.encode(), TYPES[".html"])
