"""Registered when pytest-asyncio is there: it runs fixtures that are made by its decorator in the test's loop."""

from collections.abc import AsyncIterator

import pytest_asyncio

import vibemq


@pytest_asyncio.fixture
async def _vibemq_client_of_asyncio(vibemq_url: str) -> "AsyncIterator[vibemq.Client]":
    async with vibemq.connect(vibemq_url) as client:
        yield client
