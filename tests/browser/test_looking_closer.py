"""What an operator looks at in single things: a connection, a token, a queue's state, a dialog that is filled in."""

import gzip
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vibemq.sync
from tests.browser.brokers import ServedBroker
from tests.browser.test_incident import admin, dead_in, enter
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

Opener = Callable[..., Any]
ROWS = 12_000
SMALLER_ROWS = 6_400
"""Of a letter that an answer of the API may hold: just below 1 MiB."""
TURNS_MIN = 10
ELEMENTS_MAX = 2_000
"""Of a turn, and of all parts that are to be seen."""
COUNT_PER_FRAME = """() => { window.elements = [];
  const body = document.querySelector('[aria-label=Body]');
  const count = (nodes) => [...nodes].reduce((sum, one) => sum + 1 + (one.querySelectorAll?.('*').length ?? 0), 0);
  new MutationObserver((changes) => window.elements.push(
    changes.reduce((sum, { addedNodes }) => sum + count(addedNodes), 0)))
    .observe(body, { childList: true, subtree: true }) }"""
"""How many elements each turn of the page's script has added to the body."""


def test_from_a_queue_with_a_stuck_consumer_to_the_connection_that_holds_its_messages(
    full_broker: ServedBroker, opened: Opener
) -> None:
    page = opened(full_broker.origin)
    with vibemq.sync.connect(full_broker.url, name="slow worker") as mq:
        mq.create_queue("closer", max_messages=4)
        mq.publish_many("closer", [b"x"] * 4)
        with mq.subscribe("closer", prefetch=3, ack_timeout=0) as messages:
            next(iter(messages))
            # What consumers hold does not count.
            mq.publish_many("closer", [b"x"] * 3)
            enter(page, full_broker, "queue?queue=closer")
            page.locator("#main h1 + .pill", has_text="Full").wait_for()
            page.get_by_text("A limit of the queue is reached").wait_for()
            told = {"level": "alarm", "text": "the disk is full", "remedy": "make room", "link": {"page": "broker"}}
            assert page.get_by_text("make room", exact=False).count() == 0
            page.route("**/api/v1/events*", lambda route: route.abort())
            page.route(
                "**/api/v1/overview",
                lambda route: route.fulfill(json=route.fetch().json() | {"state": "alarm", "sentences": [told]}),
            )
            page.reload()
            page.get_by_text("Alarm: The disk is full").wait_for()
            row = page.get_by_role("row", name=re.compile("slow worker"))
            row.get_by_text("no ack timeout").wait_for()
            row.get_by_text("3 / 3 at its limit").wait_for()
            row.get_by_role("link", name="slow worker").click()
            page.get_by_role("heading", name="Connection of slow worker").wait_for()
            page.get_by_role("row", name=re.compile("closer.*3 . 3")).wait_for()
            page.get_by_text("3 messages", exact=True).wait_for()
            page.get_by_role("navigation", name="Where this is").get_by_role("link", name="Connections").click()
            page.get_by_role("row", name=re.compile("slow worker")).wait_for()
        mq.delete_queue("closer")


def test_a_queue_whose_consumer_is_at_its_limit_and_settles_nothing_does_not_flow(
    full_broker: ServedBroker, opened: Opener
) -> None:
    page = opened(full_broker.origin)
    with vibemq.sync.connect(full_broker.url, name="hung worker") as mq:
        mq.create_queue("held")
        mq.publish_many("held", [b"x"] * 3)
        with mq.subscribe("held", prefetch=2, ack_timeout=0) as messages:
            next(iter(messages))
            enter(page, full_broker, "queue?queue=held")
            page.locator("#main h1 + .pill", has_text="Waiting for acks").wait_for()
            page.get_by_text("One that is at its limit (prefetch) gets no more until it settles some").wait_for()
            page.get_by_role("link", name="What its consumers hold").click()
            page.get_by_role("row", name=re.compile("hung worker.*2 . 2 at its limit")).wait_for()
        mq.delete_queue("held")


