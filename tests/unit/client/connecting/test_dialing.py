"""What is told of a connection that there is not."""

import socket

from vibemq.client.connecting.dialing import sentence_of


def test_a_name_that_is_not_known_is_told_without_a_number() -> None:
    error = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    assert sentence_of(error) == "name or service not known"
