"""Settings of all tests.

Hypothesis draws the same examples every time, so that a change is judged by its own merits; `make torture` sets
HYPOTHESIS_PROFILE=random and looks for new ones.
"""

import gc
import os
import signal
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings

from tests.long_tests import is_long_form, uncovered

# The same examples in each run, so half as many as usual: the profile `random` is for finding more.
settings.register_profile("steady", derandomize=True, deadline=None, max_examples=50)
settings.register_profile("random", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

# A shell without job control starts its background jobs with SIGINT ignored, and children inherit that: tests that
# stop a program with Ctrl-C would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


ID_CHARACTERS_MAX = 500


def pytest_make_parametrize_id(val: Any) -> str | None:
    """A long parameter is named by its beginning: ids of megabytes cost every worker seconds to make and to send."""
    if not isinstance(val, str | bytes) or len(val) <= ID_CHARACTERS_MAX:
        return None
    beginning = val[:20] if isinstance(val, str) else val[:20].decode("latin-1")
    return f"{beginning.encode('unicode_escape').decode()}... of {len(val)}"


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Coroutines run on asyncio, which the broker requires; tests of clients ask for trio as well."""
    return "asyncio"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Nearly all that it makes stays, so collections of garbage on the way find next to nothing."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Modules and tests are there to stay. No collection of garbage during a test looks through a million objects."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of each test some form that is not `long`, or another test that covers it, is always run."""
    if any("::" in argument for argument in config.args):
        return
    if found := list(uncovered(items)):
        raise pytest.UsageError("; ".join(found))


def pytest_itemcollected(item: pytest.Item) -> None:
    """All tests with a Spark session go to one worker: a session takes ten seconds to start and a core to run.

    Not when the collection is modified: by then xdist has looked at the groups.
    """
    if item.get_closest_marker("spark") is not None:
        item.add_marker(pytest.mark.xdist_group("spark"))
    if is_long_form(item):
        item.add_marker(pytest.mark.long)
