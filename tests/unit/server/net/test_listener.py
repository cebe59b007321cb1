"""A listener that cannot have its address says what to do."""

import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest

from vibemq.config import Listener
from vibemq.errors import ConfigInvalid
from vibemq.server.net.listener import endpoint_of, listen

pytestmark = pytest.mark.anyio


async def refusal_of(host: str, port: int) -> str:
    wanted = Listener(host=host, port=port)
    with pytest.raises(ConfigInvalid) as refused:
        await listen(wanted, 0, endpoint_of(wanted), cast(Any, SimpleNamespace(connection_table=None)))
    return str(refused.value)


async def test_a_port_that_is_taken_may_be_that_of_another_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        told = await refusal_of("127.0.0.1", taken.getsockname()[1])
    assert "Address already in use; another broker may be running: stop it, or choose another host or port" in told


async def test_an_address_of_another_machine_is_not_taken_for_a_busy_port() -> None:
    told = await refusal_of("192.0.2.1", 0)
    assert "choose an address of this machine" in told
    assert "another broker" not in told
