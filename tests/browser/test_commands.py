"""The lines that pages show under *Command* are run in a shell, and do what the page or its button does."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import vibemq.sync
from tests.browser.brokers import ServedBroker
from tests.browser.test_incident import admin, dead_in, enter
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

Opener = Callable[..., Any]


@pytest.fixture(scope="module")
def run(full_broker: ServedBroker, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """A shown line in a shell that has what the lines name: the broker's address and an access token."""
    environment = {
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), "/usr/bin", "/bin")),
        "HOME": str(tmp_path_factory.mktemp("home")),
        "VIBEMQ_URL": full_broker.url,
        "VIBEMQ_ACCESS_TOKEN": admin(full_broker, "token.create", user="root", label="commands")["token"],
    }

    def run_line(line: str) -> str:
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, env=environment, timeout=60)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    return run_line


def lines_of(place: Any) -> dict[str, str]:
    """The first line of each kind of what *Command* shows in a part of a page; not of *Export first*."""
    box = place.locator("details.command").filter(has_text=re.compile("^Command")).first
    box.locator("summary").click()
    found: dict[str, str] = {}
    for line in box.locator(".command-line").all():
        found.setdefault(line.locator(".what").inner_text().strip(), line.locator("code").inner_text())
    return found


LISTS = {
    "queues?name=emails&sort=-dead": "emails.newsletter",
    "dead-letters?queue=emails&error=no%20mailbox&newer_than_ms=5400000": "SMTPRefused",
    "dead-letters?queue=orders.asia&replayed=false&order=oldest": "has no licence",
    "letter?id=1": "ArticleMissing",
    "jobs": "",
    "cursors": "spark-archive",
    "connections": "",
    "access?tab=users": "ann",
    "access?tab=who&action=publish&queue=orders.eu": "shop",
    "audit?operation=user.add": "ben",
    "broker": "memory",
    "broker?tab=settings": "history_bytes",
    "broker?tab=listeners": "native",
}
"""Page, and what is on it and in the answers of both of its lines."""


@pytest.mark.long(covered_by="tests/browser/test_commands.py::test_the_lines_of_a_replay_start_the_same_job")
def test_the_lines_of_lists_answer_what_the_pages_show(
    full_broker: ServedBroker, opened: Opener, run: Callable[[str], str]
) -> None:
    page = opened(full_broker.origin)
    enter(page, full_broker, "access")
    for place, known in LISTS.items():
        page.goto(f"{full_broker.console}{place}")
        page.locator("details.command").first.wait_for()
        if known:
            page.get_by_text(known).first.wait_for()
        lines = lines_of(page.locator("main"))
        told = run(lines["CLI"])
        assert known in told, lines["CLI"]
        assert not place.startswith("queues") or "orders.eu" not in told
        answer = run(lines["curl"])
        assert known in answer, lines["curl"]
        assert "urn:vibemq:error" not in answer
        json.loads(answer)


def test_the_lines_of_a_replay_start_the_same_job(
    full_broker: ServedBroker, opened: Opener, run: Callable[[str], str]
) -> None:
    page = opened(full_broker.origin)
    enter(page, full_broker, "dead-letters?queue=orders.us")
    page.get_by_role("button", name=re.compile("^Replay all")).click()
    dialog = page.get_by_role("dialog", name="Replay dead letters")
    dialog.get_by_role("button", name="Only the first").click()
    dialog.get_by_label("Letters", exact=True).fill("2")
    dialog.get_by_label("Letters per second, at most, as a number; empty: no limit").fill("2.5")
    dialog.get_by_label("Note, for the audit").fill("it's $HOME `id`")
    dialog.get_by_label("To queue").fill("orders.asia")
    dialog.get_by_label("To queue").blur()
    dialog.get_by_role("button", name="Replay 2 letters to orders.asia").wait_for()
    lines = lines_of(dialog)
    before = dead_in(full_broker, "orders.us")
    run(lines["CLI"])
    assert dead_in(full_broker, "orders.us") == before - 2
    job = json.loads(run(lines["curl"]))
    wait_until(lambda: dead_in(full_broker, "orders.us") == before - 4)
    jobs = admin(full_broker, "job.list", limit=2)["jobs"]
    same = ("kind", "filter", "to", "limit", "canary", "rate", "note")
    assert {name: jobs[0][name] for name in same} == {name: jobs[1][name] for name in same}
    assert (jobs[0]["job"], jobs[0]["note"], jobs[0]["to"]) == (job["job"], "it's $HOME `id`", "orders.asia")
    assert jobs[0]["rate"] == 2.5


