"""Registered when pytest-asyncio is there: it runs fixtures that are made by its decorator in a loop that they name."""

import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

import vibemq

NAME = "_vibemq_client_in_asyncio_loop_of_"
_NAMES_LOOPS = "loop_scope" in inspect.signature(pytest_asyncio.fixture).parameters
"""pytest-asyncio does since 0.24. Before, the loop of the function is the only one that is served."""


def client_fixture_of(item: pytest.Item) -> str:
    """Name of the fixture whose client belongs to the loop in which the test runs."""
    return NAME + (_loop_scope_of(item) if _NAMES_LOOPS else "function")


def _loop_scope_of(item: pytest.Item) -> str:
    marker = item.get_closest_marker("asyncio")
    named = marker and (marker.kwargs.get("loop_scope") or marker.kwargs.get("scope"))
    return str(named or _default_loop_scope(item.config))


def _default_loop_scope(config: pytest.Config) -> str:
    try:
        return str(config.getini("asyncio_default_test_loop_scope") or "function")
    except (KeyError, ValueError):
        return "function"  # The setting came with pytest-asyncio 0.26.


def _client_in_loop_of(scope: Any) -> Callable[..., Any]:
    loop = {"loop_scope": scope} if _NAMES_LOOPS else {}

    @pytest_asyncio.fixture(name=NAME + scope, **loop)
    async def client(vibemq_url: str) -> "AsyncIterator[vibemq.Client]":
        async with vibemq.connect(vibemq_url) as opened:
            yield opened

    made: Callable[..., Any] = client
    return made


_of_function = _client_in_loop_of("function")
_of_class = _client_in_loop_of("class")
_of_module = _client_in_loop_of("module")
_of_package = _client_in_loop_of("package")
_of_session = _client_in_loop_of("session")
