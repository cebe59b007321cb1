"""Keys of the console that are pressed one after the other."""

from typing import Any


def go(page: Any, key: str, heading: str) -> None:
    """By "g" and another key, which counts for a moment only: on a machine that stood still in between nothing comes,
    and both are pressed again."""
    from playwright.sync_api import TimeoutError as NotThere

    there = page.get_by_role("heading", name=heading, exact=True, level=1)
    for _ in range(4):
        page.keyboard.press("g")
        page.keyboard.press(key)
        try:
            there.wait_for(timeout=30_000)
        except NotThere:
            continue
        return
    raise AssertionError(f"g and {key} do not lead to {heading}")
