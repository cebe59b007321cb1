"""Keys of the console that are pressed one after the other."""

from typing import Any

from tests.waiting import wait_until


def go(page: Any, key: str, heading: str) -> None:
    """By "g" and another key, which counts for a moment only: a slow machine presses both again."""
    there = page.get_by_role("heading", name=heading, exact=True, level=1)

    def is_there() -> bool:
        page.keyboard.press("g")
        page.keyboard.press(key)
        return bool(there.is_visible())

    wait_until(is_there)