@pytest.mark.long(covered_by="tests/browser/test_commands.py::test_the_lines_of_a_replay_start_the_same_job")
def test_the_lines_of_a_purge_and_of_one_letter(
    full_broker: ServedBroker, opened: Opener, run: Callable[[str], str]
) -> None:
    page = opened(full_broker.origin)
    enter(page, full_broker, "dead-letters?queue=emails.newsletter")
    page.get_by_role("button", name=re.compile("^Purge all 20")).click()
    lines = lines_of(page.get_by_role("dialog"))
    run(lines["CLI"])
    assert dead_in(full_broker, "emails.newsletter") == 0
    assert json.loads(run(lines["curl"]))["kind"] == "purge_dead"

    first, second = (one["dead_id"] for one in admin(full_broker, "dlq.list", queue="emails", limit=2)["letters"])
    before = dead_in(full_broker, "emails")
    for dead_id, kind in ((first, "CLI"), (second, "curl")):
        page.goto(f"{full_broker.console}letter?id={dead_id}")
        page.get_by_role("button", name="Purge this letter…").click()
        run(lines_of(page.get_by_role("dialog"))[kind])
    assert dead_in(full_broker, "emails") == before - 2


@pytest.mark.long(covered_by="tests/browser/test_commands.py::test_the_lines_of_a_replay_start_the_same_job")
def test_the_lines_of_an_edited_letter(full_broker: ServedBroker, opened: Opener, run: Callable[[str], str]) -> None:
    first, second = (one["dead_id"] for one in admin(full_broker, "dlq.list", queue="emails", limit=2)["letters"])
    page = opened(full_broker.origin)
    enter(page, full_broker, "access")
    for dead_id, kind in ((first, "CLI"), (second, "curl")):
        page.goto(f"{full_broker.console}letter?id={dead_id}")
        page.get_by_role("button", name="Edit and replay…").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Body").fill("it's $(new)\nof two lines")
        dialog.get_by_role("button", name="Review the changes").click()
        run(lines_of(dialog)[kind])
        with vibemq.sync.connect(full_broker.url) as mq:
            [message] = mq.fetch("emails")
            message.ack()
        assert message.payload.decode() == "it's $(new)\nof two lines"


@pytest.mark.long(covered_by="tests/browser/test_commands.py::test_the_lines_of_a_replay_start_the_same_job")
def test_the_lines_of_a_cursor_and_of_a_connection(
    full_broker: ServedBroker, opened: Opener, run: Callable[[str], str]
) -> None:
    page = opened(full_broker.origin)
    enter(page, full_broker, "cursors")
    page.get_by_role("button", name="spark-archive").click()
    page.get_by_role("button", name="Seek…").click()
    page.get_by_role("button", name="A sequence").click()
    page.get_by_label("Sequence", exact=True).fill("4000")
    lines = lines_of(page.get_by_role("dialog"))
    for kind in ("CLI", "curl"):
        admin(full_broker, "group.seek", queue="clicks", group="spark-archive", start="sequence:700")
        run(lines[kind])
        [group] = admin(full_broker, "group.list", queue="clicks", limit=1)["groups"]
        assert (group["group"], group["committed"]) == ("spark-archive", 4000)
    for mode in ("release", "fail"):
        for kind in ("CLI", "curl"):
            with vibemq.sync.connect(full_broker.url, name=f"{mode} {kind}") as mq:
                mq.publish("shipments", b"x")
                mq.fetch("shipments", ack_timeout=0)
                page.goto(f"{full_broker.console}connections?name={mode}%20{kind}")
                page.get_by_role("button", name="Close…").click()
                dialog = page.get_by_role("dialog", name="Close this connection?")
                dialog.get_by_role("radio", name=re.compile("failed" if mode == "fail" else "Give back")).check()
                run(lines_of(dialog)[kind])
            with vibemq.sync.connect(full_broker.url) as mq:
                [message] = mq.fetch("shipments")
                assert (message.failures == 1) is (mode == "fail")
                message.ack()


