"""Dead letters without a mouse, and the dialogs of the pages for everybody."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.brokers import ServedBroker
from tests.browser.test_incident import enter

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
    page.get_by_text("12 letters fit").wait_for()
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
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.get_by_role("heading", name="Jobs", level=1).wait_for()


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


DIALOGS = {
    "dead-letters?queue=orders.eu": "^Replay all",
    "dead-letters?queue=orders.eu&reason=max_attempts": "^Purge all",
    "letter?id=1": "^Edit and replay",
    "access?tab=users&user=ann": "^Allow something",
    "access?tab=users": "^Add a user",
    "broker": "^Back up",
}


@pytest.mark.parametrize(
    ("size", "theme"),
    [
        ("small", "light"),
        *(pytest.param(*form, marks=pytest.mark.long) for form in (("large", "dark"), ("medium", "light"))),
    ],
)
def test_dialogs_are_accessible_and_fit(full_broker: ServedBroker, opened: Opener, size: str, theme: str) -> None:
    page = opened(full_broker.origin, size=size, theme=theme)
    enter(page, full_broker, "access")
    found = []
    for place, button in DIALOGS.items():
        page.goto(f"{full_broker.console}{place}")
        page.get_by_role("button", name=re.compile(button)).click()
        page.get_by_role("dialog").wait_for()
        page.get_by_text("Looking what would happen").wait_for(state="hidden")
        page.evaluate(AXE.read_text())
        result = page.evaluate("() => axe.run('dialog', { resultTypes: ['violations'] })")
        found += [
            f"{place}: {violation['id']}: {violation['nodes'][0]['html'][:200]}"
            for violation in result["violations"]
            if violation["impact"] in ("serious", "critical")
        ]
        box = page.get_by_role("dialog").bounding_box()
        width = page.viewport_size["width"]
        if box["x"] < 0 or box["x"] + box["width"] > width:
            found.append(f"{place}: the dialog does not fit")
        inside = page.evaluate(
            "() => { const box = document.querySelector('dialog .inside'); return box.scrollWidth - box.clientWidth }"
        )
        found += page.evaluate(
            "() => [...document.querySelectorAll('dialog .inside > *')]"
            ".filter((part) => part.scrollHeight > part.offsetHeight + 1)"
            ".map((part) => `${part.className} overlaps what is below it`)"
        )
        if inside > 0:
            found.append(f"{place}: the dialog scrolls sideways by {inside}")
    assert not found