def test_a_token_that_allows_a_part_of_what_its_user_may(full_broker: ServedBroker, opened: Opener) -> None:
    page = opened(full_broker.origin)
    enter(page, full_broker, "access?tab=users&user=ann")
    page.get_by_role("button", name="Make a token…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("What it is for").fill("looks and publishes")
    dialog.get_by_role("button", name="Only a part").click()
    make = dialog.get_by_role("button", name="Make a token")
    assert make.is_disabled(), "a token that allows nothing"
    dialog.get_by_label("Queues", exact=True).fill("orders*")
    dialog.get_by_label(re.compile("^inspect")).check()
    dialog.get_by_role("button", name="Add another").click()
    dialog.get_by_label("Queues", exact=True).fill("orders.eu")
    dialog.get_by_label(re.compile("^publish")).check()
    make.click()
    page.get_by_role("dialog", name="The token, only this once").get_by_text("inspect").wait_for()
    page.get_by_role("button", name="I have it").click()
    page.get_by_role("row", name=re.compile("looks and publishes.*inspect on orders.*publish on orders.eu")).wait_for()
    [token] = [
        one for one in admin(full_broker, "token.list", user="ann")["tokens"] if one["label"] == "looks and publishes"
    ]
    assert token["permissions"] == [
        {"queues": "orders*", "actions": ["inspect"]},
        {"queues": "orders.eu", "actions": ["publish"]},
    ]
    admin(full_broker, "token.revoke", user="ann", token_id=token["token_id"])


@pytest.mark.long(
    covered_by="tests/browser/test_looking_closer.py::test_a_publish_that_is_refused_says_why_and_keeps_what_was_typed"
)
def test_fields_below_a_preview_stay_where_they_are_while_another_one_comes(
    full_broker: ServedBroker, opened: Opener
) -> None:
    page = opened(full_broker.origin)
    enter(page, full_broker, "dead-letters?queue=orders.eu")
    page.locator(".group-sample", has_text=re.compile("^e.g. ")).first.wait_for()
    page.get_by_role("button", name=re.compile("^Replay all")).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("Goes to").wait_for()
    few = dialog.get_by_role("button", name="Only the first")
    before = few.bounding_box()["y"]
    few.click()
    dialog.get_by_text("The first 10 of").wait_for()
    # A queue that exists and has nothing to be told of: the preview has fewer lines.
    page.route(
        "**/dead-letters/preview",
        lambda route: route.fulfill(json={"count": 1, "count_max": 1, "exact": True, "bytes": 1, "targets": []}),
    )
    dialog.get_by_label("To queue").fill("orders.us")
    dialog.get_by_label("To queue").press("Tab")
    dialog.get_by_text("1 letter", exact=True).wait_for()
    assert few.bounding_box()["y"] == before


def test_a_message_is_found_by_its_id_and_by_a_header_whatever_its_state(
    full_broker: ServedBroker, opened: Opener
) -> None:
    page = opened(full_broker.origin)
    with vibemq.sync.connect(full_broker.url) as mq:
        mq.create_queue("searched", ack_timeout=0)
        for number in range(60):
            mq.publish("searched", b"x", id=f"m{number}", headers={"tenant": f"t{number % 20}"})
        assert len(mq.fetch("searched", max=25)) == 25
        enter(page, full_broker, "queue?queue=searched&tab=messages")
        page.get_by_label("Message id").fill("m33")
        page.get_by_label("Message id").press("Enter")
        page.get_by_text("1 message found among 60 looked at.").wait_for()
        page.get_by_role("row", name=re.compile("34.*m33.*Ready")).wait_for()
        page.keyboard.press("j")
        assert page.evaluate("() => document.activeElement.innerText") == "34", (
            "the filter is left, and j goes to a row"
        )
        page.get_by_label("Message id").fill("")
        page.get_by_label("Header, as name:value").fill("tenant:t3")
        page.get_by_label("Header, as name:value").press("Enter")
        page.get_by_text("3 messages found among 60 looked at.").wait_for()
        states = page.locator("tbody tr td[data-label=State]").all_inner_texts()
        assert states == ["In flight", "In flight", "Ready"]
        page.get_by_role("button", name=re.compile("^In flight")).click()
        page.get_by_text("2 messages found").wait_for()
        page.get_by_label("Header, as name:value").fill("tenant:nobody")
        page.get_by_label("Header, as name:value").press("Enter")
        page.get_by_role("heading", name="No message fits").wait_for()
        with page.expect_response(re.compile("newer_than_ms=3600000")) as asked:
            page.get_by_label("Published").select_option("In the last hour")
        assert asked.value.ok
        mq.delete_queue("searched")


def test_ages_are_counted_by_the_brokers_clock_in_a_browser_whose_clock_is_a_day_ahead(
    full_broker: ServedBroker, opened: Opener
) -> None:
    page = opened(full_broker.origin)
    page.add_init_script("const right = Date.now; Date.now = () => right() + 86_400_000;")
    with vibemq.sync.connect(full_broker.url) as mq:
        mq.create_queue("dated")
        mq.publish("dated", b"x", id="now")
        enter(page, full_broker, "queue?queue=dated&tab=messages")
        published = page.get_by_role("row", name=re.compile("now")).locator("td[data-label=Published] time")
        published.wait_for()
        assert "d" not in published.inner_text().replace("ago", "")
        mq.delete_queue("dated")


def body_of(rows: int) -> bytes:
    return json.dumps([{"id": 9007199254740993 + number, "note": "ü" * 20} for number in range(rows)]).encode()


def test_a_large_body_is_shown_in_part_and_downloaded_byte_for_byte(full_broker: ServedBroker, opened: Opener) -> None:
    page = opened(full_broker.origin)
    body = body_of(ROWS)
    with vibemq.sync.connect(full_broker.url) as mq:
        mq.create_queue("large", max_attempts=1)
        mq.publish("large", body)
        enter(page, full_broker, "message?queue=large&sequence=1")
        page.get_by_text(re.compile("Shown are 64 KiB of 1.*MiB")).wait_for()
        assert page.get_by_text(hashlib.sha256(body).hexdigest()).is_visible()
        page.get_by_role("region", name="Body").get_by_text("9007199254740995").first.wait_for()
        with page.expect_download() as begun:
            page.get_by_role("link", name="Download").click()
        downloaded = Path(begun.value.path()).read_bytes()
        assert hashlib.sha256(downloaded).hexdigest() == hashlib.sha256(body).hexdigest()
        shown = page.get_by_role("region", name="Body")
        assert shown.get_by_text('"id"').first.is_visible(), "what is shown first is laid out, too"
        smaller_body = body_of(SMALLER_ROWS)
        mq.publish("large", smaller_body)
        for settle in (lambda message: message.ack(), lambda message: message.reject("too large for a text field")):
            [message] = mq.fetch("large", max=1)
            settle(message)
        wait_until(lambda: dead_in(full_broker, "large") == 1)
        [smaller] = admin(full_broker, "dlq.list", queue="large")["letters"]
        page.goto(f"{full_broker.console}letter?id={smaller['dead_id']}")
        page.get_by_text(re.compile("Shown are 64 KiB of ")).wait_for()
        page.evaluate(COUNT_PER_FRAME)
        page.get_by_role("button", name="Show all").click()
        page.get_by_text(re.compile("Shown are ")).wait_for(state="hidden")
        lines = json.dumps(json.loads(smaller_body), indent=2).count("\n") + 1
        as_tall = f"(body) => body.scrollHeight >= {lines} * 1.5 * parseFloat(getComputedStyle(body).fontSize)"
        long = page.locator(".viewer .code")
        wait_until(lambda: long.evaluate(as_tall))
        long.evaluate("(body) => body.scrollTo(0, body.scrollHeight)")
        shown.get_by_text(str(9007199254740993 + SMALLER_ROWS - 1)).wait_for()
        turns = page.evaluate("() => window.elements")
        assert len(turns) > TURNS_MIN
        assert max(turns) < ELEMENTS_MAX, "a turn makes a part of the body, so none is long"
        assert long.locator("*").count() < 2 * ELEMENTS_MAX, "only what is near to what is seen is made"
        assert shown.get_by_text(str(9007199254740993 + SMALLER_ROWS // 2)).count() == 0
        admin(full_broker, "dlq.purge", queue="large")
        mq.delete_queue("large")


def test_a_packed_letter_is_opened_and_then_not_edited(full_broker: ServedBroker, opened: Opener) -> None:
    page = opened(full_broker.origin)
    with vibemq.sync.connect(full_broker.url) as mq:
        mq.create_queue("packed")
        mq.publish("packed", gzip.compress(b'{"id": 9007199254740993}'))
        [message] = mq.fetch("packed")
        message.reject("cannot be read")
        mq.ping()
        [letter] = mq.admin("dlq.list", queue="packed")["letters"]
        enter(page, full_broker, f"letter?id={letter['dead_id']}")
        page.get_by_role("button", name="Edit and replay…").wait_for()
        page.get_by_role("button", name="gzip", exact=True).click()
        page.get_by_role("region", name="Body").get_by_text("9007199254740993").wait_for()
        assert page.get_by_role("button", name="Edit and replay…").count() == 0, "what is stored is edited alone"
        with page.expect_download() as body:
            page.get_by_role("link", name="Download", exact=True).click()
        assert body.value.path().read_bytes() == b'{"id": 9007199254740993}'
        mq.admin("dlq.purge", queue="packed")
        mq.delete_queue("packed")


def test_letters_keep_their_places_when_others_come(full_broker: ServedBroker, opened: Opener) -> None:
    page = opened(full_broker.origin)
    with vibemq.sync.connect(full_broker.url) as mq:
        mq.create_queue("growing")

        def die() -> None:
            mq.publish("growing", b"x")
            [message] = mq.fetch("growing")
            message.reject("no")
            mq.ping()

        die()
        die()
        enter(page, full_broker, "dead-letters?queue=growing")
        links = page.get_by_role("table", name="Dead letters").get_by_role("rowheader").get_by_role("link")
        page.get_by_text("2 letters fit").wait_for()
        newer, older = links.all_inner_texts()
        die()
        # As when the page is looked at again: it asks at once.
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        page.get_by_role("button", name="Sort again").click()
        page.get_by_role("button", name="Sort again").wait_for(state="detached")
        newest, *others = links.all_inner_texts()
        assert others == [newer, older]
        die()
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        page.get_by_role("button", name="Sort again").wait_for()
        assert links.all_inner_texts()[:3] == [newest, newer, older]
        mq.admin("dlq.purge", queue="growing")
        mq.delete_queue("growing")


def test_a_publish_that_is_refused_says_why_and_keeps_what_was_typed(full_broker: ServedBroker, opened: Opener) -> None:
    page = opened(full_broker.origin)
    with vibemq.sync.connect(full_broker.url) as mq:
        mq.create_queue("tight", max_messages=1)
        mq.publish("tight", b"x")
        enter(page, full_broker, "queue?queue=tight")
        page.get_by_role("button", name="Publish", exact=True).click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Body", exact=True).fill('{"n": 1')
        dialog.get_by_text(re.compile("It begins like JSON and is none: .*position")).wait_for()
        dialog.get_by_label("Body", exact=True).fill('{"n": 1}')
        dialog.get_by_role("button", name=re.compile("^Publish")).click()
        dialog.get_by_role("alert").get_by_text("QUEUE_FULL").wait_for()
        assert dialog.get_by_label("Body", exact=True).input_value() == '{"n": 1}'
        mq.purge_queue("tight")
        dialog.get_by_role("button", name="Add a header").click()
        dialog.get_by_label("Name of the header").fill("tenant")
        dialog.get_by_role("button", name=re.compile("^Publish")).click()
        dialog.get_by_role("alert").get_by_text(re.compile("^The value of header .tenant. must be text")).wait_for()
        dialog.get_by_label("Value of the header").fill("acme")
        dialog.get_by_role("button", name=re.compile("^Publish")).click()
        dialog.get_by_text("Published and confirmed").wait_for()
        dialog.get_by_role("link", name="message 2").wait_for()
        mq.purge_queue("tight")
        dialog.get_by_text("Priority, delay, time to live, ids").click()
        dialog.get_by_label("Id for deduplication").fill("once")
        for told in (
            re.compile("^Published and confirmed as message 3"),
            re.compile("known already, message 3. This one"),
        ):
            dialog.get_by_role("button", name=re.compile("^Publish")).click()
            dialog.get_by_text(told).wait_for()
        mq.purge_queue("tight")
        large = json.dumps({"text": "x" * 300_000})
        dialog.get_by_label("Body", exact=True).fill(large)
        dialog.get_by_label("Id for deduplication").fill("")
        dialog.get_by_role("button", name=re.compile("^Publish")).click()
        dialog.get_by_role("link", name="message 4").wait_for()
        [message] = mq.fetch("tight")
        assert message.payload == large.encode()
        page.keyboard.press("Escape")
        mq.delete_queue("tight")


def test_what_is_too_large_or_comes_to_a_broker_without_memory_is_refused_in_words(
    tmp_path: Path, opened: Opener
) -> None:
    with ServedBroker(tmp_path) as broker, vibemq.sync.connect(broker.url) as mq:
        mq.create_queue("refusing")
        page = opened(broker.origin)
        page.goto(f"{broker.console}queue?queue=refusing")
        page.get_by_role("button", name="Publish", exact=True).click()
        dialog = page.get_by_role("dialog")
        body, alert = dialog.get_by_label("Body", exact=True), dialog.get_by_role("alert")
        button = dialog.get_by_role("button", name=re.compile("^Publish"))
        body.fill("x" * 1_100_000)
        button.click()
        alert.get_by_text(re.compile("^The message has 1,100,.* 1,048,576.*native protocol")).wait_for()
        alert.get_by_text("MESSAGE_TOO_LARGE").wait_for()
        assert len(body.input_value()) == 1_100_000
        body.fill("small")
        (tmp_path / "vibemq.toml").write_text("[limits]\nmemory_limit_bytes = 1\n")
        mq.admin("broker.reload")
        wait_until(lambda: admin(broker, "broker.overview")["state"] == "alarm")
        button.click()
        alert.get_by_text(re.compile("^The broker refuses messages at present .*memory")).wait_for()
        alert.get_by_text("BLOCKED").wait_for()
        assert body.input_value() == "small"
        (tmp_path / "vibemq.toml").write_text("")
        mq.admin("broker.reload")
        wait_until(lambda: admin(broker, "broker.overview")["state"] != "alarm")
        button.click()
        dialog.get_by_text("Published and confirmed as message 1").wait_for()
        assert alert.count() == 0


def test_a_message_like_another_keeps_its_content_type_and_priority(full_broker: ServedBroker, opened: Opener) -> None:
    with vibemq.sync.connect(full_broker.url) as mq:
        mq.create_queue("alike", mode="priority_based")
        for priority in (2, 7):
            mq.publish("alike", "<order/>", headers={"Content-Type": "text/xml"}, priority=priority)
        page = opened(full_broker.origin)
        for sequence in (1, 2):
            enter(page, full_broker, f"message?queue=alike&sequence={sequence}")
            page.get_by_role("button", name="Publish one like it").click()
            page.get_by_role("dialog").get_by_role("button", name="Publish message").click()
            page.get_by_role("dialog").get_by_text("Published and confirmed").wait_for()
            one, other = (mq.admin("message.show", queue="alike", sequence=each) for each in (sequence, sequence + 2))
            assert [other[name] for name in ("headers", "priority")] == [one[name] for name in ("headers", "priority")]
        mq.delete_queue("alike")


def test_a_group_is_moved_limited_and_deleted_where_it_is_shown(open_broker: ServedBroker, opened: Opener) -> None:
    page = opened(open_broker.origin)
    with vibemq.sync.connect(open_broker.url) as mq:
        mq.create_queue("shared", mode="broadcast")
        mq.admin("group.filter", queue="shared", group="billing", where="", start="latest")
        mq.admin("group.join", queue="shared", group="stream")
        mq.publish_many("shared", [b"x"] * 3)
        page.goto(f"{open_broker.console}queue?queue=shared")
        groups = page.get_by_role("table", name="2 groups")
        billing = groups.get_by_role("row", name=re.compile("billing"))
        billing.get_by_role("button", name="Seek…").click()
        dialog = page.get_by_role("dialog", name="Move group billing?")
        dialog.get_by_role("button", name="A sequence").click()
        dialog.get_by_label("Sequence", exact=True).fill("3")
        dialog.get_by_label(re.compile("to confirm")).fill("billing")
        dialog.get_by_role("button", name="Move 1 group").click()
        dialog.wait_for(state="detached")
        [group, _] = mq.admin("group.list", queue="shared")["groups"]
        assert (group["group"], group["backlog_messages"]) == ("billing", 1)
        billing.get_by_role("button", name="Delete…").click()
        dialog = page.get_by_role("dialog", name="Delete group billing?")
        dialog.get_by_label(re.compile("to confirm")).fill("billing")
        page.keyboard.press("Enter")
        billing.wait_for(state="detached")
        # The button that had it before has gone with its row.
        page.locator("#main:focus").wait_for()
        page.get_by_role("table", name="1 group").get_by_role("link", name="stream").click()
        page.get_by_role("button", name="stream").click()
        page.get_by_role("button", name="Change limits…").click()
        dialog = page.get_by_role("dialog", name="Limits of cursor stream")
        dialog.get_by_label("Expires when its oldest message is older than").fill("7d")
        dialog.get_by_label("Expires when it is further behind than").fill("10GiB")
        assert dialog.get_by_text("--max-lag=7d --max-lag-size=10737418240 -- shared stream").count() == 1
        dialog.get_by_role("button", name="Change 2 limits").click()
        page.get_by_text("7 d or 10 GiB").wait_for()
        page.get_by_text(re.compile("^0 messages a second, and does not come nearer to the end")).wait_for()
        [group] = mq.admin("group.list", queue="shared")["groups"]
        assert (group["hold_ms"], group["max_lag_ms"], group["max_lag_bytes"]) == (0, 604_800_000, 10 << 30)
        mq.delete_queue("shared")


def test_a_cursor_tells_what_it_has_lost_and_what_is_quarantined(open_broker: ServedBroker, opened: Opener) -> None:
    with vibemq.sync.connect(open_broker.url) as mq:
        mq.create_queue("read", mode="fan_out_with_ack")
        for group, limits in (("slow", {"max_lag_bytes": 1}), ("picky", {})):
            mq.admin("group.join", queue="read", group=group, owner=f"{group} job", start="earliest", **limits)
        mq.publish_many("read", [b"x" * 100] * 30)
        mq.admin("group.quarantine", queue="read", group="picky", runs=[[17, 17], [20, 25]])
        page = opened(open_broker.origin)
        page.goto(f"{open_broker.console}cursors?queue=read")
        rows = {group: page.get_by_role("row").filter(has_text=f"{group} job") for group in ("slow", "picky")}
        rows["slow"].get_by_text("EXPIRED").wait_for()
        rows["picky"].get_by_text("behind", exact=True).wait_for()
        rows["picky"].get_by_role("button", name="picky").click()
        fact = page.get_by_role("definition").filter(has_text="7 messages")
        assert fact.locator("code").inner_text() == "17, 20-25"
        assert fact.get_by_role("link", name="dead letters").get_attribute("href").endswith("dead-letters?queue=read")
        mq.delete_queue("read")


def test_applications_with_transactions_have_pages_of_their_own(open_broker: ServedBroker, opened: Opener) -> None:
    page = opened(open_broker.origin)

    def some(route: Any) -> None:
        is_last = "cursor=" in route.request.url
        app = {"app": f"nightly-{1 + is_last}", "version": 1, "stage_count": 0, "stage_bytes": 0}
        route.fulfill(json={"items": [app], "next": None if is_last else "further"})

    page.route("**/api/v1/transactions?*", some)
    page.goto(f"{open_broker.console}cursors")
    page.get_by_role("row", name=re.compile("nightly-1")).wait_for()
    page.get_by_role("button", name="Next page").click()
    page.get_by_role("row", name=re.compile("nightly-2")).wait_for()
    page.get_by_role("button", name="First page").click()
    page.get_by_role("row", name=re.compile("nightly-1")).wait_for()


def test_the_page_of_a_queue_says_so_when_it_is_deleted(full_broker: ServedBroker, opened: Opener) -> None:
    page = opened(full_broker.origin)
    with vibemq.sync.connect(full_broker.url) as mq:
        mq.publish("short-lived", b"x")
        enter(page, full_broker, "queue?queue=short-lived")
        page.get_by_role("heading", name="short-lived").wait_for()
        # From then on figures come with the stream alone.
        page.get_by_title(re.compile("once a second")).first.wait_for()
        mq.delete_queue("short-lived")
    # A part of the page may hear of it before the page does.
    page.get_by_text("Oldest waiting").wait_for(state="detached")
    page.get_by_role("alert").get_by_text("There is no queue of this name").wait_for()


def test_an_address_that_names_no_queue_takes_the_stream_from_no_other_tab(
    full_broker: ServedBroker, opened: Opener
) -> None:
    page = opened(full_broker.origin)
    enter(page, full_broker, "")
    other = page.context.new_page()
    with other.expect_response(lambda response: "/api/v1/queues/" in response.url) as refused:
        other.goto(f"{full_broker.console}queue?queue=%3Cb%3E%3F")
    assert refused.value.status == 422
    other.get_by_role("alert").first.wait_for()
    for tab in (page, other):
        tab.bring_to_front()
        tab.get_by_title(re.compile("once a second")).first.wait_for()
    other.close()


@pytest.mark.long(
    covered_by="tests/browser/test_ways_of_looking.py::test_twelve_tabs_share_one_stream_and_survive_its_holder"
)
def test_twelve_pages_that_are_seen_have_one_stream_and_all_are_live(full_broker: ServedBroker, opened: Opener) -> None:
    page = opened(full_broker.origin)
    enter(page, full_broker, "")
    places = ["queues", *(f"queue?queue=of-twelve-{number}" for number in range(10))]
    with vibemq.sync.connect(full_broker.url) as mq:
        for place in places[1:]:
            mq.create_queue(place.partition("=")[2])
        tabs = [page, *(page.context.new_page() for _ in places)]
        for tab, place in zip(tabs[1:], places, strict=True):
            tab.goto(f"{full_broker.console}{place}")
        for tab in tabs:
            tab.get_by_title(re.compile("once a second")).first.wait_for()
        for place in places[1:]:
            mq.delete_queue(place.partition("=")[2])
    for tab in tabs[1:]:
        tab.close()


def test_a_dialog_with_a_long_button_fits_a_small_screen(full_broker: ServedBroker, opened: Opener) -> None:
    page = opened(full_broker.origin, size="small")
    enter(page, full_broker, "dead-letters")
    page.get_by_role("button", name=re.compile("^Replay all")).click()
    dialog = page.get_by_role("dialog")
    button = dialog.get_by_role("button", name=re.compile("^Replay .* letters to the .* queues"))
    button.wait_for()
    assert dialog.evaluate("(dialog) => dialog.scrollWidth <= dialog.clientWidth")
    frame = dialog.bounding_box()
    for name in (re.compile("^Replay .* letters to the .* queues"), "Cancel", re.compile("Close")):
        box = dialog.get_by_role("button", name=name).first.bounding_box()
        assert frame["x"] <= box["x"]
        assert box["x"] + box["width"] <= frame["x"] + frame["width"], name