@pytest.mark.long(covered_by="tests/browser/test_commands.py::test_the_lines_of_a_replay_start_the_same_job")
def test_the_lines_of_users_and_their_rights(
    full_broker: ServedBroker, opened: Opener, run: Callable[[str], str]
) -> None:
    page = opened(full_broker.origin)
    enter(page, full_broker, "access?tab=users&user=shop")

    def rules() -> list[str]:
        return sorted(rule["queues"] for rule in admin(full_broker, "user.show", user="shop")["permissions"])

    for kind in ("CLI", "curl"):
        page.reload()
        page.get_by_role("button", name="Allow something…").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("textbox", name="Queues").fill("re*")
        dialog.get_by_text("read options, figures and dead letters").wait_for()
        dialog.get_by_label("inspect").check()
        run(lines_of(dialog)[kind])
        assert "re*" in rules()
        page.reload()
        page.get_by_role("listitem").filter(has_text="re*").get_by_role("button", name="Take away…").click()
        run(lines_of(page.get_by_role("dialog"))[kind])
        assert "re*" not in rules()


@pytest.mark.long(covered_by="tests/browser/test_commands.py::test_the_lines_of_a_replay_start_the_same_job")
def test_the_lines_of_a_search_of_a_connection_and_of_a_narrow_token(
    full_broker: ServedBroker, opened: Opener, run: Callable[[str], str]
) -> None:
    page = opened(full_broker.origin)
    with vibemq.sync.connect(full_broker.url, name="looked at") as mq:
        mq.create_queue("lines")
        for number in range(3):
            mq.publish("lines", b"x", id=f"line {number}", headers={"n": f"a:{number}"})
        with mq.subscribe("lines", prefetch=1) as messages:
            next(iter(messages))
            enter(page, full_broker, "queue?queue=lines&tab=messages&header=n:a:2")
            page.get_by_text("1 message found among 3 looked at.").wait_for()
            for kind, line in lines_of(page.locator("main")).items():
                assert ("line 2" in run(line), "line 1" in run(line)) == (True, False), kind
            [connection] = mq.admin("connections.list", name="looked at", limit=9)["connections"]
            page.goto(f"{full_broker.console}connections?id={connection['connection_id']}")
            page.get_by_role("row", name=re.compile("lines")).wait_for()
            for line in lines_of(page.locator("main")).values():
                assert "lines" in run(line)
        mq.delete_queue("lines")
    page.goto(f"{full_broker.console}access?tab=users&user=shop")
    page.get_by_role("button", name="Make a token…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("What it is for").fill("narrow")
    dialog.get_by_role("button", name="Only a part").click()
    dialog.get_by_label("Queues", exact=True).fill("re*")
    dialog.get_by_label(re.compile("^inspect")).check()
    run(lines_of(dialog)["CLI"])
    [token] = [one for one in admin(full_broker, "token.list", user="shop")["tokens"] if one["label"] == "narrow"]
    assert token["permissions"] == [{"queues": "re*", "actions": ["inspect"]}]


@pytest.mark.long(covered_by="tests/browser/test_commands.py::test_the_lines_of_a_replay_start_the_same_job")
def test_the_lines_of_a_queue_and_its_messages(
    full_broker: ServedBroker, opened: Opener, run: Callable[[str], str]
) -> None:
    page = opened(full_broker.origin)
    enter(page, full_broker, "queues")
    dialog = page.get_by_role("dialog")
    with vibemq.sync.connect(full_broker.url) as mq:

        def options(queue: str) -> Any:
            info = mq.queue_info(queue)
            assert info is not None
            return info.options

        for kind in ("CLI", "curl"):
            queue = f"-line.{kind}"
            page.goto(f"{full_broker.console}queues")
            page.get_by_role("button", name="Create queue", exact=True).click()
            dialog.get_by_label("Name", exact=True).fill(queue)
            dialog.get_by_label("max_attempts").fill("7")
            run(lines_of(dialog)[kind])
            assert options(queue).max_attempts == 7
            place = f"{full_broker.console}queue?queue={quote(queue)}"
            page.goto(f"{place}&tab=options")
            page.get_by_role("button", name="Change options").click()
            page.get_by_label("ack_timeout_ms").fill("2m")
            page.get_by_label("overflow").select_option("drop_oldest")
            page.get_by_role("button", name="Change 2 options…").click()
            run(lines_of(dialog)[kind])
            assert (options(queue).ack_timeout_ms, options(queue).overflow.name) == (120_000, "DROP_OLDEST")
            page.goto(place)
            page.get_by_role("button", name="Publish", exact=True).click()
            dialog.get_by_label("Body", exact=True).fill("it's $(new)")
            dialog.get_by_role("button", name="Add a header").click()
            dialog.get_by_label("Name of the header").fill("tenant")
            dialog.get_by_label("Value of the header").fill("a 'b'")
            run(lines_of(dialog)[kind])
            [message] = mq.admin("queue.peek", queue=queue)
            assert (message["payload"], message["headers"]["tenant"]) == ("it's $(new)", "a 'b'")
            page.goto(f"{full_broker.console}message?queue={quote(queue)}&sequence=1")
            page.get_by_role("button", name="Remove…").click()
            run(lines_of(dialog)[kind])
            assert mq.admin("queue.peek", queue=queue) == []
            mq.publish_many(queue, [b"x"] * 3)
            page.goto(place)
            page.get_by_role("button", name="Purge messages…").click()
            run(lines_of(dialog)[kind])
            assert mq.admin("queue.peek", queue=queue) == []
            page.reload()
            page.get_by_role("button", name="Delete queue…").click()
            run(lines_of(dialog)[kind])
            assert mq.queue_info(queue) is None


@pytest.mark.long(covered_by="tests/browser/test_commands.py::test_the_lines_of_a_replay_start_the_same_job")
def test_the_lines_of_a_running_job_and_of_its_file(
    full_broker: ServedBroker, opened: Opener, run: Callable[[str], str], tmp_path: Path
) -> None:
    page = opened(full_broker.origin)
    enter(page, full_broker, "jobs")

    def state(job: str) -> str:
        return str(admin(full_broker, "job.show", job=job)["state"])

    for kind in ("CLI", "curl"):
        job = admin(full_broker, "job.start", kind="replay", filter={"queue": "invoices"}, rate=0.1)["job"]
        for button, word, states in (("Pause", "paused", {"paused"}), ("Go on", "running", {"running", "waiting"})):
            page.goto(f"{full_broker.console}job?id={job}")
            page.get_by_role("button", name=button, exact=True).wait_for()
            page.locator("details.command summary").last.click()
            verb = "job pause" if word == "paused" else "job resume"
            [line] = [
                text
                for text in page.locator(".command-line code").all_inner_texts()
                if (verb in text if kind == "CLI" else f'"{word}"' in text)
            ]
            run(line)
            assert state(job) in states
        page.get_by_role("button", name="Cancel…").click()
        run(lines_of(page.get_by_role("dialog"))[kind])
        assert state(job) == "cancelled"
        job = admin(full_broker, "job.start", kind="export_dead", filter={"queue": "webhooks"})["job"]
        page.goto(f"{full_broker.console}job?id={job}")
        page.get_by_role("link", name="Download the file").wait_for()
        page.locator("details.command summary").last.click()
        [line] = [
            text
            for text in page.locator(".command-line code").all_inner_texts()
            if ("job result" in text if kind == "CLI" else text.endswith("/result"))
        ]
        told = run(f"cd {tmp_path} && {line}")
        text = (tmp_path / "letters.ndjson").read_text() if kind == "CLI" else told
        assert json.loads(text.splitlines()[-1])["count"] == dead_in(full_broker, "webhooks")
        page.get_by_role("button", name="Delete the file…").click()
        run(lines_of(page.get_by_role("dialog"))[kind])
        assert not admin(full_broker, "job.show", job=job)["has_result"]


@pytest.mark.long(covered_by="tests/browser/test_commands.py::test_the_lines_of_a_replay_start_the_same_job")
def test_the_lines_of_limits_quarantines_and_the_end_of_a_cursor(
    full_broker: ServedBroker, opened: Opener, run: Callable[[str], str]
) -> None:
    page = opened(full_broker.origin)
    enter(page, full_broker, "cursors")
    dialog = page.get_by_role("dialog")

    def found(group: str) -> list[dict[str, Any]]:
        rows = admin(full_broker, "cursor.list", queue="clicks", group=group, limit=9)["cursors"]
        return [dict(row) for row in rows]

    for kind in ("CLI", "curl"):
        group = f"line's {kind}"
        admin(full_broker, "group.join", queue="clicks", group=group, start="earliest")
        page.goto(f"{full_broker.console}cursors?group={quote(group)}")
        page.get_by_role("button", name=group).click()
        page.get_by_role("button", name="Change limits…").click()
        dialog.get_by_label("Expires when its oldest message is older than").fill("7d")
        dialog.get_by_label("Expires when it is further behind than").fill("10GiB")
        run(lines_of(dialog)[kind])
        [row] = found(group)
        assert (row["max_lag_ms"], row["max_lag_bytes"]) == (604_800_000, 10 << 30)
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Quarantine messages…").click()
        dialog.get_by_label("Sequences").fill("17, 20-25")
        run(lines_of(dialog)[kind])
        assert found(group)[0]["quarantined"] == 7
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Delete the cursor…").click()
        run(lines_of(dialog)[kind])
        assert found(group) == []


@pytest.mark.long(covered_by="tests/browser/test_commands.py::test_the_lines_of_a_replay_start_the_same_job")
def test_the_lines_of_the_end_of_users_and_tokens(
    full_broker: ServedBroker, opened: Opener, run: Callable[[str], str]
) -> None:
    page = opened(full_broker.origin)
    enter(page, full_broker, "access")
    dialog = page.get_by_role("dialog")
    for kind in ("CLI", "curl"):
        user = f"line-{kind.lower()}"
        admin(full_broker, "user.add", user=user, password="a long pass phrase")
        admin(full_broker, "token.create", user=user, label="to be revoked")
        for button, is_superuser in (("Make a superuser…", True), ("Make an ordinary user…", False)):
            page.goto(f"{full_broker.console}access?tab=users&user={user}")
            page.get_by_role("button", name=button).click()
            run(lines_of(dialog)[kind])
            assert admin(full_broker, "user.show", user=user)["superuser"] is is_superuser
        page.reload()
        page.get_by_role("button", name="Revoke…").click()
        run(lines_of(dialog)[kind])
        assert admin(full_broker, "token.list", user=user)["tokens"] == []
        page.reload()
        page.get_by_role("button", name="Remove the user…").click()
        run(lines_of(dialog)[kind])
        assert user not in {one["user"] for one in admin(full_broker, "user.list", limit=99)["users"]}


@pytest.mark.long(covered_by="tests/browser/test_commands.py::test_the_lines_of_a_replay_start_the_same_job")
def test_the_lines_of_a_backup_and_of_a_reload(
    full_broker: ServedBroker, opened: Opener, run: Callable[[str], str], tmp_path: Path
) -> None:
    page = opened(full_broker.origin)
    enter(page, full_broker, "broker")
    for kind in ("CLI", "curl"):
        page.goto(f"{full_broker.console}broker")
        page.get_by_role("button", name=re.compile("^Reload")).click()
        assert "urn:vibemq:error" not in run(lines_of(page.get_by_role("dialog"))[kind])
        page.keyboard.press("Escape")
        page.get_by_role("button", name=re.compile("^Back up")).click()
        target = tmp_path / f"it's {kind}"
        page.get_by_label(re.compile("^New or empty folder")).fill(str(target))
        run(lines_of(page.get_by_role("dialog"))[kind])
        assert any(target.iterdir())
