"""Links inside the repository lead somewhere."""

from pathlib import Path

import pytest

from tests.docs.pages import REPOSITORY, anchors, blocks, links, pages

LANGUAGES = {"python", "sh", "text", "json", "toml", "yaml", "ini", "xml", "promql", "csharp", "ocaml", "cpp", "java", "js"}
MANNERS = {
    "python": {"sdk", "cell", "fragment", "tests", "worker"},
    "sh": {"run"},
    "text": {"output"},
    "toml": {"broker"},
}


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        if "://" in link or link.startswith("mailto:"):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_fences_say_what_they_are(page: Path) -> None:
    """A misspelt word after a fence would silently keep its block from being run."""
    for block in blocks(page):
        language, *manner = block.words or ("text",)
        assert language in LANGUAGES, block.place
        assert set(manner) <= MANNERS.get(language, set()), block.place


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    waiting = [REPOSITORY / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        targets = [(page.parent / link.partition("#")[0]).resolve() for link in links(page) if "://" not in link]
        waiting += [target for target in targets if target.is_file()]
    assert sorted(str(page.relative_to(REPOSITORY)) for page in pages() if page not in seen) == []
