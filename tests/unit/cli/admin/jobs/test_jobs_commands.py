"""What `vibemq-admin job show` says of a job."""

import pytest

from vibemq.cli.admin.jobs.commands import target_text


@pytest.mark.parametrize(
    ("to", "filter_", "text"),
    [
        (None, {"queue": "payments"}, "its own queue"),
        ("payments", {"queue": "payments"}, "its own queue"),
        ("orders", {"queue": "payments"}, "orders"),
        ("orders", {}, "orders"),
        (None, {"reason": "rejected"}, "the queues they died in"),
    ],
)
def test_a_replay_says_where_its_letters_go(to: str | None, filter_: dict[str, str], text: str) -> None:
    assert target_text({"to": to, "filter": filter_}) == text
