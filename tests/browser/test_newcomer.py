"""From an empty broker to a letter that is replayed and settled, by what pages say alone; what a queue's page does."""

import re
import shlex
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import vibemq.sync
from tests.browser.brokers import ServedBroker
from tests.browser.keys import go
from tests.integration import conditions
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

Opener = Callable[..., Any]
COUNT_MARKS = """{
  const canvas = CanvasRenderingContext2D.prototype, { clearRect, fillText } = canvas;
  canvas.clearRect = function (...where) { this.canvas.marks = 0; clearRect.apply(this, where); };
  canvas.fillText = function (text, ...where) {
    this.canvas.marks += text === "started";
    fillText.call(this, text, ...where);
  };
}"""
"""How many starts of the broker are written into a chart, as it was drawn last."""


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path_factory.mktemp("newcomer")) as broker:
        yield broker


def run(line: str) -> str:
    """What a line prints that the page shows."""
    said = conditions.run(*shlex.split(line))
    assert said.code == 0, said.err
    return said.out


def test_from_an_empty_broker_to_a_replayed_letter(own_broker: ServedBroker, opened: Opener) -> None:
    page = opened(own_broker.origin)
    page.goto(own_broker.origin)
    assert page.url == own_broker.console
    page.get_by_text("All is well.").wait_for()
    page.get_by_role("heading", name="This broker has no queues yet").wait_for()
    page.locator("pre", has_text=f"vibemq sub --url {own_broker.url} orders").wait_for()
    lines = page.locator("pre", has_text="vibemq sub").inner_text().splitlines()

    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Queues").click()
    page.get_by_role("button", name="Create queue", exact=True).click()
    page.get_by_label("Name", exact=True).fill("orders")
    page.get_by_role("dialog").get_by_role("button", name="Create queue").click()
    page.get_by_role("heading", name="orders").wait_for()
    page.get_by_role("heading", name="Nobody consumes from this queue").wait_for()
    consume = page.locator("pre", has_text="mq.subscribe").inner_text()

    page.get_by_role("button", name="Publish", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Body", exact=True).fill('{"id": 9007199254740993}')
    dialog.get_by_text("It is valid JSON.").wait_for()
    dialog.get_by_role("button", name="Publish message").click()
    dialog.get_by_text("Published and confirmed").wait_for()
    dialog.get_by_role("button", name="Close", exact=True).first.click()
    # What the page tells to run; a message is left for what follows.
    exec(consume.replace("message.ack()", "message.release(); break"), {})

    page.get_by_role("link", name="Messages", exact=True).click()
    page.get_by_role("link", name="1", exact=True).click()
    page.get_by_role("heading", name="Message 1").wait_for()
    page.get_by_role("region", name="Body").get_by_text("9007199254740993").wait_for()

    sub = next(line for line in lines if line.startswith("vibemq sub"))
    run(f"{sub} --count 1 --reject 'no such article'")
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Dead letters").click()
    page.get_by_role("link", name=re.compile("no such article")).first.click()
    page.get_by_role("button", name=re.compile("^Replay all 1")).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name=re.compile("Replay 1 letter to orders")).click()
    page.get_by_text(re.compile("1 of 1 letter")).wait_for()
    assert "9007199254740993" in run(f"{sub} --count 1")
    with vibemq.sync.connect(own_broker.url) as mq:
        info = mq.queue_info("orders")
        assert info is not None
        assert (info.ready, info.in_flight, info.dead) == (0, 0, 0)


