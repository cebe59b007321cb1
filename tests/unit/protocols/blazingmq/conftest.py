import pytest

from tests.unit.protocols.blazingmq.session_room import SessionRoom


@pytest.fixture
def room() -> SessionRoom:
    return SessionRoom()
