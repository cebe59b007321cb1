"""A real broker and a real browser: Debian's Chromium, driven by Playwright. Without them these tests are skipped.

Pages are watched: a violation of their policy, an error of their scripts, or a request to another origin fails the
test.
"""

import asyncio
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.browser.brokers import CEILING_MS, ServedBroker
from tests.browser.seed import seed

SIZES = {"large": (1440, 900), "medium": (820, 1180), "small": (390, 844)}
CHROMIUMS = ("chromium-headless-shell", "chromium", "chromium-browser")
"""Of those that are there the first is used: the engine without windows takes half of the processor time."""
CHROMIUM = next(filter(None, map(shutil.which, CHROMIUMS)), None)
EXPECTED = re.compile(
    r"Failed to load resource: (the server responded with a status of (40[0-9]|41[0-9]|42[0-9]|503)|net::ERR_)"
)
"""What Chromium writes to its console for every refusal and every lost connection, though the page handles it."""
TRANSITION = re.compile(r"Transition was (aborted|skipped)")
"""Chromium gives up the animation between two pages when the machine is slow; nothing is lost by that."""
USERS = """
[auth]
superuser = "root"
superuser_password = "correct horse"

[auth.users.reader]
password_hash = "{reader}"
permissions = [{{ queues = "orders*", actions = ["inspect", "publish"] }}]
"""

Opener = Callable[..., Any]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if CHROMIUM is None:
        for item in items:
            if Path(__file__).parent in item.path.parents and "browser" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.skip(reason="no Chromium on the path (Debian: apt-get install chromium)"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Not longer than a module: Playwright's loop runs all the while, and other tests need one of their own."""
    api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with api.sync_playwright() as playwright:
        # As root, which containers often are, Chromium has no sandbox.
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def open_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    """Without users, on loopback: everybody may do everything."""
    with ServedBroker(tmp_path_factory.mktemp("open")) as broker:
        yield broker


@pytest.fixture(scope="session")
def closed_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    """With a superuser `root` and a limited user `reader`."""
    from vibemq.auth.passwords import hash_password

    with ServedBroker(tmp_path_factory.mktemp("closed"), USERS.format(reader=hash_password("a reader's"))) as broker:
        yield broker


@pytest.fixture(scope="session")
def full_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    """As a broker is after a bad night (`tests.browser.seed`), with superuser `root` and limited users."""
    from vibemq.auth.passwords import hash_password

    with ServedBroker(tmp_path_factory.mktemp("full"), USERS.format(reader=hash_password("a reader's"))) as broker:
        broker.url = f"vibemq://root:correct%20horse@127.0.0.1:{broker.port}"
        # In a thread of its own: in this one Playwright's loop may run already.
        with ThreadPoolExecutor(1) as aside:
            aside.submit(asyncio.run, seed(broker.url, 1_000)).result()
        yield broker


@pytest.fixture
def opened(browser: Any) -> Iterator[Opener]:
    """Makes watched pages, each in a browser of its own."""
    contexts: list[Any] = []
    troubles: list[str] = []

    def opener(origin: str, *, size: str = "large", theme: str = "light", **options: Any) -> Any:
        width, height = SIZES[size]
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=theme, base_url=origin, **options
        )
        context.set_default_timeout(CEILING_MS)
        contexts.append(context)
        context.expose_binding("violated", lambda _, what: troubles.append(f"violation: {what}"))
        context.add_init_script(
            "addEventListener('securitypolicyviolation', (event) => "
            "violated(`${event.effectiveDirective} ${event.blockedURI} on ${location.href}`))"
        )
        page = context.new_page()
        page.on("pageerror", lambda error: TRANSITION.match(str(error)) or troubles.append(f"error: {error}"))
        page.on("console", lambda message: _note(message, troubles))
        page.on("dialog", lambda dialog: troubles.append(f"dialog: {dialog.message}"))
        host = urlsplit(origin).netloc
        page.on("request", lambda request: _stay(request.url, host, troubles))
        return page

    yield opener
    for context in contexts:
        # A route that still waits for the broker would tell the next test that its page is gone.
        for page in context.pages:
            page.unroute_all(behavior="ignoreErrors")
        context.close()
    assert not troubles


def _note(message: Any, troubles: list[str]) -> None:
    if message.type in ("error", "warning") and not EXPECTED.match(message.text):
        troubles.append(f"console: {message.text}")


def _stay(url: str, host: str, troubles: list[str]) -> None:
    if urlsplit(url).netloc != host:
        troubles.append(f"request to another origin: {url}")
