"""Logging in and out, and the way back to where one wanted to be."""

import base64
import re
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vibemq.sync
from tests.browser.brokers import ServedBroker
from tests.integration.conditions import run

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

Opener = Callable[..., Any]


def log_in(page: Any, user: str = "root", password: str = "correct horse") -> None:
    page.get_by_label("User").fill(user)
    page.get_by_label("Password", exact=True).last.fill(password)
    page.get_by_role("button", name="Log in").click()


def end_sessions(broker: ServedBroker) -> None:
    """Those of root, from elsewhere."""
    request = urllib.request.Request(f"{broker.origin}/api/v1/session?everywhere=true", method="DELETE")
    request.add_header("Authorization", "Basic " + base64.b64encode(b"root:correct horse").decode())
    urllib.request.urlopen(request, timeout=60).close()


def test_a_deep_link_leads_through_the_login_to_its_page(closed_broker: ServedBroker, opened: Opener) -> None:
    page = opened(closed_broker.origin)
    page.goto(f"{closed_broker.console}queues?name=ord&sort=-ready")
    page.get_by_role("heading", name="Log in").wait_for()
    log_in(page)
    page.get_by_role("heading", name="Queues", exact=True).wait_for()
    assert page.url == f"{closed_broker.console}queues?name=ord&sort=-ready"


def test_a_broker_with_one_token_is_no_open_one(tmp_path: Path, opened: Opener) -> None:
    with ServedBroker(tmp_path, '[http]\ntoken = "sesame-long-token"\n') as broker:
        page = opened(broker.origin)
        page.goto(f"{broker.console}access")
        page.get_by_role("button", name="Access token").click()
        page.locator("input[name=secret]").fill("sesame-long-token")
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("heading", name="This broker has one token and no users").wait_for()
        page.goto(f"{broker.console}queues")
        page.locator("details.command summary").first.click()
        page.get_by_text("Authorization: Bearer $VIBEMQ_ACCESS_TOKEN").first.wait_for()
        page.get_by_text("token", exact=True).click()
        page.get_by_role("button", name="Log out", exact=True).click()
        page.get_by_role("heading", name="Log in").wait_for()


def test_a_wrong_password_is_told_in_a_sentence_and_the_right_one_then_lets_in(
    closed_broker: ServedBroker, opened: Opener
) -> None:
    page = opened(closed_broker.origin)
    page.goto(f"{closed_broker.console}login")
    log_in(page, password="a guess")
    page.get_by_role("alert").get_by_text("User name or password is wrong").wait_for()
    assert "a guess" not in page.content()
    log_in(page)
    page.get_by_role("navigation", name="Pages", exact=True).wait_for()


def test_one_logs_in_and_adds_a_user_by_typing_alone(closed_broker: ServedBroker, opened: Opener) -> None:
    page = opened(closed_broker.origin)
    page.goto(f"{closed_broker.console}login?then=access%3Ftab%3Dusers")
    page.locator("input[name=user]:focus").wait_for()
    for text in ("root", "correct horse"):
        page.keyboard.type(text)
        page.keyboard.press("Tab" if text == "root" else "Enter")
    page.get_by_role("button", name="Add a user…").click()
    dialog = page.get_by_role("dialog", name="Add a user")
    dialog.wait_for()
    page.keyboard.type("typed")
    assert dialog.get_by_label("Name").input_value() == "typed"
    page.keyboard.press("Escape")


def test_logging_out_ends_the_session_and_the_next_request_leads_to_the_login(
    closed_broker: ServedBroker, opened: Opener
) -> None:
    page = opened(closed_broker.origin)
    page.goto(f"{closed_broker.console}login")
    log_in(page)
    page.get_by_role("button", name="root").click()
    cookies = page.context.cookies()
    assert [(cookie["httpOnly"], cookie["sameSite"]) for cookie in cookies] == [(True, "Strict")]
    page.get_by_role("button", name="Log out", exact=True).click()
    page.get_by_role("heading", name="Log in").wait_for()
    page.goto(f"{closed_broker.console}queues")
    page.get_by_role("heading", name="Log in").wait_for()


def test_who_could_not_be_logged_out_is_told_so_and_logs_out_everywhere_then(
    closed_broker: ServedBroker, opened: Opener
) -> None:
    page = opened(closed_broker.origin)
    page.goto(f"{closed_broker.console}login?then=queues")
    log_in(page)
    page.get_by_role("heading", name="Queues", exact=True).wait_for()
    page.route("**/api/v1/session*", lambda route: route.abort())
    page.get_by_role("button", name="root").click()
    page.get_by_role("button", name="Log out everywhere").click()
    page.get_by_role("status").get_by_text("You may still be logged in. The broker cannot be reached.").wait_for()
    page.unroute("**/api/v1/session*")
    # In another browser, on a page that is open.
    other = opened(closed_broker.origin)
    other.goto(f"{closed_broker.console}login?then=queues")
    log_in(other)
    other.get_by_role("heading", name="Queues", exact=True).wait_for()
    page.get_by_role("button", name="Log out everywhere").click()
    for each in (page, other):
        each.get_by_role("heading", name="Log in").wait_for()


def test_a_session_that_has_ended_under_an_open_page_leads_to_the_login_and_back(
    closed_broker: ServedBroker, opened: Opener
) -> None:
    page = opened(closed_broker.origin)
    page.goto(f"{closed_broker.console}queues?name=x")
    log_in(page)
    page.get_by_role("heading", name="Queues", exact=True).wait_for()
    end_sessions(closed_broker)
    page.get_by_role("heading", name="Log in").wait_for()
    log_in(page)
    page.get_by_role("heading", name="Queues", exact=True).wait_for()
    assert page.url == f"{closed_broker.console}queues?name=x"


