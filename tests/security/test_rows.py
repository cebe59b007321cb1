"""The table of security rules is whole, and every test that it names is there and runs."""

import pytest

from tests.named_tests import TESTS, assert_runs, functions_of
from tests.security.http_rows import HTTP_ROWS
from tests.security.rows import BAD_INPUT, ROWS


def test_all_eighteen_rules_have_a_row() -> None:
    assert list(ROWS) == [f"S{number}" for number in range(1, 19)]


def test_all_rules_of_http_have_a_row() -> None:
    assert list(HTTP_ROWS) == [f"H{number}" for number in range(1, 33)]


@pytest.mark.parametrize("name", [*ROWS, *BAD_INPUT, *HTTP_ROWS])
def test_the_tests_of_a_row_are_there(name: str) -> None:
    row = {**ROWS, **BAD_INPUT, **HTTP_ROWS}[name]
    assert row.tests
    for test in row.tests:
        assert_runs(test)
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
