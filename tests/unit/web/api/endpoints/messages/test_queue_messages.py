"""Bodies of messages on their way to a client."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from vibemq.server.api.downloads import Download
from vibemq.web.api.contract import Exchange
from vibemq.web.api.endpoints.messages.queue_messages import BYTES_PER_S_MIN, DOWNLOAD_S, PART_BYTES, parts
from vibemq.web.limits import EXTEND

pytestmark = pytest.mark.anyio


async def test_a_large_body_goes_in_parts_and_has_time_in_proportion() -> None:
    body = bytes(range(256)) * (PART_BYTES // 256 * 2) + b"end"
    extended: list[float] = []
    scope: dict[str, Any] = {EXTEND: extended.append}
    exchange = cast(Exchange, SimpleNamespace(request=SimpleNamespace(scope=scope)))
    found = Download(memoryview(body))
    sent, left = [], []
    async for part in parts(exchange, found):
        sent.append(part)
        left.append(found.row_left)
    assert b"".join(sent) == body
    assert [len(part) for part in sent] == [PART_BYTES, PART_BYTES, 3]
    assert left == [2 * PART_BYTES + 3, PART_BYTES + 3, 3], "what has not been taken yet"
    assert found.row_left == 0
    assert extended == [DOWNLOAD_S + len(body) / BYTES_PER_S_MIN]
