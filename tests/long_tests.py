"""What the marker `long` may be on: a form of a test that has a shorter one, or a test that another one covers.

pytest.param("sqlite", marks=pytest.mark.long)                          another form of this test is always run
@pytest.mark.long(covered_by="tests/unit/spark/test_losses.py::test_x")   test_x is always run, and looks for the same
"""

from collections.abc import Iterable, Iterator

import pytest


def is_long_form(item: pytest.Item) -> bool:
    """Whether its parameters are those of a `long_where`: each has the value named there, or one of the list."""
    marks = list(item.iter_markers("long_where"))
    params: dict[str, object] = getattr(item, "callspec").params if marks else {}  # noqa: B009  # of functions only
    for mark in marks:
        if unknown := mark.kwargs.keys() - params.keys():
            raise pytest.UsageError(f"{item.nodeid} has no parameter {', '.join(sorted(unknown))}: see its long_where")
    return any(all(_is_among(params[name], value) for name, value in mark.kwargs.items()) for mark in marks)


def _is_among(found: object, wanted: object) -> bool:
    return found in wanted if isinstance(wanted, list) else found == wanted


def uncovered(items: Iterable[pytest.Item]) -> Iterator[str]:
    """Tests that are never run but with `make test-long`, and why nothing stands in for them. A test that is said to
    cover another one has to be among the collected, unless none of its module is."""
    long = dict[str, pytest.Mark]()
    short = set[str]()
    for item in items:
        name, mark = item.nodeid.partition("[")[0], item.get_closest_marker("long")
        if mark is None:
            short.add(name)
        else:
            long[name] = mark
    modules = {name.partition("::")[0] for name in (*short, *long)}
    for name, mark in long.items():
        if name in short:
            continue
        covering = mark.kwargs.get("covered_by")
        if covering is None:
            yield f"{name}: every form of it is marked as long, and covered_by names no other test"
        elif covering not in short and covering.partition("::")[0] in modules:
            yield f"{name}: {covering}, which is said to cover it, is not there or is long as well"
