"""What holds on every page: names and texts from outside are only text, the policy holds, it fits and can be read."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import vibemq.sync
from tests.browser.brokers import CEILING_MS, ServedBroker
from tests.browser.hostile import HOSTILE, LONG, MARK
from vibemq.web.console.pages import PAGES

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

Opener = Callable[..., Any]
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
ODD_NAMES = (".", "..", "...", "-x", "--yes", "a.b", "ก" * 256)
QUEUES = {"orders", "fan", *ODD_NAMES}
GOING = ("..", "--yes", "ก" * 256)
PAGES_OF_STRANGERS = (
    f"<!doctype html><script>{MARK}</script>",
    f'<svg xmlns="http://www.w3.org/2000/svg" onload="{MARK}"><script>{MARK}</script></svg>',
    f"%PDF-1.7\n1 0 obj<</Type/Catalog/OpenAction<</S/JavaScript/JS(app.{MARK})>>>>endobj\ntrailer<</Root 1 0 R>>",
)
SHOWN = {"connections": ["^Close…"], "queue?queue=fan": ["^Seek…"], "letter?id=1": ["^Edit and replay…"]}
SHOWN_TOO = {
    "queue?queue=fan": ["^Delete…"],
    "dead-letters": ["^Replay all", "^Purge all"],
    "letter?id=1": ["^Replay this letter…", "^Purge this letter…"],
    "letter?id=12": ["^Edit and replay…"],
    "message?queue=orders&sequence=88": ["^Publish one like it", "^Remove…"],
    "cursors": ["^Seek…", "^Change limits…", "^Quarantine messages…", "^Delete the cursor…"],
    "job?id=1": ["^Run the same again…"],
}
"""Dialogs that repeat texts from outside: page, and the buttons that open them."""


@pytest.fixture(scope="module")
def hostile_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    """Its queues have hostile texts wherever a publisher or a consumer can put them."""
    with ExitStack() as stack:
        broker = stack.enter_context(ServedBroker(tmp_path_factory.mktemp("hostile")))
        mq = stack.enter_context(vibemq.sync.connect(broker.url))
        for queue in QUEUES - {"fan"}:
            mq.create_queue(queue, max_attempts=1)
        for number, text in enumerate(HOSTILE):
            kind = text if text.isprintable() and len(text) < 200 else "odd"
            mq.publish(
                "orders", {text: text}, id=f"{number} {text}"[:200], headers={"note": text, f"x-{kind}": "value"}
            )
        mq.publish("orders", LONG)
        for message, text in zip(mq.fetch("orders", max=60), HOSTILE, strict=False):
            message.reject(text)
        name_everything(mq)
        for text in pieces(250):
            stack.enter_context(vibemq.sync.connect(broker.url, name=text))
        yield broker


def pieces(most: int) -> list[str]:
    """All hostile texts, several together."""
    found = [""]
    for text in HOSTILE:
        if len(found[-1]) + len(text) >= most:
            found.append("")
        found[-1] += text
    return found


def name_everything(mq: vibemq.sync.Client) -> None:
    """Groups, readers and notes."""
    mq.create_queue("fan", mode="fan_out_with_ack")
    for text in pieces(250):
        mq.admin("group.filter", queue="fan", group=text, where="", start="latest")
        mq.admin("group.join", queue="fan", group=f"reader {text}"[:250], owner=text)
    for text in pieces(900):
        mq.admin("job.start", kind="replay", filter={"queue": "fan"}, note=text)


def places() -> list[str]:
    """Every page, with what it needs to show something."""
    more = {
        "queue": [
            *("queue?queue=orders", "queue?queue=fan"),
            *(f"queue?queue=orders&tab={tab}" for tab in ("messages", "options", "tail")),
        ],
        "message": ["message?queue=orders&sequence=60", "message?queue=orders&sequence=88"],
        "letter": ["letter?id=1", "letter?id=12"],
        "job": ["job?id=1", "job?id=2"],
    }
    return [place for page in PAGES if page.path != "login" for place in more.get(page.path, [page.path])]


def show(page: Any, broker: ServedBroker, place: str) -> None:
    """Until the page has its data, or has said why it has none."""
    page.goto(f"{broker.console}{place}")
    page.get_by_role("heading", level=1).first.wait_for()
    page.get_by_text("Loading", exact=False).first.wait_for(state="hidden")


def test_no_text_becomes_markup_whoever_tries(browser: Any, hostile_broker: ServedBroker) -> None:
    """Trusted Types hold: the policy is the same for all pages. The page is not watched, for this is a violation."""
    context = browser.new_context()
    context.set_default_timeout(CEILING_MS)
    page = context.new_page()
    for place in ("", "queue?queue=orders", "letter?id=1"):
        show(page, hostile_broker, place)
        refused = "() => { try { document.body.innerHTML = '<i></i>'; return false } catch { return true } }"
        assert page.evaluate(refused), place
    context.close()


def test_no_page_of_another_site_shows_the_console_in_a_frame(browser: Any, hostile_broker: ServedBroker) -> None:
    """The page is not watched, for this is a violation."""
    context = browser.new_context()
    context.set_default_timeout(CEILING_MS)
    page = context.new_page()
    with page.expect_console_message(lambda message: "frame-ancestors" in message.text):
        page.set_content(f'<iframe src="{hostile_broker.console}queues"></iframe>')
    framed = page.frames[1]
    assert framed.get_by_role("heading").count() == 0
    assert not framed.url.startswith(hostile_broker.origin)
    context.close()


def test_queues_with_odd_names_are_reached_purged_and_deleted_from_their_pages(
    hostile_broker: ServedBroker, opened: Opener
) -> None:
    page = opened(hostile_broker.origin)
    with vibemq.sync.connect(hostile_broker.url) as mq:
        for name in GOING:
            mq.publish(name, b"x")
    for name in GOING:
        show(page, hostile_broker, "queues")
        page.get_by_role("link", name=name, exact=True).click()
        page.get_by_role("button", name="Purge messages…").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Type").fill("1")
        dialog.get_by_role("button", name="Purge 1 message").click()
        page.get_by_text("Purged 1 message.").wait_for()
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Delete queue…").click()
        button = dialog.get_by_role("button", name="Delete the queue")
        assert button.is_disabled()
        dialog.get_by_label("Type").fill(name)
        button.click()
        page.get_by_role("heading", name="Queues", exact=True).wait_for()
    with vibemq.sync.connect(hostile_broker.url) as mq:
        left = {info["name"] for info in mq.admin("queue.list")}
        # Other tests look at pages with a long name.
        mq.create_queue(GOING[-1], max_attempts=1)
    assert left == QUEUES - set(GOING)


@pytest.mark.parametrize("body", PAGES_OF_STRANGERS, ids=lambda body: str(body[1:4]))
def test_a_body_that_is_opened_in_a_tab_is_a_file_in_which_nothing_runs(
    hostile_broker: ServedBroker, opened: Opener, body: str
) -> None:
    page = opened(hostile_broker.origin)
    with vibemq.sync.connect(hostile_broker.url) as mq:
        mq.create_queue("pages")
        mq.publish("pages", body, headers={"content-type": "text/html"})
        with page.expect_download() as begun, pytest.raises(Exception, match="Download is starting"):
            page.goto(f"{hostile_broker.origin}/api/v1/queues/pages/messages/1/body")
        assert begun.value.suggested_filename == "message-1.bin"
        assert begun.value.path().read_text() == body
        assert page.url == "about:blank"
        mq.delete_queue("pages")


def test_an_address_that_names_nothing_says_so_under_a_heading(hostile_broker: ServedBroker, opened: Opener) -> None:
    page = opened(hostile_broker.origin)
    for place in ("queue", "letter", "letter?id=x", "message", "message?queue=orders&sequence=abc"):
        show(page, hostile_broker, place)
        assert page.get_by_role("heading", level=1).count() == 1, place
        page.get_by_role("heading", name=re.compile("^Which ")).wait_for()


def test_code_in_descriptions_is_shown_as_code(hostile_broker: ServedBroker, opened: Opener) -> None:
    page = opened(hostile_broker.origin)
    show(page, hostile_broker, "api")
    assert "`" not in "".join(page.locator(".operations").all_text_contents())
    assert "Permissions: inspect on the queue" in "".join(page.locator(".operations p:has(code)").all_text_contents())


def test_a_table_that_goes_on_behind_its_edge_has_a_shade_there(hostile_broker: ServedBroker, opened: Opener) -> None:
    page = opened(hostile_broker.origin, size="small")
    show(page, hostile_broker, "queues")
    table = page.locator(".table-scroll")
    table.wait_for()
    assert table.evaluate("(box) => box.scrollWidth > box.clientWidth")
    attachments = table.evaluate("(box) => getComputedStyle(box).backgroundAttachment")
    assert attachments == "local, local, scroll, scroll", "covers that go along, and shades that do not"


def test_of_a_parameter_that_stands_there_twice_the_first_counts(hostile_broker: ServedBroker, opened: Opener) -> None:
    page = opened(hostile_broker.origin)
    for place in ("connections?user=a&user=b", "broker?tab=settings&search=a&search=b", "queues?name=a&name=b"):
        show(page, hostile_broker, place)
        assert "a" in [field.input_value() for field in page.get_by_role("searchbox").all()], place


@pytest.mark.parametrize(
    ("size", "theme"),
    [
        ("large", "light"),
        *(
            pytest.param(size, theme, marks=pytest.mark.long)
            for size, theme in (
                ("large", "dark"),
                ("medium", "light"),
                ("medium", "dark"),
                ("small", "light"),
                ("small", "dark"),
            )
        ),
    ],
)
def test_hostile_texts_are_text_and_every_page_is_accessible_and_fits(
    hostile_broker: ServedBroker, opened: Opener, size: str, theme: str
) -> None:
    """What a hostile text would do is noted by `opened`: a script that runs, a violation, a request elsewhere."""
    assert not troubles_of_pages(opened(hostile_broker.origin, size=size, theme=theme), hostile_broker, places())


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", ["small", "medium", "large"])
@pytest.mark.long_where(theme="dark")
@pytest.mark.long_where(size=["medium", "large"])
def test_every_page_of_an_empty_broker_is_accessible_and_fits(
    tmp_path: Path, opened: Opener, size: str, theme: str
) -> None:
    with ServedBroker(tmp_path) as broker:
        page = opened(broker.origin, size=size, theme=theme)
        with_data = {"access", "api", "broker"}
        empty = [place for place in places() if "?" not in place and place not in with_data]
        assert not troubles_of_pages(page, broker, empty)
        page.context.close()


def troubles_of_pages(page: Any, broker: ServedBroker, which: list[str]) -> list[str]:
    found = []
    for place in which:
        show(page, broker, place)
        page.evaluate(AXE.read_text())
        result = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
        found += [
            f"{place}: {violation['id']}: {violation['nodes'][0]['html'][:200]}"
            for violation in result["violations"]
            if violation["impact"] in ("serious", "critical")
        ]
        if page.evaluate("() => document.documentElement.scrollWidth > innerWidth"):
            found.append(f"{place}: it scrolls sideways")
    return found


@pytest.mark.parametrize("dialogs", [SHOWN, pytest.param(SHOWN_TOO, marks=pytest.mark.long)], ids=["some", "others"])
def test_hostile_texts_are_text_in_dialogs(
    hostile_broker: ServedBroker, opened: Opener, dialogs: dict[str, list[str]]
) -> None:
    """As on pages, `opened` notes what a text has done."""
    page = opened(hostile_broker.origin, size="small")
    found = []
    for place, buttons in dialogs.items():
        show(page, hostile_broker, place)
        if place == "cursors":
            page.get_by_role("rowheader").get_by_role("button").first.click()
        for button in buttons:
            page.get_by_role("button", name=re.compile(button)).first.click()
            dialog = page.get_by_role("dialog")
            dialog.wait_for()
            page.get_by_text("Looking what would happen").wait_for(state="hidden")
            if dialog.evaluate("(dialog) => dialog.scrollWidth > dialog.clientWidth"):
                found.append(f"{place}, {button}: it scrolls sideways")
            page.keyboard.press("Escape")
            dialog.wait_for(state="detached")
    assert not found
