"""The rendered site: every page has its place in it, it is built without a warning, and it needs no network."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks, headings

ROOT = DOCS.parent


def test_the_navigation_names_every_page_once() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = re.findall(r"^ *- (?:[^:\n]+: )?(\S+\.md)$", text, re.MULTILINE)
    assert sorted(named) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed: make site")
    folder = tmp_path_factory.mktemp("site")
    # With --quiet no warning is counted, and --strict has nothing to refuse.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "WARNING " not in done.stderr
    return folder


@pytest.mark.slow
def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    rendered = list(site.rglob("*.html"))
    assert len(rendered) > 40
    for page in rendered:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|link)\b[^>]*?(?:src|href)="([^"]*)"', text)
        assert [place for place in loaded if re.match(r"(https?:)?//", place)] == [], page


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_of_the_site_has_every_heading_and_every_block(site: Path, page: Path) -> None:
    name = page.relative_to(DOCS)
    place = name.with_name("index.html") if name.name == "README.md" else name.with_suffix(".html")
    text = (site / place).read_text(encoding="utf-8").partition("<article")[2].partition("</article>")[0]
    assert "```" not in text
    assert len(re.findall(r"<h[1-6] id=", text)) == len(headings(page))
    # Indented blocks of code are counted on the side of the site only.
    assert len(re.findall(r'<div class="[^"]*\bhighlight"', text)) >= len(list(blocks(page)))
