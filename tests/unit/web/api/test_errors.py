"""Every refusal has a status, a title and a code that clients can rely on."""

import pytest

from vibemq.errors import AuthFailed, ErrorCode, PreconditionFailed, QueueNotFound
from vibemq.web.api.errors import MEANINGS, Code, HttpCode, Problem, as_problem, body_of, headers_of


def test_the_table_is_total() -> None:
    assert set(MEANINGS) == {*ErrorCode, *HttpCode}


def test_no_code_has_two_meanings() -> None:
    assert not {code.value for code in ErrorCode} & {code.value for code in HttpCode}


@pytest.mark.parametrize("code", MEANINGS)
def test_every_refusal_can_be_told(code: Code) -> None:
    told = body_of(Problem(code, "the sentence"), "r1")
    assert told["type"] == f"urn:vibemq:error:{code}"
    assert told["code"] == code.value
    assert 400 <= told["status"] < 600
    assert told["title"]
    assert (told["detail"], told["instance"]) == ("the sentence", "r1")


@pytest.mark.parametrize("code", [code for code, meaning in MEANINGS.items() if meaning.status in (429, 503)])
def test_who_has_to_wait_is_told_for_how_long(code: Code) -> None:
    assert int(headers_of(Problem(code, "busy"), ())["Retry-After"]) >= 1


def test_a_login_that_has_to_wait_says_so() -> None:
    headers = headers_of(as_problem(AuthFailed("wait", 7.4)), ("Bearer",))
    assert headers == {"Retry-After": "8", "WWW-Authenticate": "Bearer"}


def test_details_of_an_error_are_told() -> None:
    told = body_of(as_problem(PreconditionFailed("changed", {"count": 3})), "r")
    assert told["status"] == 412
    assert told["count"] == 3


def test_an_error_of_the_family_keeps_its_sentence() -> None:
    assert str(as_problem(QueueNotFound("q"))) == str(QueueNotFound("q"))