def test_options_are_changed_with_a_diff_and_a_race_is_a_question(own_broker: ServedBroker, opened: Opener) -> None:
    with vibemq.sync.connect(own_broker.url) as mq:
        mq.create_queue("raced")
        page = opened(own_broker.origin)
        page.goto(f"{own_broker.console}queue?queue=raced&tab=options")
        page.get_by_role("button", name="Change options").click()
        assert page.get_by_label("retention").is_disabled()
        page.get_by_label("max_attempts").fill("7")
        page.get_by_label("ack_timeout_ms").fill("2m")
        page.get_by_text("ack_timeout_ms: 30 s").wait_for()
        mq.change_queue("raced", max_attempts=5)
        page.get_by_role("button", name="Change 2 options…").click()
        page.get_by_role("dialog").get_by_role("button", name="Change 2 options").click()
        page.get_by_role("heading", name="The options have been changed meanwhile").wait_for()
        page.get_by_role("button", name="Mine, on top of theirs").click()
        page.get_by_role("button", name="Change 2 options…").click()
        page.get_by_role("dialog").get_by_role("button", name="Change 2 options").click()
        page.get_by_role("button", name="Change options", exact=True).wait_for()
        info = mq.queue_info("raced")
        assert info is not None
        assert (info.options.max_attempts, info.options.ack_timeout_ms) == (7, 120_000)


def test_a_purge_tells_the_number_and_is_refused_when_there_are_more_by_then(
    own_broker: ServedBroker, opened: Opener
) -> None:
    with vibemq.sync.connect(own_broker.url) as mq:
        mq.create_queue("purged")
        mq.publish("purged", "one")
        page = opened(own_broker.origin)
        page.goto(f"{own_broker.console}queue?queue=purged")
        page.get_by_role("button", name="Purge messages…").click()
        mq.publish("purged", "another")
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Type").fill("1")
        dialog.get_by_role("button", name="Purge 1 message").click()
        dialog.get_by_role("alert").wait_for()
        info = mq.queue_info("purged")
        assert info is not None
        assert info.ready == 2
        page.keyboard.press("Escape")
        page.get_by_role("definition").filter(has_text=re.compile("^2$")).first.wait_for()
        page.get_by_role("button", name="Purge messages…").click()
        dialog.get_by_label("Type").fill("2")
        dialog.get_by_role("button", name="Purge 2 messages").click()
        page.get_by_text("Purged 2 messages.").wait_for()


def test_a_queue_is_made_found_and_opened_without_a_mouse(own_broker: ServedBroker, opened: Opener) -> None:
    page = opened(own_broker.origin)
    press = page.keyboard.press
    page.goto(own_broker.console)
    page.get_by_role("heading", name="Overview").wait_for()
    press("Tab")
    assert page.get_by_role("link", name="Skip to the content").evaluate("(link) => link === document.activeElement")
    go(page, "q", "Queues")
    button = page.get_by_role("button", name="Create queue", exact=True)
    button.focus()
    press("Enter")
    page.get_by_role("dialog").wait_for()
    page.keyboard.type("keys")
    press("Escape")
    page.get_by_role("dialog").wait_for(state="hidden")
    assert button.evaluate("(button) => button === document.activeElement")
    press("Enter")
    page.keyboard.type("keys")
    press("Enter")
    page.get_by_role("heading", name="keys").wait_for()
    go(page, "q", "Queues")
    press("/")
    page.keyboard.type("key")
    page.wait_for_url("**name=key")
    press("Escape")
    page.get_by_role("heading", name="Queues", exact=True).click()
    page.get_by_role("link", name="keys", exact=True).wait_for()
    press("j")
    press("Enter")
    page.get_by_role("heading", name="keys").wait_for()
    press("?")
    page.get_by_role("dialog", name="Keys").wait_for()


def test_new_messages_are_shown_as_they_come_and_leave_no_consumer(own_broker: ServedBroker, opened: Opener) -> None:
    with vibemq.sync.connect(own_broker.url) as mq:
        mq.create_queue("tailed")
        page = opened(own_broker.origin)
        page.goto(f"{own_broker.console}queue?queue=tailed&tab=tail")
        page.get_by_text("Following").wait_for()
        mq.publish("tailed", "hello, operator")
        page.get_by_role("list", name="New messages").get_by_text("hello, operator").wait_for()
        info = mq.queue_info("tailed")
        assert info is not None
        assert (info.consumers, info.ready, [group.name for group in info.groups]) == (0, 1, [""])


