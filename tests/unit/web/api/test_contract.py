"""No endpoint without an operation, permissions and a place of its own."""

from dataclasses import replace
from typing import Any

import pytest

from vibemq.model.commands import Publish
from vibemq.web.api.contract import Contract, Endpoint, Exchange, dotted
from vibemq.web.api.endpoints import ENDPOINTS
from vibemq.web.api.kinds import Kind
from vibemq.web.api.openapi import without_key

ROW = Endpoint(method="GET", path="/queues/{queue}", summary="s", operation="queue.info")


async def handler(exchange: Exchange) -> Any:
    raise NotImplementedError


@pytest.mark.parametrize(
    "row",
    [
        replace(ROW, operation=""),
        replace(ROW, operation="queue.nothing"),
        replace(ROW, anybody="because"),
        replace(ROW, operation="", command=str, handler=handler),
        replace(ROW, operation="", command=Publish),
        replace(ROW, kind=Kind.CHANGE),
        replace(ROW, method="POST", kind=Kind.CHANGE),
        replace(ROW, method="POST", kind=Kind.CHANGE, idempotent=True, keyless="because"),
        replace(ROW, keyless="because"),
    ],
    ids=[
        "no owner",
        "no such operation",
        "two owners",
        "no such command",
        "nobody to carry it out",
        "GET changes",
        "POST without a word on keys",
        "two words on keys",
        "GET with keys",
    ],
)
def test_a_row_that_is_not_whole_is_refused(row: Endpoint) -> None:
    with pytest.raises(LookupError):
        Contract([row])


def test_two_rows_of_one_place_are_refused() -> None:
    with pytest.raises(LookupError):
        Contract([ROW, replace(ROW, summary="other")])


def test_paths_and_their_values() -> None:
    contract = Contract(ENDPOINTS)
    for path, values in (
        (["queues", "a.b"], {"queue": "a.b"}),
        (["queues", "~.."], {"queue": ".."}),
        (["queues", "q", "groups", "a/b"], {"queue": "q", "group": "a/b"}),
        (["users", "ada", "tokens", "t"], {"user": "ada", "token_id": "t"}),
    ):
        found = contract.find(path)
        assert found is not None
        assert found[1] == values
    for nothing in ([], [""], ["queues", ""], ["queues", "a", "b"], ["nothing"]):
        assert contract.find(nothing) is None


def test_fixed_words_come_before_names() -> None:
    found = Contract(ENDPOINTS).find(["connections", "close"])
    assert found is not None
    assert set(found[0]) == {"POST"}


@pytest.mark.parametrize(
    ("segment", "name"),
    [
        ("~.", "."),
        ("~~.", "~."),
        ("~~~..", "~~.."),
        ("~.a", "~.a"),
        ("~..", ".."),
        ("~...", "..."),
        ("~", "~"),
        ("~a", "~a"),
        ("..", ".."),
        ("a", "a"),
    ],
)
def test_names_of_dots(segment: str, name: str) -> None:
    assert dotted(segment) == name


def test_reading_changes_nothing() -> None:
    """Operations that are audited change something: no GET carries one out."""
    contract = Contract(ENDPOINTS)
    for endpoint in ENDPOINTS:
        if endpoint.operation and endpoint.method == "GET":
            assert not contract.operations[endpoint.operation].audited, endpoint.path


def test_every_change_is_audited() -> None:
    contract = Contract(ENDPOINTS)
    for endpoint in ENDPOINTS:
        if endpoint.operation and endpoint.kind is Kind.CHANGE and endpoint.method != "GET":
            operation = contract.operations[endpoint.operation]
            assert operation.audited, endpoint.path


def test_who_takes_no_key_says_so_in_the_description() -> None:
    told = {f"{one.method} {one.path}": text for one in ENDPOINTS if (text := without_key(one))}
    assert "a lease is settled once" in told["POST /deliveries"]
    assert all("422 INVALID_PAYLOAD" in text for text in told.values())
    assert "POST /queues/{queue}/messages" not in told
