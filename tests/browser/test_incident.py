"""From the alarm to the end of a replay, as somebody goes who has never seen the console."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vibemq.sync
from tests.browser.brokers import ServedBroker
from tests.browser.seed import PASSWORD
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

Opener = Callable[..., Any]


SESSIONS: dict[tuple[str, str], list[Any]] = {}
"""Cookies of (origin, user): a log-in hashes a password, which is slow on purpose."""


def enter(page: Any, broker: ServedBroker, place: str, user: str = "root", password: str = "correct horse") -> None:
    """Open a page of the console as a user; the first time by the log-in page."""
    known = SESSIONS.get((broker.origin, user))
    if known is not None:
        page.context.add_cookies(known)
    page.goto(f"{broker.console}{place}")
    if known is None:
        page.get_by_label("User").fill(user)
        page.get_by_label("Password", exact=True).last.fill(password)
        page.get_by_role("button", name="Log in").click()
    page.wait_for_url(lambda url: "/login" not in url)
    page.locator("#main h1").first.wait_for()
    SESSIONS[broker.origin, user] = page.context.cookies()


def admin(broker: ServedBroker, operation: str, **arguments: Any) -> Any:
    with vibemq.sync.connect(broker.url) as mq:
        return mq.admin(operation, **arguments)


def consume(broker: ServedBroker, queue: str, count: int) -> None:
    with vibemq.sync.connect(broker.url) as mq:
        while count:
            for message in mq.fetch(queue, max=count):
                message.ack()
                count -= 1


def dead_in(broker: ServedBroker, queue: str) -> int:
    with vibemq.sync.connect(broker.url) as mq:
        info = mq.queue_info(queue)
        assert info is not None
        return info.dead


def test_what_died_why_and_a_replay_of_ten_with_a_canary_of_five(full_broker: ServedBroker, opened: Opener) -> None:
    page = opened(full_broker.origin)
    enter(page, full_broker, "dead-letters")
    kinds = page.get_by_role("navigation", name="Kinds of dead letters")
    kinds.get_by_role("link", name=re.compile("TimeoutError")).click()
    page.get_by_text("250 letters fit").wait_for()
    page.get_by_role("link", name=re.compile(r"^\d+$")).first.click()
    page.get_by_role("heading", name=re.compile("Why it died: attempts used up")).wait_for()
    assert page.get_by_role("region", name="Error").get_by_text("did not answer within 30 s").is_visible()
    page.get_by_role("navigation", name="Where this is").get_by_role("link", name="Dead letters").click()
    page.get_by_role("button", name="Replay all 250…").click()
    dialog = page.get_by_role("dialog", name="Replay dead letters")
    dialog.get_by_text("no consumer", exact=True).wait_for()
    dialog.get_by_text("payments has no consumer, so the canary cannot pass").wait_for()
    dialog.get_by_role("button", name="Only the first").click()
    # How many go changes no guard: the canary stays, and is said to hold none back.
    assert dialog.get_by_label(re.compile("^Canary: replay 10 letters first")).is_checked()
    dialog.get_by_text("All 10 letters are the canary").wait_for()
    assert dialog.get_by_text("The first 10 of 250 letters, the oldest first").is_visible()
    dialog.get_by_label("Letters of the canary").fill("5")
    dialog.get_by_label("Note, for the audit").fill("the gateway is up again")
    replay = dialog.get_by_role("button", name="Replay 10 letters to payments")
    # The job begins, and no answer comes: whoever presses again has the same one.
    page.route("**/api/v1/jobs", lambda route: (route.fetch(), route.abort()))
    replay.click()
    dialog.get_by_role("alert").get_by_text("cannot be reached").wait_for()
    page.unroute("**/api/v1/jobs")
    replay.click()
    page.get_by_role("heading", name=re.compile("Replay · job")).wait_for()
    jobs = admin(full_broker, "job.list", limit=100)["jobs"]
    assert [job["note"] for job in jobs].count("the gateway is up again") == 1
    # Nobody consumes the canary yet: what the eye meets is its queue, and no way around the canary.
    page.get_by_text("payments has no consumer, so the canary cannot pass.").wait_for()
    assert page.locator(".title .button.main").all_text_contents() == ["Look at queue payments"]
    assert page.get_by_role("button", name="Go on without the canary…").get_attribute("class") == "button slim"
    assert page.get_by_text("the other 5 letters go at once, though nobody knows yet").is_visible()
    assert page.get_by_text("5 of 10 letters").is_visible()
    consume(full_broker, "payments", 5)
    page.get_by_text("Done. 10 letters were replayed, as many as were asked for.").wait_for()
    page.get_by_text("5 messages wait in payments, and it has no consumer.").wait_for()
    consume(full_broker, "payments", 5)
    assert page.get_by_text("10 of 10 letters").is_visible()
    assert dead_in(full_broker, "payments") == 330
    page.get_by_text("Nothing waits in payments any more: all left it.").wait_for()
    page.get_by_role("button", name="Replay what is left…").click()
    page.get_by_text(re.compile(r"Job \d+ has replayed 10 letters, and 240 are left of the 250")).wait_for()
    page.keyboard.press("Escape")
    page.goto(f"{full_broker.console}jobs")
    page.get_by_role("row", name=re.compile("done.*Replay.*payments")).wait_for()


def test_the_file_of_an_export_is_fetched_and_deleted(full_broker: ServedBroker, opened: Opener) -> None:
    count = dead_in(full_broker, "payments")
    job = admin(full_broker, "job.start", kind="export_dead", filter={"queue": "payments"})["job"]
    page = opened(full_broker.origin)
    enter(page, full_broker, f"job?id={job}")
    page.get_by_text(f"Done. {count} letters are in the file.").wait_for()
    with page.expect_download() as begun:
        page.get_by_role("link", name="Download the file").click()
    assert begun.value.suggested_filename == f"dead-letters-job-{job}.ndjson"
    *letters, tail = Path(begun.value.path()).read_text().splitlines()
    assert (len(letters), json.loads(tail)) == (count, {"count": count, "damaged": 0})
    page.get_by_role("button", name="Delete the file…").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete 1 file").click()
    page.get_by_text("Done. The file was deleted.").wait_for()
    page.get_by_role("button", name="Run the same again…").click()
    page.get_by_role("dialog").get_by_role("button", name="Write a file of all letters that fit").click()
    page.wait_for_url(re.compile(rf"job\?id={int(job) + 1}$"))
    page.get_by_role("link", name="Download the file").wait_for()
    assert dead_in(full_broker, "payments") == count


@pytest.mark.long(
    covered_by="tests/browser/test_incident.py::test_what_died_why_and_a_replay_of_ten_with_a_canary_of_five"
)
def test_a_canary_that_cannot_pass_is_given_up_and_the_rest_goes(full_broker: ServedBroker, opened: Opener) -> None:
    rest = dead_in(full_broker, "emails") - 5
    job = admin(full_broker, "job.start", kind="replay", filter={"queue": "emails"}, canary=5)["job"]
    wait_until(lambda: admin(full_broker, "job.show", job=job)["done"] == 5)
    page = opened(full_broker.origin)
    enter(page, full_broker, f"job?id={job}")
    page.get_by_text("emails has no consumer, so the canary cannot pass.").wait_for()
    page.get_by_role("button", name="Go on without the canary…").click()
    page.get_by_role("dialog").get_by_role("button", name=f"Replay {rest} letters without a canary").click()
    page.get_by_text(f"Done. {rest} letters were replayed.").wait_for()
    assert admin(full_broker, "job.show", job=job)["state"] == "cancelled"
    assert dead_in(full_broker, "emails") == 0


def test_a_job_is_slowed_paused_and_cancelled_while_it_runs(full_broker: ServedBroker, opened: Opener) -> None:
    job = admin(full_broker, "job.start", kind="replay", filter={"queue": "invoices"}, rate=0.1)["job"]
    page = opened(full_broker.origin)
    enter(page, full_broker, f"job?id={job}")
    page.get_by_text("0.1 per second").wait_for()
    rate = page.get_by_label("Letters per second, at most, as a number; empty: no limit")
    rate.fill("1")
    rate.press("Tab")
    wait_until(lambda: admin(full_broker, "job.show", job=job)["rate"] == 1)
    # Text that is no rate stays until it is mended, or the slider says what is meant.
    rate.fill("often")
    rate.press("Tab")
    page.get_by_text("is no rate: give a number from 0.1 to 1000000").wait_for()
    assert rate.input_value() == "often"
    page.get_by_role("slider", name="Letters per second, at most").fill("10")
    wait_until(lambda: admin(full_broker, "job.show", job=job)["rate"] == 3)
    assert rate.input_value() == "3"
    assert page.get_by_text("is no rate").count() == 0
    page.get_by_role("button", name="Pause", exact=True).first.click()
    page.get_by_text("The job is paused").wait_for()
    done = admin(full_broker, "job.show", job=job)["done"]
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("button", name=re.compile("Cancel and leave")).click()
    page.get_by_text("cancelled", exact=True).first.wait_for()
    assert admin(full_broker, "job.show", job=job)["state"] == "cancelled"
    assert dead_in(full_broker, "invoices") == 100 - done
    assert page.get_by_role("button", name="Pause").count() == 0


@pytest.mark.long(covered_by="tests/browser/test_incident.py::test_a_job_is_slowed_paused_and_cancelled_while_it_runs")
def test_a_rate_that_is_being_typed_is_not_taken_away_by_newer_figures(
    full_broker: ServedBroker, opened: Opener
) -> None:
    job = admin(full_broker, "job.start", kind="replay", filter={"queue": "invoices"}, rate=0.1, limit=90)["job"]
    page = opened(full_broker.origin)
    enter(page, full_broker, f"job?id={job}")
    rate = page.get_by_label("Letters per second, at most, as a number; empty: no limit")
    rate.fill("2")
    for _ in range(3):
        with page.expect_response(lambda response: response.url.endswith(f"/jobs/{job}")):
            pass
    admin(full_broker, "job.change", job=job, rate=1)
    page.get_by_text("1 per second", exact=True).wait_for()
    assert rate.input_value() == "2"
    for wrong in ("many", "0.05", "1e9"):
        rate.fill(wrong)
        rate.press("Tab")
        page.get_by_text("is no rate: give a number from 0.1 to 1000000").wait_for()
        assert rate.input_value() == wrong
        assert admin(full_broker, "job.show", job=job)["rate"] == 1
    for wanted in (2, 0.5):
        rate.fill(str(wanted))
        rate.press("Tab")
        wait_until(lambda wanted=wanted: admin(full_broker, "job.show", job=job)["rate"] == wanted)
        assert page.get_by_text("is no rate").count() == 0
    admin(full_broker, "job.change", job=job, state="cancelled")


def test_a_letter_is_edited_and_its_changes_are_shown_before_it_goes(full_broker: ServedBroker, opened: Opener) -> None:
    letter = admin(full_broker, "dlq.list", queue="orders.us", limit=1)["letters"][0]
    page = opened(full_broker.origin)
    enter(page, full_broker, f"letter?id={letter['dead_id']}&queue=orders.us")
    page.get_by_role("button", name="Edit and replay…").click()
    dialog = page.get_by_role("dialog", name=re.compile("Edit and replay"))
    body = dialog.get_by_label("Body")
    before = body.input_value()
    body.fill(before[:-1])
    dialog.get_by_role("alert").get_by_text("What died was JSON, and this is broken").wait_for()
    dialog.get_by_role("button", name="Review the changes").click()
    dialog.get_by_role("alert").get_by_text("The body is no valid JSON any more").wait_for()
    dialog.get_by_role("button", name="Back to editing").click()
    body.fill(before)
    dialog.get_by_role("button", name="Review: nothing is changed yet").click()
    dialog.get_by_text("Nothing is changed: the message goes exactly as it died.").wait_for()
    dialog.get_by_role("button", name="Back to editing").click()
    body.fill(before.replace("Lange Reihe 12", "Neuer Wall 1"))
    dialog.get_by_role("button", name="Add a header").click()
    dialog.get_by_label("Name of header 3").fill("repaired")
    dialog.get_by_label("Value of header 3").fill("by hand")
    # The second click is none on the button that comes into this one's place.
    dialog.get_by_role("button", name="Review the changes").dblclick()
    dialog.get_by_role("heading", name="What will change").and_(page.locator(":focus")).wait_for()
    changes = dialog.get_by_role("region", name="Changes of the body")
    assert changes.get_by_text("Neuer Wall 1").is_visible()
    assert changes.get_by_text("Lange Reihe 12").is_visible()
    assert dialog.get_by_text("repaired: by hand").is_visible()
    dialog.get_by_role("button", name="Replay 1 edited letter to orders.us").click()
    sent = page.get_by_role("status").get_by_role("link", name=re.compile(r"message \d+"))
    assert "message?queue=orders.us&sequence=" in sent.get_attribute("href")
    back = page.get_by_role("link", name="Back to the dead letters").get_attribute("href")
    assert back == "./dead-letters?queue=orders.us"
    page.reload()
    page.get_by_role("heading", name=re.compile("is not here any more")).wait_for()
    with vibemq.sync.connect(full_broker.url) as mq:
        [message] = mq.fetch("orders.us")
        message.ack()
    assert message.payload.decode() == before.replace("Lange Reihe 12", "Neuer Wall 1")
    assert (message.headers["repaired"], message.headers["vibemq-edited"]) == ("by hand", "payload,headers")
    assert message.headers["vibemq-replay-of"] == str(letter["dead_id"])


def test_a_purge_is_refused_when_more_letters_fit_than_were_shown(full_broker: ServedBroker, opened: Opener) -> None:
    page = opened(full_broker.origin)
    enter(page, full_broker, "dead-letters?queue=webhooks")
    page.get_by_role("button", name="Purge all 30…").click()
    dialog = page.get_by_role("dialog", name="Purge 30 dead letters?")
    dialog.get_by_role("link", name="Export 30 first").wait_for()
    button = dialog.get_by_role("button", name="Purge 30 letters")
    assert button.is_disabled()
    with vibemq.sync.connect(full_broker.url) as mq:
        mq.publish("webhooks", b"one more")
        [message] = mq.fetch("webhooks")
        message.reject("HTTPError: 503 from hook 9 after 9 s")
        mq.ping()
    dialog.get_by_label(re.compile("to confirm")).fill("30")
    button.click()
    dialog.get_by_role("alert").get_by_text("PRECONDITION_FAILED").wait_for()
    assert dead_in(full_broker, "webhooks") == 31
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    page.reload()
    page.get_by_role("button", name="Purge all 31…").click()
    dialog = page.get_by_role("dialog", name="Purge 31 dead letters?")
    dialog.get_by_label(re.compile("to confirm")).fill("31")
    dialog.get_by_role("button", name="Purge 31 letters").click()
    page.get_by_text("31 of 31 letters").wait_for()
    wait_until(lambda: dead_in(full_broker, "webhooks") == 0)


def test_letters_of_which_only_some_could_be_counted_are_replayed_all_the_same(
    full_broker: ServedBroker, opened: Opener
) -> None:
    """As with a filter by header over very many letters: the broker says how many there are at least."""
    page = opened(full_broker.origin)
    partly = {"count": 2, "count_max": 1_900, "exact": False}
    page.route(
        "**/dead-letters/preview",
        lambda route: (lambda found: route.fulfill(response=found, json=found.json() | partly))(route.fetch()),
    )
    enter(page, full_broker, "dead-letters?queue=orders.asia&error=e")
    page.get_by_role("button", name="Purge all that fit…").click()
    dialog = page.get_by_role("dialog", name="Purge 2 to 1,900 dead letters?")
    dialog.get_by_text("Every letter that fits is purged, and never more than 1,900.").wait_for()
    dialog.get_by_label(re.compile("to confirm")).fill("1900")
    page.route("**/api/v1/jobs", lambda route: route.abort())
    with page.expect_request("**/api/v1/jobs") as sent:
        dialog.get_by_role("button", name="Purge at most 1,900 letters").click()
    assert (sent.value.post_data_json.get("at_most"), sent.value.post_data_json["limit"]) == (None, 1_900)
    dialog.get_by_role("alert").get_by_text("cannot be reached").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Replay all that fit…").click()
    dialog = page.get_by_role("dialog")
    with page.expect_request("**/api/v1/jobs") as sent:
        dialog.get_by_role("button", name="Replay all that fit to orders.asia").click()
    assert "at_most" not in sent.value.post_data_json


def test_more_kinds_of_errors_than_one_page_has_are_told_and_found(full_broker: ServedBroker, opened: Opener) -> None:
    page = opened(full_broker.origin)

    def as_one_page_of_many(route: Any) -> None:
        found = route.fetch()
        if "queue=" in route.request.url:
            route.fulfill(response=found)
            return
        told = found.json()
        route.fulfill(response=found, json=told | {"items": told["items"][:1], "next": "more"})

    page.route("**/dead-letters/groups?*", as_one_page_of_many)
    enter(page, full_broker, "dead-letters")
    page.get_by_text(re.compile("^More than .* dead letters in 1 queue, of 1 kind of error and others")).wait_for()
    groups = page.get_by_role("navigation", name="Kinds of dead letters")
    page.get_by_label("Queue", exact=True).fill("payments")
    page.keyboard.press("Enter")
    for kind in ("TimeoutError: https", "CardDeclined: card"):
        groups.get_by_role("link", name=re.compile(kind)).wait_for()


def test_who_may_inspect_some_queues_opens_their_letters(full_broker: ServedBroker, opened: Opener) -> None:
    """From the list of all that one may see, and from one letter to the next."""
    admin(full_broker, "user.add", user="una", password=PASSWORD)
    admin(full_broker, "user.grant", user="una", queues="orders.us", actions=["inspect"])
    page = opened(full_broker.origin)
    enter(page, full_broker, "dead-letters", "una", PASSWORD)
    page.get_by_role("link", name=re.compile(r"^\d+$")).first.click()
    for _ in range(2):
        page.get_by_role("heading", name=re.compile("Why it died")).wait_for()
        with page.expect_download() as body:
            page.get_by_role("link", name="Download", exact=True).click()
        assert body.value.path().read_bytes()
        page.get_by_role("link", name="Older").click()
    page.get_by_role("heading", name=re.compile("Why it died")).wait_for()
    admin(full_broker, "user.remove", user="una")


def test_a_limited_user_sees_its_queues_and_no_button_that_would_be_refused(
    full_broker: ServedBroker, opened: Opener
) -> None:
    page = opened(full_broker.origin)
    enter(page, full_broker, "dead-letters", "ben", PASSWORD)
    kinds = page.get_by_role("navigation", name="Kinds of dead letters")
    kinds.get_by_role("link", name=re.compile("ArticleMissing")).click()
    page.get_by_text("340 letters fit").wait_for()
    buttons = [button.inner_text() for button in page.get_by_role("button").all()]
    assert not [text for text in buttons if re.search("Replay|Purge", text)], buttons
    page.get_by_role("link", name=re.compile(r"^\d+$")).first.click()
    page.get_by_role("heading", name=re.compile("Why it died")).wait_for()
    assert page.get_by_role("button", name=re.compile("Replay|Purge|Edit")).count() == 0
    for place, told in (("broker", "This page is for superusers"), ("access", "What I may")):
        page.goto(f"{full_broker.console}{place}")
        page.get_by_text(told).wait_for()
    with vibemq.sync.connect(
        f"vibemq://127.0.0.1:{full_broker.port}", username="ben", password=PASSWORD, name="of ben"
    ):
        page.goto(f"{full_broker.console}connections")
        page.get_by_role("row", name=re.compile("of ben")).wait_for()
        page.get_by_role("columnheader", name="Not reading since").wait_for()
        assert page.get_by_role("row").count() == 2, "the head, and ben's own connection"
        page.get_by_role("link", name="of ben").click()
        page.get_by_role("heading", name="Connection of of ben").wait_for()
        page.get_by_text("It consumes nothing.").wait_for()
        page.get_by_role("button", name="Close…").click()
        page.get_by_role("dialog").get_by_role("button", name="Close 1 connection").click()
        page.get_by_text("The connection is closed.").wait_for()
        page.get_by_role("heading", name="This connection has gone").wait_for()
    # The cursor is not ben's own: only who may manage those of others moves it.
    for actions, buttons in ((["subscribe"], 0), (["subscribe", "manage"], 1)):
        admin(full_broker, "user.grant", user="ben", queues="clicks", actions=actions)
        page.goto(f"{full_broker.console}cursors")
        page.get_by_role("button", name="spark-archive").click()
        page.get_by_role("heading", name=re.compile("Cursor spark-archive")).wait_for()
        assert page.get_by_role("button", name="Seek…").count() == buttons
    admin(full_broker, "user.revoke", user="ben", queues="clicks")


@pytest.mark.long(
    covered_by="tests/browser/test_incident.py::test_a_limited_user_sees_its_queues_and_no_button_that_would_be_refused"
)
def test_somebody_with_rights_on_some_queues_sees_the_letters_of_these_alone(
    full_broker: ServedBroker, opened: Opener
) -> None:
    page = opened(full_broker.origin)
    enter(page, full_broker, "dead-letters", "ann", PASSWORD)
    kinds = page.get_by_role("navigation", name="Kinds of dead letters")
    kinds.get_by_role("link", name=re.compile("^orders")).first.wait_for()
    names = [link.inner_text().split()[0] for link in kinds.locator(".group-name").all()]
    assert sorted(names) == ["orders.asia", "orders.eu", "orders.us"]
    assert "payments" not in page.content()
    page.goto(full_broker.console)
    page.get_by_text("Each queue has its charts").wait_for()
    page.goto(f"{full_broker.console}dead-letters")
    kinds.get_by_role("link", name=re.compile("^orders.asia")).click()
    page.get_by_role("button", name="Replay all 12…").wait_for()
