"""What a session does of which its protocol says nothing."""

from vibemq.model.effects import Deliver
from vibemq.protocols.session import OptionalVerbs


class Plain(OptionalVerbs):
    """Of a protocol that has no word for any of it."""


def test_a_session_is_read_and_delivers_at_once_unless_it_says_otherwise() -> None:
    session = Plain()
    assert not session.reads_nothing_more
    assert not session.keeps_back()
    assert session.large_left == 0
    assert session.deliver_in_steps(Deliver(1, 1, "q", 1, 0, [(1, 1)]), ()) is None
    assert session.row_to_send() is None
    assert (session.slices_at_once, session.bytes_at_once) == (256, 1 << 20)


def test_a_session_leaves_as_a_lost_connection_unless_it_says_otherwise() -> None:
    session = Plain()
    assert not session.redirect("elsewhere", 1)
    assert not session.has_left
    assert not session.unbegun()
    assert session.let_go() is None
