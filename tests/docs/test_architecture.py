"""The walks of the architecture, from a publish to its confirm and others, name files and functions that exist."""

import ast
import re

from tests.docs.pages import DOCS

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
PRODUCT = DOCS.parent / "vibemq"
ROW = re.compile(r"^\| [^|]+ \| `(?P<file>[\w/]+\.py)` \| `(?P<name>[\w.]+)` \|$", re.MULTILINE)


def defined(file: str) -> set[str]:
    """Functions and methods of a module, as `name` and `Class.name`."""
    names: set[str] = set()
    for node in ast.parse((PRODUCT / file).read_text(encoding="utf-8")).body:
        if isinstance(node, FUNCTIONS):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, FUNCTIONS)}
    return names


def test_every_step_of_the_walk_exists() -> None:
    text = (DOCS / "explanation" / "architecture.md").read_text(encoding="utf-8")
    steps = [(found["file"], found["name"]) for found in ROW.finditer(text)]
    assert len(steps) > 20
    assert [step for step in steps if step[1] not in defined(step[0])] == []
