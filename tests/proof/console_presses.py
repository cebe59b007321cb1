"""Every control of the console is pressed, in every state that one comes to by pressing others.

    python -m tests.proof.console_presses [--presses 3000] [--seed 1]

Which control is next is chance, but those that were pressed least come first. Fields get what nobody expects in them.
The broker is one after a bad night (`tests.browser.seed`), and whatever the pages ask for is carried out. An error of
the console's script, a page that is left white, and a control that keeps a page from going on are complaints, each
with the presses that led to it.
"""

import argparse
import asyncio
import sys
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from tests.browser.brokers import ServedBroker
from tests.browser.conftest import CHROMIUM, EXPECTED, TRANSITION, USERS
from tests.browser.seed import seed as fill
from tests.browser.test_every_page import places
from vibemq.auth.passwords import hash_password

LETTERS = 1_000
PASSWORD = "correct horse"
START_ANEW = 0.1
"""How often one goes to a page by its address."""
BACK = 0.1
"""How often one goes back: to what is shown there comes the answer that was there before."""
TRAIL = 6
PAUSES_MS = (0, 0, 30, 300)
"""After a press: most come before the answer to the one before."""
MORE_PLACES = (
    "dead-letters?queue=orders.eu&error=no+such+text",
    "dead-letters?queue=gone&reason=expired&newer_than_ms=1000",
    "queue?queue=gone",
    "queue?queue=stock&tab=messages&state=odd",
    "queue?queue=stock&tab=messages&message_id=none",
    "queues?name=nothing&state=blocked",
    "letter?id=999999",
    "job?id=999999",
    "connections?user=nobody",
    "cursors?at=gone%0Anobody",
    "access?tab=users&user=gone",
    "audit?user=nobody",
)
"""Where nothing is, and what an address may say."""
TEXTS = (
    "",
    " ",
    "0",
    "-1",
    "3",
    "1e9",
    "9" * 30,
    "5m",
    "orders.*",
    "stock",
    "ann",
    "a b",
    '{"a": 1}',
    "é\u202e\n",
    "%",
    "../x",
)
PRESS = """([texts, seed, counts]) => {
  const top = [...document.querySelectorAll("dialog[open]")].at(-1) ?? document;
  const controls = [...top.querySelectorAll("button, a[href^='./'], summary, select, input, textarea")]
    .filter((one) => !one.disabled && one.checkVisibility() && !/^(Log out)$/.test(one.textContent.trim()));
  if (controls.length === 0) return null;
  const page = location.pathname.split("/").at(-1);
  const textOf = (one) => one.getAttribute("aria-label") ?? one.labels?.[0]?.textContent ?? one.textContent;
  const nameOf = (one) => [page, top === document ? "" : "dialog", one.tagName, textOf(one)].join(" ")
    .replace(/\\d+/g, "0").replace(/\\s+/g, " ").slice(0, 120);
  const named = controls.map((one) => [counts[nameOf(one)] ?? 0, one]);
  const least = Math.min(...named.map(([count]) => count));
  const fresh = named.filter(([count]) => count === least);
  const one = fresh[Math.floor(seed[0] * fresh.length)][1];
  const text = texts[Math.floor(seed[1] * texts.length)];
  const told = (type) => one.dispatchEvent(new Event(type, { bubbles: true }));
  const name = nameOf(one);
  if (one.tagName === "SELECT") one.selectedIndex = Math.floor(seed[1] * one.options.length);
  else if (one.matches("textarea, input:not([type=checkbox], [type=radio])")) one.value = text;
  else return one.click(), name;
  told("input");
  told("change");
  if (seed[2] < 0.3) one.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
  return name;
}"""
IS_WHITE = "() => document.readyState === 'complete' && !document.querySelector('#console h1, #console h2')"
LEFT = ("Execution context was destroyed", "Target page, context or browser has been closed", "frame was detached")


@dataclass(slots=True)
class Pressed:
    """What was pressed, and what came of it."""

    counts: Counter[str] = field(default_factory=Counter)
    """By page and control."""
    complaints: list[str] = field(default_factory=list)
    trail: deque[str] = field(default_factory=lambda: deque(maxlen=TRAIL))


