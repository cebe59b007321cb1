"""A broker that shows nobody what is in messages (`http.show_bodies`): pages say so, and not that there is nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vibemq.sync
from tests.browser.brokers import ServedBroker
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

Opener = Callable[..., Any]
SECRET = "4711-0815"


def test_what_is_hidden_is_not_said_to_be_empty_or_too_large(tmp_path: Path, opened: Opener) -> None:
    with (
        ServedBroker(tmp_path, '[http]\nshow_bodies = "none"\n') as broker,
        vibemq.sync.connect(broker.url) as mq,
    ):
        mq.create_queue("cards")
        for _ in range(2):
            mq.publish("cards", {"card": SECRET}, headers={"card": SECRET})
        [message] = mq.fetch("cards", max=1)
        message.reject(f"card {SECRET} was declined")
        wait_until(lambda: (info := mq.queue_info("cards")) is not None and info.dead == 1)
        page = opened(broker.origin)

        def look(place: str, *told: str) -> None:
            page.goto(f"{broker.console}{place}")
            for text in told:
                page.get_by_text(text).first.wait_for()
            assert SECRET not in page.content()

        look("message?queue=cards&sequence=2", "The body is hidden from you")
        assert page.get_by_text("The body is empty").count() == 0
        assert page.get_by_role("link", name="Download").count() == 0
        look("letter?id=1", "The body is hidden from you", "The error is hidden from you")
        assert page.get_by_text("more than is shown here").count() == 0
        assert page.get_by_text("No consumer gave an error").count() == 0
        # Nobody edits what is not to be seen; as it is, it may go back.
        assert page.get_by_role("button", name="Edit and replay…").count() == 0
        page.get_by_role("button", name="Replay this letter…").wait_for()
        look("dead-letters", "error text hidden")
        page.get_by_role("row").nth(1).get_by_text("hidden", exact=True).wait_for()
        look("queue?queue=cards&tab=messages", "2")
        look("dead-letters?error=declined", "hide what is in messages from you")
        assert page.get_by_text("the permission that is named").count() == 0
        wanted = {"queue": "cards", "error": "nobody says this", "header": {"card": SECRET}}
        job = mq.admin("job.start", kind="purge_dead", filter=wanted, key="of hidden parts")["job"]
        look("jobs", "error contains", "header card", "(hidden from you)")
        # The same without its hidden parts would be every letter of the queue.
        look(f"job?id={job}", "(hidden from you)", "cannot be asked for again from here", "Done")
        assert page.get_by_role("button", name="Run the same again…").count() == 0
