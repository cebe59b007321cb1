"""A real browser, open for as long as the broker is clicked about: in one tab one goes from page to page, another stays
on the overview. Their scripts fail nowhere, and what stays keeps nothing.

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
"""Clicks in the other tab; then the one that stays collects what it does not need."""
GROWN_MIB_MAX = 4.0
LINKS = "main a[href^='./']"
NAVIGATION = "nav[aria-label='Pages']"
FOLLOW = """([links, share]) => {
  const found = [...document.querySelectorAll(links)];
  found[Math.floor(share * found.length)]?.click();
}"""
"""In the page, at one time: what a table shows is drawn anew between two questions."""
LEFT = "Execution context was destroyed"
"""What Playwright says when the page is left while it is asked something."""


@dataclass(slots=True)
class TabsSeen:
    """Of both tabs, for the report."""

    clicks: int = 0
    heap_mib: list[float] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def judge_heap(self) -> list[str]:
        return judge_growth("the heap of the tab that stays", self.heap_mib, GROWN_MIB_MAX)


async def browse_in_chromium(http_port: int, seed: int, go_on: Callable[[int], bool], seen: TabsSeen) -> None:
    """Log in, click for as long as `go_on(clicks)` says so, log out.

    Args:
        seen: the caller's; told while it goes on.
    """
    from playwright.async_api import Error, async_playwright

    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = await chromium.new_context(base_url=f"http://127.0.0.1:{http_port}/console/")
        context.set_default_timeout(CEILING_MS)
        page = await _new_page(context, seen)
        await page.goto("")
        await page.get_by_label("User").fill("root")
        await page.get_by_label("Password", exact=True).last.fill(PASSWORD)
        await page.get_by_role("button", name="Log in").click()
        await page.locator(NAVIGATION).wait_for()
        staying = await _new_page(context, seen)
        await staying.goto("")
        await staying.locator(NAVIGATION).wait_for()
        rng = Random(f"{seed} tab")
        while go_on(seen.clicks):
            if seen.clicks % MEASURED_EVERY == 0:
                seen.heap_mib.append(await _heap_mib(staying))
            try:
                await _click(page, rng)
            except Error as error:
                seen.complaints.append(f"tab at {page.url}: {error.message}")
                await page.goto("")
            seen.clicks += 1
        # Not logged out, and not gone to another page, in all that time.
        await staying.get_by_role("heading", name="Overview", exact=True).wait_for()
        await page.get_by_role("button", name="root").click()
        await page.get_by_role("button", name="Log out", exact=True).click()
        for tab in (page, staying):
            await tab.get_by_role("heading", name="Log in").wait_for()
        await chromium.close()


async def _new_page(context: Any, seen: TabsSeen) -> Any:
    page = await context.new_page()
    page.on("pageerror", lambda error: TRANSITION.match(str(error)) or seen.complaints.append(f"tab: {error}"))
    page.on("console", lambda message: _note(message, seen))
    return page


def _note(message: Any, seen: TabsSeen) -> None:
    if message.type in ("error", "warning") and not EXPECTED.match(message.text):
        seen.complaints.append(f"tab: {message.text}")


async def _click(page: Any, rng: Random) -> None:
    """A page of the menu, or one that the page at hand leads to."""
    from playwright.async_api import Error

    if rng.random() < 0.5:
        try:
            await page.evaluate(FOLLOW, [LINKS, rng.random()])
        except Error as error:
            if LEFT not in error.message:
                raise
    else:
        await page.locator(f"{NAVIGATION} a[href='./{rng.choice(PAGES)}']").first.click()
    await anyio.sleep(rng.uniform(0.2, STAY_S_MAX))


async def _heap_mib(page: Any) -> float:
    session = await page.context.new_cdp_session(page)
    await session.send("HeapProfiler.collectGarbage")
    used = await session.send("Runtime.getHeapUsage")
    await session.detach()
    return float(used["usedSize"]) / 2**20
