"""Dead letters without a mouse, and the dialogs of the pages for everybody."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vibemq.sync
from tests.browser.brokers import ServedBroker
from tests.browser.keys import go
from tests.browser.test_incident import admin, enter
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

Opener = Callable[..., Any]
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
FOCUSED = "() => document.activeElement.textContent.trim() || document.activeElement.name"


def test_from_the_filter_to_the_letter_and_back_without_a_mouse(full_broker: ServedBroker, opened: Opener) -> None:
    page = opened(full_broker.origin)
    enter(page, full_broker, "dead-letters")
    page.get_by_role("row").nth(1).wait_for()
    page.keyboard.press("/")
    page.keyboard.type("has no licence")
    page.keyboard.press("Enter")
    # On a busy machine those that are found in a moment: "At least 7 letters fit".
    page.get_by_text(re.compile("letters? fits?")).wait_for()
    # The number and the letters are answers of their own.
    wait_until(lambda: page.locator("tbody tr").count() == 12)
    page.keyboard.press("j")
    page.keyboard.press("j")
    second = page.evaluate(FOCUSED)
    assert second == page.locator("tbody tr").nth(1).get_by_role("link").inner_text()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=f"Dead letter {second}").wait_for()
    edit = page.get_by_role("button", name="Edit and replay…")
    edit.focus()
    page.keyboard.press("Enter")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    assert page.evaluate(FOCUSED) == "Edit and replay…"
    go(page, "j", "Jobs")


AT_ONCE = """(text) => {
    const field = document.querySelector("[data-filter]");
    field.focus();
    field.value = text;
    field.dispatchEvent(new Event("input", {bubbles: true}));
    field.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", bubbles: true}));
}"""
"""Text and Enter before the page can show either, as on a busy machine."""


@pytest.mark.parametrize(("place", "asked"), [("dead-letters", "error=eu"), ("queues", "name=eu")])
def test_a_filter_takes_all_that_was_typed_however_fast(
    full_broker: ServedBroker, opened: Opener, place: str, asked: str
) -> None:
    page = opened(full_broker.origin)
    enter(page, full_broker, place)
    page.locator("[data-filter]").wait_for()
    page.evaluate(AT_ONCE, "eu")
    page.wait_for_url(f"**{asked}**")
    assert page.locator("[data-filter]").input_value() == "eu"


def test_the_part_of_a_filter_that_excludes_all_is_found_and_left_out(
    full_broker: ServedBroker, opened: Opener
) -> None:
    page = opened(full_broker.origin)
    enter(page, full_broker, "dead-letters?queue=orders.eu&error=no+such+text")
    page.get_by_role("heading", name="No dead letter fits this filter").wait_for()
    page.get_by_role("button", name=re.compile("^Without .*no such text")).click()
    # The answers of the filter before are there until those of this one have come.
    page.locator("tbody tr").first.wait_for()
    assert "error" not in page.url
    assert page.get_by_role("heading", name="No dead letter fits this filter").count() == 0


FIRST = [
    ("dead-letters?queue=orders.eu", "^Replay all"),
    ("dead-letters?queue=orders.eu&reason=max_attempts", "^Purge all"),
    ("letter?id=1", "^Edit and replay"),
    ("access?tab=users&user=ann", "^Allow something"),
    ("access?tab=users", "^Add a user"),
    ("broker", "^Back up"),
]
CURSOR = "cursors?at=clicks%0Aspark-archive"
OTHERS = [
    *(("letter?id=1", button) for button in ("^Replay this letter", "^Purge this letter")),
    *((CURSOR, button) for button in ("^Seek", "^Change limits", "^Quarantine", "^Delete the cursor")),
    *(("access?tab=users&user=ann", button) for button in ("^Change the password", "^Make a superuser", "^Remove the")),
    *(("access?tab=users&user=ann", button) for button in ("^Make a token", "^Take away", "^Revoke")),
    *(("queue?queue=stock", button) for button in ("^Publish$", "^Purge messages", "^Delete queue")),
    *(("message?queue=stock&sequence=60", button) for button in ("^Publish one like it", "^Remove")),
    *(("broker", button) for button in ("^Reload", "^Keys and help")),
    ("queues", "^Create queue$"),
    ("connections", "^Close…"),
    ("job?id={job}", "^Run the same again"),
]


@pytest.mark.parametrize(
    ("size", "theme", "dialogs"),
    [
        pytest.param("small", "light", FIRST, id="small-light-first"),
        *(
            pytest.param(size, theme, [*FIRST, *OTHERS], marks=pytest.mark.long, id=f"{size}-{theme}")
            for size in ("small", "medium", "large")
            for theme in ("light", "dark")
        ),
    ],
)
def test_dialogs_are_accessible_and_fit(
    full_broker: ServedBroker, opened: Opener, size: str, theme: str, dialogs: list[tuple[str, str]]
) -> None:
    page = opened(full_broker.origin, size=size, theme=theme)
    enter(page, full_broker, "access")
    job = admin(full_broker, "job.start", kind="replay", filter={"queue": "clicks"}, key="of dialogs")["job"]
    found = []
    with vibemq.sync.connect(full_broker.url, name="to be closed"):
        for place, button in dialogs:
            page.goto(f"{full_broker.console}{place.format(job=job)}")
            page.get_by_role("button", name=re.compile(button)).first.click()
            page.get_by_role("dialog").wait_for()
            page.get_by_text("Looking what would happen").wait_for(state="hidden")
            found += [f"{place}, {button}: {trouble}" for trouble in troubles(page)]
    assert not found


def troubles(page: Any) -> list[str]:
    """With the dialog that is open."""
    page.evaluate(AXE.read_text())
    result = page.evaluate("() => axe.run('dialog', { resultTypes: ['violations'] })")
    found = [
        f"{violation['id']}: {violation['nodes'][0]['html'][:200]}"
        for violation in result["violations"]
        if violation["impact"] in ("serious", "critical")
    ]
    box = page.get_by_role("dialog").bounding_box()
    if box["x"] < 0 or box["x"] + box["width"] > page.viewport_size["width"]:
        found.append("the dialog does not fit")
    inside = page.evaluate(
        "() => { const box = document.querySelector('dialog .inside'); return box.scrollWidth - box.clientWidth }"
    )
    if inside > 0:
        found.append(f"the dialog scrolls sideways by {inside}")
    overlapping: list[str] = page.evaluate(
        "() => [...document.querySelectorAll('dialog .inside > *')]"
        ".filter((part) => part.scrollHeight > part.offsetHeight + 1)"
        ".map((part) => `${part.className} overlaps what is below it`)"
    )
    return found + overlapping
