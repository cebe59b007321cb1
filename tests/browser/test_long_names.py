"""Queues with the longest names there may be: every page, dialog and button has room for them."""

import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest

import vibemq.sync
from tests.browser.brokers import ServedBroker
from tests.browser.test_every_page import show

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

Opener = Callable[..., Any]
LONGEST = "a" * 256
THAI = "ก" * 256
OUTSIDE = """(dialog) => { const frame = dialog.getBoundingClientRect();
  const form = dialog.querySelector('.dialog') ?? dialog;
  return [...dialog.querySelectorAll('button')].filter((button) => {
    const box = button.getBoundingClientRect();
    return box.width && (box.right > frame.right + 1 || box.left < frame.left - 1);
  }).map((button) => button.textContent.slice(0, 40)).concat(
    form.scrollWidth > form.clientWidth + 1 ? ['all'] : []) }"""


@pytest.fixture(scope="module")
def long_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    """Both queues have letters, messages, and a job from one to the other finds no letter old enough."""
    with ServedBroker(tmp_path_factory.mktemp("long")) as broker, vibemq.sync.connect(broker.url) as mq:
        for queue in (LONGEST, THAI):
            mq.create_queue(queue, max_attempts=1)
            for _ in range(2):
                mq.publish(queue, b"x")
            for message in mq.fetch(queue, max=1):
                message.reject("no")
        mq.admin("job.start", kind="replay", filter={"queue": LONGEST, "older_than_ms": 3_600_000}, to=THAI)
        yield broker


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("queue", [LONGEST, THAI], ids=["letters", "thai"])
@pytest.mark.long_where(size="large")
@pytest.mark.long_where(queue=THAI)
def test_no_page_scrolls_sideways_and_no_dialog_is_cut(
    long_broker: ServedBroker, opened: Opener, size: str, queue: str
) -> None:
    page = opened(long_broker.origin, size=size)
    letter, name = [LONGEST, THAI].index(queue) + 1, quote(queue)
    found = []

    def look(place: str) -> None:
        show(page, long_broker, place)
        if page.evaluate("() => document.documentElement.scrollWidth > innerWidth"):
            found.append(f"{place[:30]}: {page.evaluate('() => document.documentElement.scrollWidth')} px")

    def look_into(what: str, *buttons: str) -> None:
        for button in buttons:
            page.get_by_role("button", name=re.compile(f"^{button}")).last.click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button").last.wait_for()
        found.extend(f"{what}: {outside} is outside" for outside in dialog.evaluate(OUTSIDE))
        page.keyboard.press("Escape")
        dialog.wait_for(state="hidden")

    for place in ("", "queues", "jobs", "job?id=1", "audit", f"message?sequence=2&queue={name}"):
        look(place)
    look(f"queue?queue={name}")
    for button in ("Publish", "Purge messages", "Delete queue"):
        look_into(button, button)
    look(f"dead-letters?queue={name}")
    look_into("replay all", "Replay all")
    look(f"letter?id={letter}")
    for buttons in (("Replay",), ("Edit and replay", "Review"), ("Purge",)):
        look_into(" ".join(buttons), *buttons)
    assert not found