def test_a_page_goes_on_when_its_broker_was_started_anew(tmp_path: Any, opened: Opener) -> None:
    with ServedBroker(tmp_path) as broker:
        page = opened(broker.origin)
        page.goto(f"{broker.console}queues?sort=-ready")
        page.get_by_role("heading", name="Queues", exact=True).wait_for()
        broker.kill()
        page.get_by_text("has not answered for").wait_for()
        broker.start_again()
        page.get_by_text("has not answered for").wait_for(state="hidden")
        assert page.url == f"{broker.console}queues?sort=-ready"
        with vibemq.sync.connect(broker.url) as mq:
            mq.create_queue("made-afterwards")
        page.get_by_role("link", name="made-afterwards").wait_for()


def test_a_new_start_is_marked_in_the_charts_of_an_open_page(tmp_path: Any, opened: Opener) -> None:
    with ServedBroker(tmp_path) as broker:
        with vibemq.sync.connect(broker.url) as mq:
            mq.create_queue("charted")
        page = opened(broker.origin)
        page.add_init_script(COUNT_MARKS)
        page.goto(broker.console)
        marks = partial(page.evaluate, "() => document.querySelector('canvas')?.marks")
        wait_until(lambda: marks() == 1)
        broker.stop()
        broker.start_again()
        wait_until(lambda: marks() == 2)


def test_what_died_is_an_alert_that_leads_to_the_letters_and_a_check(own_broker: ServedBroker, opened: Opener) -> None:
    with vibemq.sync.connect(own_broker.url) as mq:
        mq.create_queue("failing")
        # More than died in other queues: the worst one has a sentence of its own.
        mq.publish_many("failing", ["broken"] * 5)
        for message in mq.fetch("failing", max=5, timeout=30):
            message.reject("it is broken")
    page = opened(own_broker.origin)
    page.goto(own_broker.console)
    alert = page.get_by_role("status").locator(
        "p", has_text="became dead letters in the last 15 minutes in queue failing"
    )
    alert.get_by_role("link", name="Show the dead letters").click()
    page.wait_for_url("**/dead-letters?queue=failing")
    page.goto(f"{own_broker.console}broker")
    check = page.get_by_role("row").filter(has_text="in queue failing")
    check.get_by_role("link", name="failing", exact=True).click()
    page.wait_for_url("**/dead-letters?queue=failing")


def test_a_name_is_checked_while_it_is_typed(own_broker: ServedBroker, opened: Opener) -> None:
    page = opened(own_broker.origin)
    page.goto(f"{own_broker.console}queues")
    page.get_by_role("button", name=re.compile("^Create (a )?queue$")).first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name", exact=True).fill("eu:orders")
    dialog.get_by_role("alert").get_by_text("The character : is not allowed.").wait_for()
    assert dialog.get_by_role("button", name="Create queue").is_disabled()
    dialog.get_by_label("Name", exact=True).fill("eu.orders")
    assert dialog.get_by_role("alert").count() == 0
    assert dialog.get_by_role("button", name="Create queue").is_enabled()


def test_a_choice_counts_whatever_the_brokers_defaults_are(tmp_path: Path, opened: Opener) -> None:
    with ServedBroker(tmp_path, '[queue_defaults]\ndurability = "async"\nmax_attempts = 7\n') as broker:
        page = opened(broker.origin)
        page.goto(f"{broker.console}queues")
        page.get_by_role("button", name=re.compile("^Create (a )?queue$")).first.click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Name", exact=True).fill("chosen")
        durability = dialog.get_by_label("durability")
        assert (durability.input_value(), dialog.get_by_label("max_attempts").input_value()) == ("async", "7")
        durability.select_option("strong")
        dialog.get_by_role("button", name="Create queue").click()
        page.get_by_role("heading", name="chosen").wait_for()
        page.goto(f"{broker.console}queue?queue=chosen&tab=options")
        row = page.get_by_role("row").filter(has=page.get_by_text("durability", exact=True))
        row.wait_for()
        assert row.get_by_role("cell").all_inner_texts()[:2] == ["strong", "async"]