def press_all(browser: Any, broker: ServedBroker, *, seed: int, presses: int) -> Pressed:
    """Raises playwright's errors when the browser itself fails."""
    rng = Random(seed)
    told = Pressed()
    context = browser.new_context(base_url=broker.origin)
    page = _watched(context, told)
    starts = [*places(), *MORE_PLACES]
    for number in range(presses):
        if number == 0 or rng.random() < START_ANEW or "/login" in page.url:
            _go(page, f"{broker.console}{rng.choice(starts)}", told)
        if rng.random() < BACK:
            told.trail.append("Back")
            _ask(page, "() => history.back()")
        else:
            _press(page, rng, told)
        page.wait_for_timeout(rng.choice(PAUSES_MS))
        if not page.url.startswith(broker.console):
            # Back beyond the first page.
            _go(page, broker.console, told)
        if _ask(page, IS_WHITE) and _stays_white(page):
            told.complaints.append(f"a white page: {_path(told)}")
            _go(page, broker.console, told)
    context.close()
    return told


def _watched(context: Any, told: Pressed) -> Any:
    page = context.new_page()
    page.on("dialog", lambda dialog: dialog.accept())
    page.on("pageerror", lambda error: TRANSITION.match(str(error)) or _complain(told, str(error)))
    page.on(
        "console",
        lambda message: (
            message.type in ("error", "warning") and not EXPECTED.match(message.text) and _complain(told, message.text)
        ),
    )
    return page


def _complain(told: Pressed, text: str) -> None:
    told.complaints.append(f"{text}: {_path(told)}")


def _path(told: Pressed) -> str:
    return " > ".join(told.trail)


def _go(page: Any, place: str, told: Pressed) -> None:
    told.trail.append(place)
    # What was pressed before may still lead to another page.
    while _is_interrupted(page, place):
        pass
    page.locator("#console h1, #console h2").first.wait_for()
    if "/login" in page.url:
        page.get_by_label("User").fill("root")
        page.get_by_label("Password", exact=True).last.fill(PASSWORD)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url(lambda url: "/login" not in url)


def _is_interrupted(page: Any, place: str) -> bool:
    from playwright.sync_api import Error

    try:
        page.goto(place)
    except Error as error:
        if "is interrupted by another navigation" not in error.message:
            raise
        return True
    return False


def _press(page: Any, rng: Random, told: Pressed) -> None:
    name = _ask(page, PRESS, [TEXTS, [rng.random() for _ in range(3)], told.counts])
    if name:
        told.trail.append(name)
        told.counts[name] += 1


def _ask(page: Any, script: str, given: Any = None) -> Any:
    """None when the page is left meanwhile."""
    from playwright.sync_api import Error

    try:
        return page.evaluate(script, given)
    except Error as error:
        if not any(left in error.message for left in LEFT):
            raise
        return None


def _stays_white(page: Any) -> bool:
    from playwright.sync_api import TimeoutError as NotThere

    try:
        page.locator("#console h1, #console h2").first.wait_for()
    except NotThere:
        return True
    return False


def pressed(folder: Path, *, seed: int, presses: int, letters: int = LETTERS) -> Pressed:
    """In a broker and a browser of its own."""
    from playwright.sync_api import sync_playwright

    with ServedBroker(folder, USERS.format(reader=hash_password("a reader's"))) as broker:
        asyncio.run(fill(f"vibemq://root:{quote(PASSWORD)}@127.0.0.1:{broker.port}", letters))
        with sync_playwright() as playwright:
            # As root, which containers often are, Chromium has no sandbox.
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            told = press_all(browser, broker, seed=seed, presses=presses)
            browser.close()
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--presses", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        told = pressed(Path(folder), seed=given.seed, presses=given.presses)
    print(f"{told.counts.total():,} presses of {len(told.counts):,} controls, complaints {len(told.complaints)}")
    for complaint in told.complaints:
        print(f"  {complaint}")
    sys.exit(bool(told.complaints))


if __name__ == "__main__":
    main()
