"""Options of a queue from the command line, as the broker is asked for them."""

from collections.abc import Callable
from typing import Any

import pytest

from vibemq.cli.admin import main as admin
from vibemq.cli.admin import queue as verbs
from vibemq.cli.admin.queue_flags import CHANGEABLE, FIXED, chosen, retention_limit
from vibemq.cli.entry import run_app
from vibemq.errors import ConfigInvalid
from vibemq.model.options import QueueOptions, options_to_dict

Asked = list[tuple[str, dict[str, Any]]]
Run = Callable[..., tuple[int, str]]

GIB = 1 << 30
WEEK_MS = 7 * 24 * 3_600_000


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What the verbs ask of a broker that has an ordinary queue; its answers are this fixture's own."""
    questions: Asked = []

    def ask(_url: str, _timeout: float, verb: str, **arguments: Any) -> Any:
        # What is no dry run is asked without a word of it.
        questions.append(
            (verb, {name: value for name, value in arguments.items() if (name, value) != ("dry_run", False)})
        )
        return {"options": options_to_dict(QueueOptions())} if verb == "queue.info" else None

    monkeypatch.setattr(verbs, "ask", ask)
    return questions


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run_admin(*words: str) -> tuple[int, str]:
        code = run_app(admin.app, "vibemq-admin", list(words))
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return run_admin


def test_a_broadcast_queue(run: Run, asked: Asked) -> None:
    words = ("queue", "create", "prices", "--mode", "broadcast", "--durability", "weak", "--retain", "1GiB")
    assert run(*words)[0] == 0
    options = {"mode": "broadcast", "durability": "weak", "retain_bytes": GIB}
    assert asked[-1] == ("queue.create", {"queue": "prices", "options": options, "must_match": False})


def test_both_limits_of_a_log(run: Run, asked: Asked) -> None:
    code, out = run("queue", "change", "prices", "--retain", "7d", "--retain", "1GiB")
    assert code == 0
    assert asked[-1] == ("queue.change", {"queue": "prices", "changes": {"retain_ms": WEEK_MS, "retain_bytes": GIB}})
    assert f"retain_bytes: 0 → {GIB}" in out


def test_every_flag_reaches_its_option(run: Run, asked: Asked) -> None:
    words = "--mode round-robin --retention log --durability async --overflow drop-oldest --max-messages 5"
    words += (
        " --max-bytes 1KiB --ttl 1m --no-dead-letter --max-attempts 2 --ack-timeout 2s --retry-base 1s --retry-max 3s"
    )
    words += " --lost-connection release --dedup-window 4s --retain 5s --retain-messages 6 --retain-bytes 7"
    assert run("queue", "create", "q", *words.split(), "--must-match")[0] == 0
    options = {
        "mode": "round-robin",
        "retention": "log",
        "durability": "async",
        "overflow": "drop-oldest",
        "max_messages": 5,
        "max_bytes": 1024,
        "message_ttl_ms": 60_000,
        "dead_letter": False,
        "max_attempts": 2,
        "ack_timeout_ms": 2_000,
        "retry_base_ms": 1_000,
        "retry_max_ms": 3_000,
        "lost_connection": "release",
        "dedup_window_ms": 4_000,
        "retain_ms": 5_000,
        "retain_messages": 6,
        "retain_bytes": 7,
    }
    assert asked[-1] == ("queue.create", {"queue": "q", "options": options, "must_match": True})


def test_what_is_not_given_is_not_sent(run: Run, asked: Asked) -> None:
    assert run("queue", "create", "q")[0] == 0
    assert asked[-1][1]["options"] == {}


def test_no_change_is_a_usage_error(run: Run, asked: Asked) -> None:
    code, text = run("queue", "change", "q", "--dry-run")
    assert code == 2
    assert "nothing to change" in text
    assert asked == []


def test_mode_and_retention_are_for_life(run: Run, asked: Asked) -> None:
    for option in ("--mode", "--retention"):
        assert run("queue", "change", "q", option, "log")[0] == 2
    assert asked == []


@pytest.mark.parametrize(
    "words", [("--retain", "1GiB", "--retain", "2GiB"), ("--retain", "1d", "--option", "mode=ring")]
)
def test_what_cannot_be_is_refused_before_the_broker_hears_of_it(
    run: Run, asked: Asked, words: tuple[str, ...]
) -> None:
    code, text = run("queue", "create", "q", *words)
    assert code == 2
    assert text.startswith("error INVALID_OPTIONS")
    assert asked == []


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("7d", ("retain_ms", WEEK_MS)),
        ("1h30m", ("retain_ms", 5_400_000)),
        ("5m", ("retain_ms", 300_000)),
        ("1GiB", ("retain_bytes", GIB)),
        ("5MB", ("retain_bytes", 5_000_000)),
        ("64 KiB", ("retain_bytes", 65_536)),
    ],
)
def test_a_limit_is_an_age_or_a_size_by_its_unit(text: str, limit: tuple[str, int]) -> None:
    assert retention_limit(text) == limit


@pytest.mark.parametrize("text", ["1000", " 5 ", "", "much", "-1GiB", "1 lightyear"])
def test_a_limit_without_a_unit_could_be_either(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="7d or 1h30m for an age, 64MiB or 1GiB for a size"):
        retention_limit(text)


def test_an_option_by_its_name_wins() -> None:
    assert chosen(option=["retain-ms=5"], retain=[("retain_ms", 7)]) == {"retain_ms": 5}


@pytest.mark.parametrize("verb", ["create", "change"])
def test_help_names_every_option(run: Run, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    code, text = run("queue", verb, "--help")
    flags = FIXED | CHANGEABLE if verb == "create" else CHANGEABLE
    assert code == 0
    assert all(f"--{name.removesuffix('_ms').removeprefix('message_').replace('_', '-')}" in text for name in flags)
    assert ("broadcast" in text) == (verb == "create")
