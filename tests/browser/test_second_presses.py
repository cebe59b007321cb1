"""Dialogs: what they send is carried out once, what is under way is not taken for cancelled, and what the page shows
meanwhile changes nothing in them."""

import re
from collections.abc import Callable
from typing import Any

import pytest

import vibemq.sync
from tests.browser.brokers import ServedBroker
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

Opener = Callable[..., Any]


def ask_for_a_purge(page: Any, broker: ServedBroker, queue: str, count: int) -> Any:
    """The dialog, with the number typed."""
    with vibemq.sync.connect(broker.url) as mq:
        mq.create_queue(queue)
        mq.publish_many(queue, [b"x"] * count)
    page.goto(f"{broker.console}queue?queue={queue}")
    page.get_by_role("button", name="Purge messages…").click()
    dialog = page.get_by_role("dialog", name=f"Purge {queue}?")
    dialog.get_by_label(re.compile("to confirm")).fill(str(count))
    return dialog


def test_a_purge_whose_answer_is_lost_and_that_is_pressed_again_deletes_nothing_that_came_meanwhile(
    open_broker: ServedBroker, opened: Opener
) -> None:
    page = opened(open_broker.origin)
    dialog = ask_for_a_purge(page, open_broker, "pressed-twice", 5)

    def lose(route: Any) -> None:
        route.fetch()
        route.abort()

    page.route("**/pressed-twice/purge", lose)
    button = dialog.get_by_role("button", name="Purge 5 messages")
    button.click()
    dialog.get_by_role("alert").get_by_text("Whether this was carried out is not known").wait_for()
    page.unroute("**/pressed-twice/purge")
    with vibemq.sync.connect(open_broker.url) as mq:
        mq.publish_many("pressed-twice", [b"y"] * 3)
        button.click()
        page.get_by_role("status").get_by_text("Purged 5 messages.").wait_for()
        dialog.wait_for(state="detached")
        info = mq.queue_info("pressed-twice")
        assert info is not None
        assert info.ready == 3
        mq.delete_queue("pressed-twice")


def test_a_double_click_publishes_one_message(open_broker: ServedBroker, opened: Opener) -> None:
    page = opened(open_broker.origin)
    with vibemq.sync.connect(open_broker.url) as mq:
        mq.create_queue("clicked-twice")
        page.goto(f"{open_broker.console}queue?queue=clicked-twice")
        page.get_by_role("button", name="Publish", exact=True).click()
        dialog = page.get_by_role("dialog", name="Publish to clicked-twice")
        dialog.get_by_role("button", name="Publish message").dblclick()
        dialog.get_by_role("status").get_by_role("link", name="message 1").wait_for()
        dialog.get_by_role("button", name="Publish another").click()
        dialog.get_by_role("status").get_by_role("link", name="message 2").wait_for()
        info = mq.queue_info("clicked-twice")
        assert info is not None
        assert info.ready == 2
        mq.delete_queue("clicked-twice")


def test_a_dialog_whose_request_is_under_way_is_closed_by_its_answer_alone(
    open_broker: ServedBroker, opened: Opener
) -> None:
    page = opened(open_broker.origin)
    dialog = ask_for_a_purge(page, open_broker, "under-way", 2)
    held: list[Any] = []
    page.route("**/under-way/purge", lambda route: held.append(route))
    dialog.get_by_role("button", name="Purge 2 messages").click()
    dialog.get_by_role("status").get_by_text("cannot be called back").wait_for()
    # The second one a browser takes for itself.
    for _ in range(3):
        page.keyboard.press("Escape")
    # It is closed for a moment, until the page hears of that.
    dialog.wait_for()
    assert dialog.get_by_role("button", name="Cancel").is_disabled()
    assert dialog.get_by_role("button", name="Close").is_disabled()
    wait_until(lambda: held)
    held.pop().continue_()
    page.get_by_role("status").get_by_text("Purged 2 messages.").wait_for()
    dialog.wait_for(state="detached")
    with vibemq.sync.connect(open_broker.url) as mq:
        mq.delete_queue("under-way")


def test_what_is_done_to_letters_is_asked_at_once_and_says_which_they_are(
    open_broker: ServedBroker, opened: Opener
) -> None:
    page = opened(open_broker.origin)
    with vibemq.sync.connect(open_broker.url) as mq:
        mq.create_queue("asked-about")
        mq.publish_many("asked-about", [b"x"] * 2)
        for message in mq.fetch("asked-about", max=2):
            message.reject("no such article")
        mq.ping()
    page.goto(f"{open_broker.console}dead-letters?queue=asked-about")
    page.get_by_role("button", name="Replay all 2…").click()
    dialog = page.get_by_role("dialog", name="Replay dead letters")
    dialog.get_by_text("Which letters: queue asked-about.").wait_for()
    page.keyboard.press("Escape")
    held: list[Any] = []
    page.route("**/dead-letters/preview", lambda route: held.append(route))
    page.get_by_role("button", name="Purge all 2…").click()
    dialog = page.get_by_role("dialog", name="Purge dead letters?")
    dialog.get_by_text("Which letters: queue asked-about.").wait_for()
    assert dialog.get_by_role("button", name="Purge", exact=True).is_disabled()
    wait_until(lambda: held)
    held.pop().continue_()
    dialog = page.get_by_role("dialog", name="Purge 2 dead letters?")
    dialog.get_by_label(re.compile("to confirm")).and_(page.locator(":focus")).wait_for()
    assert dialog.get_by_text("Which letters: queue asked-about.").is_visible()
    page.keyboard.type("2")
    page.keyboard.press("Enter")
    page.get_by_text("2 of 2 letters").wait_for()
    with vibemq.sync.connect(open_broker.url) as mq:
        mq.delete_queue("asked-about")


