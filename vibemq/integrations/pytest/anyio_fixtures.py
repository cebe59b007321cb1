"""Registered when the plugin of anyio is there: it runs fixtures that are coroutines in the test's loop."""

from collections.abc import AsyncIterator

import pytest

import vibemq


@pytest.fixture
async def _vibemq_client_of_anyio(anyio_backend: object, vibemq_url: str) -> "AsyncIterator[vibemq.Client]":
    async with vibemq.connect(vibemq_url) as client:
        yield client
