"""What the body and the headers of a request say, as messages."""

import pytest

from vibemq.protocols.eventmesh.http.publishing import read_event_of
from vibemq.protocols.eventmesh.http.request import HttpRequest
from vibemq.protocols.session import SessionLimits


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        ("Euro%20%E2%82%AC", "Euro €"),
        ('"two words"', "two words"),
        (r'"a \"b\" \\ c%22"', 'a "b" \\ c"'),
        ("100%25", "100%"),
        ("plain", "plain"),
        ("%zz%4", "%zz%4"),
        ("%FF", "%FF"),
        ('"', '"'),
    ],
)
def test_attributes_of_a_binary_event_are_decoded(sent: str, meant: str) -> None:
    """As the HTTP binding of CloudEvents has them encoded; `%FF` is no UTF-8, and stays."""
    headers = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/", "ce-type": "t", "ce-name": sent}
    steps = read_event_of(HttpRequest("POST", "/", "", headers, b"x"), "topic", SessionLimits())
    with pytest.raises(StopIteration) as ended:
        next(steps)
    assert dict(ended.value.value.headers)["ce-name"] == meant
