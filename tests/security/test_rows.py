"""The table of security rules is whole, and every test that it names is there and runs."""

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.security.http_rows import HTTP_ROWS
from tests.security.rows import BAD_INPUT, ROWS

TESTS = Path(__file__).parents[1]


@cache
def functions_of(file: str) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse((TESTS / file).read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name: node for node in ast.walk(tree) if isinstance(node, kinds)}


def test_all_eighteen_rules_have_a_row() -> None:
    assert list(ROWS) == [f"S{number}" for number in range(1, 19)]


def test_all_rules_of_http_have_a_row() -> None:
    assert list(HTTP_ROWS) == [f"H{number}" for number in range(1, 33)]


@pytest.mark.parametrize("name", [*ROWS, *BAD_INPUT, *HTTP_ROWS])
def test_the_tests_of_a_row_are_there(name: str) -> None:
    row = {**ROWS, **BAD_INPUT, **HTTP_ROWS}[name]
    assert row.tests
    for test in row.tests:
        file, _, function = test.partition("::")
        assert function.startswith("test_"), test
        assert function in functions_of(file), (
            f"{test} is gone; say in the rows of tests/security which test shows {name}"
        )
        marks = [ast.unparse(mark) for mark in functions_of(file)[function].decorator_list]
        assert not [mark for mark in marks if "mark.skip" in mark or "xfail" in mark], test
    for module in row.measured:
        assert (TESTS.parent / module).exists(), module


def test_every_test_of_this_folder_stands_in_the_table() -> None:
    named = {test for row in (*ROWS.values(), *BAD_INPUT.values(), *HTTP_ROWS.values()) for test in row.tests}
    files = [path for path in (TESTS / "security").glob("test_*.py") if path.name != "test_rows.py"]
    here = {
        f"security/{path.name}::{name}"
        for path in files
        for name in functions_of(f"security/{path.name}")
        if name.startswith("test_")
    }
    assert here <= named
