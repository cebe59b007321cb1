"""How long idle HTTP connections stay, and a port that is taken."""

import re
import socket
from typing import Any, cast

import pytest

from vibemq.config import Http
from vibemq.errors import ConfigInvalid
from vibemq.web.console.files import STATIC
from vibemq.web.limits import HEAD_TIMEOUT_S
from vibemq.web.server import KEEP_ALIVE_S, WebServer


def test_an_open_console_meets_no_connection_that_is_just_being_closed() -> None:
    source = (STATIC / "parts" / "data.js").read_text()
    found = re.search(r"EVERY_MS = (\d+);", source)
    assert found is not None
    period_s = int(found[1]) / 1000
    assert period_s * 1.1 < KEEP_ALIVE_S < HEAD_TIMEOUT_S, "it asks up to a tenth later than its period"


def test_a_port_that_is_taken_is_told_once_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigInvalid) as refused:
            WebServer(Http(port=port), cast(Any, None), cast(Any, None))
    assert str(refused.value) == (
        f"cannot listen on 127.0.0.1:{port} for HTTP: Address already in use; another broker may be running: stop it, "
        "choose another port (--http-port), or disable HTTP (--no-http)"
    )


def test_an_address_of_another_machine_is_not_taken_for_a_busy_port() -> None:
    with pytest.raises(ConfigInvalid, match="choose an address of this machine") as refused:
        WebServer(Http(host="192.0.2.1", port=0), cast(Any, None), cast(Any, None))
    assert "another broker" not in str(refused.value)
