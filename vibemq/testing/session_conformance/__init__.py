"""Promises that every protocol's session keeps, as a suite over a `Dialect`: what the suite must be able to say in a
protocol's own bytes. Call `check_session(dialect)`; it raises AssertionError with a sentence.

    tests/conformance/test_sessions.py runs it for the protocols of this package; an outside plug-in may do the same.
"""

from collections.abc import Callable

from vibemq.testing.session_conformance import connections, messages
from vibemq.testing.session_conformance.dialect import NOW, QUEUE, SESSION, SOMEBODY, Dialect, Talk, context, talk

__all__ = ["CHECKS", "NOW", "QUEUE", "SESSION", "SOMEBODY", "Dialect", "Talk", "check_session", "context", "talk"]


CHECKS: tuple[Callable[[Dialect], None], ...] = (
    connections.check_has_every_member,
    connections.check_silent_until_spoken_to,
    connections.check_handshake,
    connections.check_refused_handshake,
    messages.check_publish,
    messages.check_publish_refused,
    messages.check_deliver,
    messages.check_deliver_rows_far_apart,
    messages.check_deliver_in_another_order,
    connections.check_any_cut_is_the_same,
    connections.check_broken_stream,
    connections.check_garbage,
    connections.check_end_of_stream,
    connections.check_handshake_deadline,
    messages.check_relative_times_on_a_busy_connection,
    connections.check_silence_counts_from_the_last_word,
    connections.check_who_is_not_read_is_not_silent,
    messages.check_request,
    messages.check_respond,
    messages.check_share,
    connections.check_shutdown,
    connections.check_fail,
)


def check_session(dialect: Dialect) -> None:
    """Every promise of `vibemq.protocols.session.Session` that can be put without knowing the protocol."""
    for check in CHECKS:
        check(dialect)
