"""Pictures of every page, with full and with empty data, in three sizes and two themes: `make screenshots`.

They go to `build/screenshots/`, to be looked at; `--docs` makes those of docs/howto/console.md anew. Needs Chromium and
Playwright, and starts brokers of its own.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

import vibemq.sync
from tests.browser.brokers import ServedBroker
from tests.browser.conftest import CHROMIUM, SIZES
from vibemq.web.console.pages import PAGES

REPOSITORY = Path(__file__).parents[2]
OUT = REPOSITORY / "build" / "screenshots"
DOCS = REPOSITORY / "docs" / "howto" / "images"
OF_DOCS = {
    "overview": ("",),
    "queues": ("queues",),
    "dead-letters": ("dead-letters",),
    "letter": ("letter?id=1",),
    "replay": ("dead-letters?queue=orders.eu", "Replay all", "Only the first"),
    "job": ("job?id=2",),
}
"""A page, and what is pressed there."""
DOCS_SIZE = (1180, 760)
LETTERS = 3_000
WAIT_S = 60
SETTLED = 7
"""Of the ten that were replayed."""
SETTLED_MS = 1_500
"""Until charts are drawn and the first frame of the stream has come."""
MORE = {
    "queue": [f"queue?queue=orders.eu&tab={tab}" for tab in ("now", "messages", "options", "tail")],
    "connections": ["connections", "connections?id={connection}"],
    "message": ["message?queue=stock&sequence=60"],
    "letter": ["letter?id=1"],
    "job": ["job?id=1"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", action="store_true", help="only the pictures of the documentation")
    only_docs = parser.parse_args().docs
    with ExitStack() as stack:
        room = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        full = stack.enter_context(served(room / "full"))
        seed = [sys.executable, "-m", "tests.browser.seed", full.url, "--letters", str(LETTERS), "--no-users"]
        subprocess.run(seed, check=True, cwd=REPOSITORY)
        connection = stack.enter_context(consumer(full))
        start_jobs(full)
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        if only_docs:
            for name, (place, *pressed) in OF_DOCS.items():
                take(browser, full, place, DOCS / f"console-{name}.png", DOCS_SIZE, "light", pressed, whole=False)
            return
        empty = stack.enter_context(served(room / "empty"))
        for kind, broker in (("full", full), ("empty", empty)):
            for size, (width, height) in SIZES.items():
                for theme in ("light", "dark"):
                    for place in places():
                        name = place.translate(str.maketrans("?&=", "---", "{}")) or "overview"
                        picture, address = (
                            OUT / kind / f"{name}-{size}-{theme}.png",
                            place.format(connection=connection),
                        )
                        take(browser, broker, address, picture, (width, height), theme)
    print(f"look at {OUT}")


def served(room: Path) -> ServedBroker:
    room.mkdir()
    return ServedBroker(room)


@contextmanager
def consumer(broker: ServedBroker) -> Iterator[str]:
    """Somebody who holds messages; the id of the connection."""
    with vibemq.sync.connect(broker.url, name="stocktaking") as mq, mq.subscribe("stock", prefetch=5) as messages:
        next(iter(messages))
        [found] = mq.admin("connections.list", name="stocktaking", limit=1)["connections"]
        yield found["connection_id"]


def start_jobs(broker: ServedBroker) -> None:
    """A replay that waits for the end of its canary, and one of ten letters, of which some have died again."""
    with vibemq.sync.connect(broker.url) as mq:
        mq.admin("job.start", kind="replay", filter={"queue": "webhooks"}, canary=10, note="after the repair of hooks")
        mq.purge_queue("invoices")
        mq.admin("job.start", kind="replay", filter={"queue": "invoices"}, limit=10, note="the template is mended")
        for number, message in enumerate(mq.fetch("invoices", max=10, timeout=WAIT_S)):
            if number < SETTLED:
                message.ack()
            else:
                message.reject("TemplateError: 'net_total' is undefined")


def places() -> list[str]:
    return [place for page in PAGES for place in MORE.get(page.path, [page.path])]


def take(
    browser: Any,
    broker: ServedBroker,
    place: str,
    path: Path,
    size: tuple[int, int],
    theme: str,
    pressed: Sequence[str] = (),
    *,
    whole: bool = True,
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    width, height = size
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=theme)
    page.goto(f"{broker.console}{place}")
    for name in pressed:
        page.get_by_role("button", name=name).first.click()
    page.wait_for_timeout(SETTLED_MS)
    page.screenshot(path=path, full_page=whole)
    page.close()


if __name__ == "__main__":
    main()
