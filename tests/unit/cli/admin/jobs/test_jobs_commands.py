"""What `vibemq-admin job show` says of a job."""

import pytest

from vibemq.cli.admin.jobs.commands import target_text
from vibemq.cli.admin.jobs.following import require_all_read
from vibemq.cli.exits import PartlyDone


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


def test_letters_that_cannot_be_read_are_told() -> None:
    """A script that exports and then purges must not lose what it has not got."""
    require_all_read("7", 0)
    with pytest.raises(PartlyDone, match=r"job 7 is done; 3 more letters cannot be read"):
        require_all_read("7", 3)
