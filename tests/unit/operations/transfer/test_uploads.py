"""Parts of large messages: every session has room for one, and what nobody goes on with makes room for others."""

import pytest

from vibemq.errors import Blocked, InvalidPayload
from vibemq.operations.transfer import uploads
from vibemq.operations.transfer.uploads import LEAST_BYTES, Uploads


class Desk:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(uploads, "TOTAL_BYTES", 3 * LEAST_BYTES)
        self.now = 1_000
        self.uploads = Uploads(largest=lambda: LEAST_BYTES, now=lambda: self.now)

    def add(self, session: int, offset: int, *, position: int = 0, part: bytes = b"ab", size: int = 4) -> bytes | None:
        return self.uploads.add(session, ("q", "file", position), part, offset=offset, size=size)


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(monkeypatch)


def test_sessions_do_not_disturb_each_other(desk: Desk) -> None:
    for session in (1, 2, 3):
        assert desk.add(session, 0) is None
    with pytest.raises(Blocked, match="try again"):
        desk.add(4, 0)
    assert [desk.add(session, 2) for session in (1, 2, 3)] == [b"abab"] * 3
    assert desk.uploads.reserved_bytes == 0
    assert desk.add(4, 0) is None


def test_a_session_that_begins_another_message_gives_up_the_one_before(desk: Desk) -> None:
    desk.add(1, 0)
    desk.add(1, 0, position=1)
    assert desk.uploads.reserved_bytes == LEAST_BYTES
    with pytest.raises(InvalidPayload, match="from offset 0 on"):
        desk.add(1, 2)
    assert desk.add(1, 2, position=1) == b"abab"


def test_what_nobody_goes_on_with_makes_room(desk: Desk) -> None:
    for session in (1, 2, 3):
        desk.add(session, 0)
    desk.now += uploads.IDLE_MS - 1
    desk.add(3, 2, part=b"c")
    desk.now += 1
    assert desk.add(4, 0) is None
    assert desk.uploads.reserved_bytes == 2 * LEAST_BYTES
    assert desk.add(3, 3, part=b"d") == b"abcd"


def test_what_a_session_kept_goes_with_it(desk: Desk) -> None:
    desk.add(1, 0)
    desk.uploads.forget_session(1)
    desk.uploads.forget_session(1)
    assert desk.uploads.reserved_bytes == 0


def test_parts_that_do_not_fit_are_refused(desk: Desk) -> None:
    desk.add(1, 0)
    for offset, size in ((3, 4), (2, 5)):
        with pytest.raises(InvalidPayload, match="from offset 0 on"):
            desk.add(1, offset, size=size)
    with pytest.raises(InvalidPayload, match="longer than its size"):
        desk.add(1, 2, part=b"abc")
    assert desk.uploads.reserved_bytes == 0
