"""A tab of a real browser, open for as long as the broker is clicked about: its scripts fail nowhere and keep nothing.

Needs Chromium and Playwright, which are there where the tests of the console run.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import anyio

from tests.browser.brokers import CEILING_MS
from tests.browser.conftest import CHROMIUM, EXPECTED, TRANSITION
from tests.integration.access import PASSWORD
from tests.proof.growth import judge_growth

PAGES = ("", "queues", "dead-letters", "jobs", "connections", "cursors", "broker", "access", "audit", "api")
STAY_S_MAX = 1.5
MEASURED_EVERY = 25
"""Clicks; then the tab is on one page again and has collected what it does not need."""
GROWN_MIB_MAX = 4.0
FOLLOW = """(share) => {
  const links = [...document.querySelectorAll("main a[href^='./']")];
  links[Math.floor(share * links.length)]?.click();
}"""
"""In the page, at one time: what a table shows is drawn anew between two questions."""


@dataclass(slots=True)
class TabSeen:
    """Of one tab, for the report."""

    clicks: int = 0
    heap_mib: list[float] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def judge_heap(self) -> list[str]:
        return judge_growth("the heap of the tab", self.heap_mib, GROWN_MIB_MAX)


async def browse_in_chromium(http_port: int, seed: int, go_on: Callable[[int], bool], seen: TabSeen) -> None:
    """Log in, click for as long as `go_on(clicks)` says so, log out.

    Args:
        seen: the caller's; told while it goes on.
    """
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = await chromium.new_page(base_url=f"http://127.0.0.1:{http_port}/console/")
        page.set_default_timeout(CEILING_MS)
        page.on("pageerror", lambda error: TRANSITION.match(str(error)) or seen.complaints.append(f"tab: {error}"))
        page.on("console", lambda message: _note(message, seen))
        await page.goto("")
        await page.get_by_label("User").fill("root")
        await page.get_by_label("Password", exact=True).last.fill(PASSWORD)
        await page.get_by_role("button", name="Log in").click()
        await page.get_by_role("navigation", name="Pages", exact=True).wait_for()
        rng = Random(f"{seed} tab")
        while go_on(seen.clicks):
            await _click(page, rng)
            seen.clicks += 1
            if seen.clicks % MEASURED_EVERY == 0:
                seen.heap_mib.append(await _heap_mib(page))
        await page.get_by_role("button", name="root").click()
        await page.get_by_role("button", name="Log out", exact=True).click()
        await page.get_by_role("heading", name="Log in").wait_for()
        await chromium.close()


def _note(message: Any, seen: TabSeen) -> None:
    if message.type in ("error", "warning") and not EXPECTED.match(message.text):
        seen.complaints.append(f"tab: {message.text}")


async def _click(page: Any, rng: Random) -> None:
    """A page of the menu, or one that the page at hand leads to."""
    if rng.random() < 0.5:
        await page.evaluate(FOLLOW, rng.random())
    else:
        await _menu(page, rng.choice(PAGES))
    await anyio.sleep(rng.uniform(0.2, STAY_S_MAX))


async def _menu(page: Any, path: str) -> None:
    await page.locator(f"nav[aria-label='Pages'] a[href='./{path}']").first.click()


async def _heap_mib(page: Any) -> float:
    await _menu(page, "broker")
    session = await page.context.new_cdp_session(page)
    await session.send("HeapProfiler.collectGarbage")
    used = await session.send("Runtime.getHeapUsage")
    await session.detach()
    return float(used["usedSize"]) / 2**20