def test_a_connection_that_goes_while_it_is_asked_about_leaves_the_dialog_as_it_is(
    open_broker: ServedBroker, opened: Opener
) -> None:
    page = opened(open_broker.origin)
    with vibemq.sync.connect(open_broker.url, name="about to leave"):
        page.goto(f"{open_broker.console}connections")
        page.get_by_role("link", name="about to leave").click()
        page.get_by_role("button", name="Close…").click()
        dialog = page.get_by_role("dialog", name="Close this connection?")
        dialog.get_by_label("Why; the client is told").fill("tidying up")
    page.get_by_text("This connection has gone").wait_for()
    assert dialog.get_by_label("Why; the client is told").input_value() == "tidying up"


def test_a_message_in_whose_place_another_one_is_by_now_is_not_removed(
    open_broker: ServedBroker, opened: Opener
) -> None:
    page = opened(open_broker.origin)
    with vibemq.sync.connect(open_broker.url) as mq:
        for text in ("seen", "never seen"):
            mq.create_queue("made-again")
            mq.publish("made-again", text)
            if text == "seen":
                page.goto(f"{open_broker.console}message?queue=made-again&sequence=1")
                page.get_by_role("button", name="Remove…").wait_for()
                mq.delete_queue("made-again")
        page.get_by_role("button", name="Remove…").click()
        dialog = page.get_by_role("dialog", name="Remove message 1 of made-again?")
        dialog.get_by_text("It is another message by now").wait_for()
        assert dialog.get_by_role("button", name="Remove 1 message").count() == 0
        dialog.get_by_role("button", name="Close").last.click()
        page.reload()
        page.get_by_role("button", name="Remove…").click()
        dialog.get_by_role("button", name="Remove 1 message").click()
        page.wait_for_url("**/queue?queue=made-again**")
        info = mq.queue_info("made-again")
        assert info is not None
        assert info.ready == 0
        mq.delete_queue("made-again")


def test_a_cursor_that_is_chosen_stays_when_the_list_is_of_others(open_broker: ServedBroker, opened: Opener) -> None:
    page = opened(open_broker.origin)
    with vibemq.sync.connect(open_broker.url) as mq:
        mq.create_queue("read-by-range", mode="broadcast")
        mq.admin("group.join", queue="read-by-range", group="archive")
        page.goto(f"{open_broker.console}cursors?group=another&at=read-by-range%0Aarchive")
        page.get_by_text("No cursor fits this filter").wait_for()
        page.get_by_role("button", name="Change limits…").click()
        dialog = page.get_by_role("dialog", name="Limits of cursor archive")
        dialog.get_by_label("Expires when its oldest message is older than").fill("7d")
        dialog.get_by_role("button", name="Change 1 limit").click()
        page.get_by_text("7 d", exact=True).wait_for()
        mq.delete_queue("read-by-range")
        page.get_by_role("heading", name="Cursor archive of read-by-range").wait_for(state="detached")


def test_a_form_outlives_the_queue_that_it_is_about(open_broker: ServedBroker, opened: Opener) -> None:
    page = opened(open_broker.origin)
    with vibemq.sync.connect(open_broker.url) as mq:
        mq.create_queue("outlived")
        page.goto(f"{open_broker.console}queue?queue=outlived&tab=options")
        page.get_by_role("button", name="Change options").click()
        field = page.get_by_role("textbox", name="Most messages max_messages")
        field.fill("1234")
        mq.delete_queue("outlived")
    page.get_by_role("alert").get_by_text("QUEUE_NOT_FOUND").wait_for()
    assert field.input_value() == "1234"
    page.get_by_role("button", name="Leave as it is").click()
    page.get_by_role("heading", name="There is no queue of this name").wait_for()


def test_a_form_outlives_the_rights_that_its_tab_needs(closed_broker: ServedBroker, opened: Opener) -> None:
    page = opened(closed_broker.origin)
    with vibemq.sync.connect(closed_broker.url.replace("vibemq://", "vibemq://root:correct%20horse@")) as mq:
        mq.admin("user.add", user="deputy", password="a deputy's", superuser=True)
        page.goto(f"{closed_broker.console}login?then=access%3Ftab%3Dusers")
        page.get_by_label("User").fill("deputy")
        page.get_by_label("Password", exact=True).fill("a deputy's")
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("button", name="Add a user…").click()
        field = page.get_by_role("dialog").get_by_label("Name")
        field.fill("typed-before")
        mq.admin("user.change", user="deputy", superuser=False)
        with page.expect_response("**/api/v1/session"):
            page.evaluate("() => dispatchEvent(new Event('focus'))")
        page.get_by_role("link", name="Audit").wait_for(state="detached")
        assert field.input_value() == "typed-before"
        page.keyboard.press("Escape")
        page.get_by_role("heading", name="Who I am").wait_for()
        mq.admin("user.remove", user="deputy")
