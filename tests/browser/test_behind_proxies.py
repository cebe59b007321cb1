"""The console behind a proxy of somebody else's, which the broker's settings do not mention."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vibemq.sync
from tests.browser.brokers import ServedBroker, StrippingProxy
from tests.browser.test_login import log_in
from tests.integration.certificates import Authority
from vibemq.web.console.pages import PAGES

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

Opener = Callable[..., Any]
NEEDS = {"queue": "?queue=proxied", "message": "?queue=proxied&sequence=1"}
PLACES = [page.path + NEEDS.get(page.path, "") for page in PAGES if page.path not in ("login", "letter", "job")]
LINKS = """() => [...document.querySelectorAll('a[href], link[href], script[src], img')]
  .map((one) => one.href || one.src)"""


@pytest.mark.parametrize(
    ("prefix", "tls"),
    [
        ("/a/b", True),
        pytest.param("", False, marks=pytest.mark.long),
        pytest.param("/a/b", False, marks=pytest.mark.long),
        pytest.param("", True, marks=pytest.mark.long),
    ],
)
def test_every_page_link_stream_download_and_login_works_behind_a_proxy(
    closed_broker: ServedBroker, opened: Opener, tmp_path: Path, prefix: str, *, tls: bool
) -> None:
    body = bytes(range(256)) * 300
    url = closed_broker.url.replace("vibemq://", "vibemq://root:correct%20horse@")
    signed = Authority.made_in(tmp_path).sign("proxy") if tls else None
    with StrippingProxy(closed_broker.origin, prefix, signed) as proxy, vibemq.sync.connect(url) as mq:
        mq.create_queue("proxied")
        mq.publish("proxied", body)
        page = opened(proxy.origin, ignore_https_errors=True)
        page.goto(f"{proxy.console}queues?name=proxied")
        with page.expect_response(lambda answer: "/api/v1/events" in answer.url and answer.ok):
            log_in(page)
        page.get_by_role("link", name="proxied").wait_for()
        assert page.url == f"{proxy.console}queues?name=proxied", "where one wanted to be"
        mq.create_queue("proxied-later")
        page.get_by_role("link", name="proxied-later").wait_for()
        elsewhere = []
        for place in PLACES:
            page.goto(f"{proxy.console}{place}")
            page.get_by_role("heading", level=1).first.wait_for()
            page.get_by_text("Loading", exact=False).first.wait_for(state="hidden")
            assert page.get_by_role("alert").count() == 0, place
            elsewhere += [f"{place}: {one}" for one in page.evaluate(LINKS) if not one.startswith(proxy.base)]
        assert not elsewhere
        with page.expect_download() as begun:
            page.get_by_role("link", name="Download").click()
        assert Path(begun.value.path()).read_bytes() == body
        page.get_by_role("navigation", name="Pages", exact=True).get_by_role("link", name="Overview").click()
        page.get_by_role("heading", name="Overview").wait_for()
        assert page.url == proxy.console
        page.get_by_role("button", name="root").click()
        page.get_by_role("button", name="Log out", exact=True).click()
        page.get_by_role("heading", name="Log in").wait_for()
        assert page.url.startswith(f"{proxy.console}login")
        page.context.close()
        for queue in ("proxied", "proxied-later"):
            mq.delete_queue(queue)
