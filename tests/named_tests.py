"""Tests that tables name as `file::test`, below `tests/`."""

import ast
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent


@cache
def functions_of(file: str) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name: node for node in ast.walk(tree) if isinstance(node, kinds)}


def assert_runs(test: str, *, long: bool = False) -> None:
    """It is there, and nothing keeps it from running. `long`: with the long tests alone."""
    file, _, function = test.partition("::")
    assert function.startswith("test_"), test
    assert (TESTS / file).exists(), f"{file} is gone; correct the table that names {test}"
    assert function in functions_of(file), f"{test} is gone; correct the table that names it"
    marks = [ast.unparse(mark) for mark in functions_of(file)[function].decorator_list]
    kinds = ["mark.skip", "xfail"] if long else ["mark.skip", "xfail", "mark.long("]
    assert not [mark for mark in marks if any(kind in mark for kind in kinds)], test
