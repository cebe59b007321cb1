"""What `make site` does to the pages on their way.

Links to files outside docs/ lead to copies inside the site: on a forge such a link opens the file; a site that is only
a folder must bring it along. Fences keep only their language: the second word (`sh run`) tells the tests what to do
with a block, and the site's Markdown does not take a fence that has one for a fence.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\(([^)#\s:]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"^( *`{3,}[\w+-]+)[ \t]+[^`\n]*$", re.MULTILINE)
SHOWN = "source"
"""Folder of the copies."""


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each file outside docs/ that a page links to."""
    wanted: set[str] = set()
    for file in list(files.documentation_pages()):
        wanted.update(outside for outside in map(_outside(file.src_uri), _targets(file.content_string)) if outside)
    for path in sorted(wanted):
        files.append(File.generated(config, f"{SHOWN}/{path}.md", content=_page(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    outside = _outside(page.file.src_uri)

    def lead(found: re.Match[str]) -> str:
        path = outside(found[1])
        if path is None:
            return found[0]
        place = posixpath.relpath(f"{SHOWN}/{path}.md", posixpath.dirname(page.file.src_uri) or ".")
        return f"]({place})"

    return LINK.sub(lead, FENCE.sub(r"\1", markdown))


def _targets(markdown: str) -> list[str]:
    return [found[1] for found in LINK.finditer(markdown)]


def _outside(page: str) -> Any:
    """Target of a link on that page -> its path in the repository, when it is a file outside docs/."""
    folder = posixpath.dirname(f"docs/{page}")

    def path_of(target: str) -> str | None:
        path = posixpath.normpath(posixpath.join(folder, target))
        return path if not path.startswith(("docs/", "../")) and (ROOT / path).is_file() else None

    return path_of


def _page(path: str) -> str:
    text = (ROOT / path).read_text(encoding="utf-8")
    if not path.endswith(".md"):
        return f"# {path}\n\n````{'python' if path.endswith('.py') else 'text'}\n{text}````\n"
    # A page of its own: its links into docs/ are kept, the others become their texts.
    inside = posixpath.relpath("docs", posixpath.dirname(f"docs/{SHOWN}/{path}"))
    depth = posixpath.dirname(path)

    def lead(found: re.Match[str]) -> str:
        if found[2].startswith(("#", "http")):
            return found[0]
        target = posixpath.normpath(posixpath.join(depth, found[2]))
        return f"[{found[1]}]({inside}/{target.removeprefix('docs/')})" if target.startswith("docs/") else found[1]

    return re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", lead, text)
