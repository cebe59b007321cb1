"""What a subscriber's answer means for its message."""

import pytest

from vibemq.protocols.eventmesh.http.codes import PushOutcome
from vibemq.protocols.eventmesh.http.push.answers import verdict_of
from vibemq.protocols.session import HttpAnswer


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (b"0", PushOutcome.DONE),
        (b"1", PushOutcome.DONE),
        (b"1.0", PushOutcome.DONE),
        (b'"1"', PushOutcome.DONE),
        (b"2", PushOutcome.RETRY),
        (b"2.0", PushOutcome.RETRY),
        (b'"2"', PushOutcome.RETRY),
        (b"5.0", PushOutcome.RETRY),
        (b"1.5", PushOutcome.GIVE_UP),
        (b"1e999", PushOutcome.GIVE_UP),
        (b"true", PushOutcome.GIVE_UP),
        (b'"1.0"', PushOutcome.GIVE_UP),
        (b"3", PushOutcome.GIVE_UP),
        (b"null", PushOutcome.GIVE_UP),
    ],
)
def test_a_code_is_a_number_however_it_is_written(code: bytes, outcome: PushOutcome) -> None:
    assert verdict_of(HttpAnswer(200, {}, b'{"retCode":%b}' % code), 1_000).outcome is outcome