@pytest.mark.long(
    covered_by="tests/browser/test_login.py::test_a_session_that_has_ended_under_an_open_page_leads_to_the_login_and_back"
)
def test_what_is_being_typed_outlives_the_session(closed_broker: ServedBroker, opened: Opener) -> None:
    page = opened(closed_broker.origin)
    page.goto(f"{closed_broker.console}queues")
    log_in(page)
    page.get_by_role("button", name="Create queue", exact=True).first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox").first.fill("typed-before")
    end_sessions(closed_broker)
    dialog.get_by_role("button", name="Create queue").click()
    dialog.get_by_role("alert").get_by_text("log in", exact=False).wait_for()
    assert dialog.get_by_role("textbox").first.input_value() == "typed-before"
    other = page.context.new_page()
    other.goto(f"{closed_broker.console}login")
    log_in(other)
    other.get_by_role("heading", name="Overview").wait_for()
    dialog.get_by_role("button", name="Create queue").click()
    page.get_by_role("heading", name="typed-before").wait_for()
    other.close()


def test_a_form_within_a_page_and_a_token_that_is_shown_once_outlive_the_session(
    closed_broker: ServedBroker, opened: Opener
) -> None:
    with vibemq.sync.connect(closed_broker.url.replace("vibemq://", "vibemq://root:correct%20horse@")) as mq:
        mq.create_queue("kept-form")
    page = opened(closed_broker.origin)
    page.goto(f"{closed_broker.console}login?then=access%3Ftab%3Dusers%26user%3Dreader")
    log_in(page)
    page.get_by_role("button", name="Make a token…").click()
    page.get_by_role("dialog").get_by_role("button", name="Make a token").click()
    token = page.get_by_role("dialog", name="The token, only this once").get_by_role("region", name="Token")
    token.wait_for()
    end_sessions(closed_broker)
    with page.expect_response("**/api/v1/session"):
        page.evaluate("() => dispatchEvent(new Event('focus'))")
    assert token.inner_text()
    page.get_by_role("button", name="I have it").click()
    page.get_by_role("heading", name="Log in").wait_for()
    page.goto(f"{closed_broker.console}login?then=queue%3Fqueue%3Dkept-form%26tab%3Doptions")
    log_in(page)
    page.get_by_role("button", name="Change options").click()
    page.get_by_role("textbox", name="Most messages max_messages").fill("1234")
    end_sessions(closed_broker)
    page.get_by_role("alert").get_by_text("AUTH_REQUIRED").first.wait_for()
    assert page.get_by_role("textbox", name="Most messages max_messages").input_value() == "1234"
    page.get_by_role("button", name="Leave as it is").click()
    page.get_by_role("heading", name="Log in").wait_for()


def test_the_login_goes_to_pages_of_the_console_alone(closed_broker: ServedBroker, opened: Opener) -> None:
    """All forms of such addresses: tests/browser/node."""
    page = opened(closed_broker.origin)
    page.goto(f"{closed_broker.console}login?then=%2F%2Fevil.example")
    log_in(page)
    page.get_by_role("heading", name="Overview").wait_for()
    assert page.url == closed_broker.console


def test_a_limited_user_sees_no_button_that_would_be_refused(closed_broker: ServedBroker, opened: Opener) -> None:
    page = opened(closed_broker.origin)
    page.goto(f"{closed_broker.console}login?then=queues")
    log_in(page, "reader", "a reader's")
    page.get_by_role("heading", name="Queues", exact=True).wait_for()
    assert page.get_by_role("link", name="Audit").count() == 0
    assert page.get_by_role("button", name="Create queue").count() == 0


def test_a_page_that_is_refused_has_its_heading(closed_broker: ServedBroker, opened: Opener) -> None:
    page = opened(closed_broker.origin)
    page.goto(f"{closed_broker.console}letter?id=1")
    log_in(page, "reader", "a reader's")
    refused = page.get_by_text(re.compile("does not have the permission 'inspect'|Which letter"))
    refused.wait_for()
    assert page.get_by_role("heading", level=1).count() == 1
    for place in ("letter?id=x", "message?queue=other&sequence=1", "queue?queue=other"):
        page.goto(f"{closed_broker.console}{place}")
        refused.wait_for()
        assert page.get_by_role("heading", level=1).count() == 1, place


@pytest.mark.long(covered_by="tests/browser/test_login.py::test_a_page_that_is_refused_has_its_heading")
def test_a_broker_that_does_not_tell_who_is_here_has_a_heading(closed_broker: ServedBroker, opened: Opener) -> None:
    page = opened(closed_broker.origin)
    page.route("**/api/v1/session", lambda route: route.fulfill(status=503, json={"title": "it stops"}))
    page.goto(f"{closed_broker.console}queues")
    page.get_by_role("alert").get_by_text("it stops").wait_for()
    assert page.get_by_role("heading", level=1).all_inner_texts() == ["Queues · VibeMQ"]


def test_the_command_line_opens_a_browser_that_is_logged_in_once(closed_broker: ServedBroker, opened: Opener) -> None:
    url = closed_broker.url.replace("vibemq://", "vibemq://root:correct%20horse@")
    link = run("vibemq", "console", "--print", "--url", url, "--http", closed_broker.origin).out.strip()
    page = opened(closed_broker.origin)
    page.goto(link)
    page.get_by_role("heading", name="Overview").wait_for()
    assert page.url == closed_broker.console
    again = opened(closed_broker.origin)
    again.goto(link)
    again.get_by_role("alert").get_by_text("counts no more").wait_for()
    assert "code=" not in again.url
