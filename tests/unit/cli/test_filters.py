"""Filters of the dlq verbs, and options of the queue verbs."""

import inspect
from typing import Any

import pytest

from vibemq.cli.admin import main
from vibemq.cli.admin.dlq.filters import Filters, filtered, filters_of
from vibemq.cli.admin.queue_flags import chosen
from vibemq.cli.entry import run_app
from vibemq.cli.exits import Usage
from vibemq.errors import InvalidOptions


def test_no_filter_means_all() -> None:
    filters = filters_of()
    assert not filters
    assert filters.arguments == {}
    assert filters.chosen(2_000) == "2,000 dead letters"


def test_every_filter_has_the_name_of_its_argument() -> None:
    filters = filters_of("orders", "Max-Attempts", 60_000, 1_000, ["a=1", "b=x=y"], ["3-5", "9"], "m1")
    assert filters.arguments == {
        "queue": "orders",
        "reason": "max_attempts",
        "older_than_ms": 60_000,
        "newer_than_ms": 1_000,
        "header": {"a": "1", "b": "x=y"},
        "ids": [3, 4, 5, 9],
        "message_id": "m1",
    }
    assert filters.chosen(1).startswith("1 dead letter with queue=orders, reason=max_attempts")


def test_an_unknown_reason_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Usage, match=r"max_attempts, expired.*purged.*moved"):
        filters_of(reason="bored")


def test_a_command_gets_all_filter_options_in_their_place_and_their_value() -> None:
    got: list[Any] = []

    @filtered
    def verb(file: str, filters: Filters, limit: int = 3) -> None:
        got.extend((file, filters.queue, filters.arguments, limit))

    options = inspect.signature(filters_of).parameters
    names = list(inspect.signature(verb).parameters)
    assert names == ["file", *options, "limit"]
    verb(file="x", limit=5, **{**dict.fromkeys(options), "queue": "orders", "from_id": 7})
    assert got == ["x", "orders", {"queue": "orders", "from_id": 7}, 5]


def test_options_that_are_not_given_are_left_to_the_broker() -> None:
    assert chosen(None, mode=None, max_attempts=5, dead_letter=False) == {"max_attempts": 5, "dead_letter": False}


def test_any_option_can_be_given_by_name() -> None:
    assert chosen(["retain-ms=5", "dead_letter=off", "dead_letter_name=dead", "message_ttl_ms=none"]) == {
        "retain_ms": 5,
        "dead_letter": False,
        "dead_letter_name": "dead",
        "message_ttl_ms": None,
    }


@pytest.mark.parametrize("extra", ["max_attmpts=3", "max_attempts=many", "mode=zigzag", "overflow=explode"])
def test_impossible_options_are_refused_before_the_broker_is_asked(extra: str) -> None:
    with pytest.raises(InvalidOptions):
        chosen([extra])


def test_overflow_to_the_dlq_is_left_to_the_broker_to_judge() -> None:
    assert chosen(None, overflow="redirect-to-dlq") == {"overflow": "redirect-to-dlq"}


@pytest.mark.parametrize("rate", ["nan", "inf"])
def test_a_rate_that_is_no_number_is_refused(rate: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app(main.app, "vibemq-admin", ["dlq", "replay", "--queue", "orders", "--rate", rate]) == 2
    assert "--rate" in capsys.readouterr().err