def test_options_are_told_in_words_and_a_purge_is_found(own_broker: ServedBroker, opened: Opener) -> None:
    with vibemq.sync.connect(own_broker.url) as mq:
        mq.create_queue("worded")
    page = opened(own_broker.origin)
    page.goto(f"{own_broker.console}queue?queue=worded&tab=options")
    page.get_by_role("columnheader", name="Meaning", exact=True).first.wait_for()
    row = page.get_by_role("row").filter(has_text="When it is full")
    assert row.get_by_role("cell").first.inner_text() == "drop newest"
    page.get_by_role("link", name="Purge or delete…").click()
    page.get_by_role("button", name="Delete queue…").wait_for()
    assert page.get_by_role("button", name="Delete queue…").evaluate("(button) => button === document.activeElement")


def test_the_audit_has_times_pairs_reasons_and_links(own_broker: ServedBroker, opened: Opener) -> None:
    with vibemq.sync.connect(own_broker.url) as mq:
        mq.create_queue("audited", max_attempts=7)
    page = opened(own_broker.origin, size="small")
    page.goto(f"{own_broker.console}audit?queue=audited&within=hour")
    # Each record is a card.
    record = page.locator("tr", has_text="queue.create").first
    record.get_by_role("link", name="audited").wait_for()
    assert record.evaluate("(row) => getComputedStyle(row).display") == "block"
    assert "max attempts" in record.inner_text()
    assert "{" not in record.locator("dl").inner_text()
    # The header is one line.
    assert page.locator(".top").evaluate("(top) => top.offsetHeight") < 60
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_queue_shows_its_limit_and_warns_before_it_is_full(own_broker: ServedBroker, opened: Opener) -> None:
    with vibemq.sync.connect(own_broker.url) as mq:
        mq.create_queue("near", max_messages=10)
        for number in range(9):
            mq.publish("near", str(number))
        page = opened(own_broker.origin)
        page.goto(f"{own_broker.console}queue?queue=near")
        page.get_by_role("definition").filter(has_text=re.compile(r"^9\s+of 10$")).wait_for()
        page.get_by_text(f"vibemq sub --url={own_broker.url} -- near", exact=True).wait_for()
        page.get_by_text(f'with vibemq.sync.connect("{own_broker.url}") as mq:').wait_for()
        page.goto(own_broker.console)
        page.get_by_text("Queue near is 90% full").wait_for(state="attached")
        mq.delete_queue("near")


def test_a_queue_that_is_not_there_is_created_and_takes_no_message_before(
    own_broker: ServedBroker, opened: Opener
) -> None:
    page = opened(own_broker.origin)
    page.goto(f"{own_broker.console}queue?queue=not-there")
    page.get_by_role("heading", name="There is no queue of this name").wait_for()
    assert page.get_by_role("button", name="Publish").count() == 0
    assert page.get_by_role("link", name="All queues").is_visible()
    page.get_by_role("button", name="Create this queue").click()
    dialog = page.get_by_role("dialog", name="Create a queue")
    assert dialog.get_by_label("Name").input_value() == "not-there"
    dialog.get_by_role("button", name="Create queue").click()
    page.get_by_role("button", name="Publish", exact=True).wait_for()


def test_who_may_not_create_a_queue_that_is_not_there_is_led_back(closed_broker: ServedBroker, opened: Opener) -> None:
    page = opened(closed_broker.origin)
    page.goto(f"{closed_broker.console}login?then=queue%3Fqueue%3Dorders-not-there")
    page.get_by_label("User").fill("reader")
    page.get_by_label("Password", exact=True).fill("a reader's")
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("heading", name="There is no queue of this name").wait_for()
    assert page.get_by_role("button", name=re.compile("Publish|Create")).count() == 0
    page.get_by_role("link", name="All queues").click()
    page.get_by_role("heading", name="Queues", exact=True).wait_for()
