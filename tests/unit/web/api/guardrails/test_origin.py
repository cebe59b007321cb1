"""What a page of another origin can have a browser send is refused."""

import pytest
from starlette.datastructures import Headers

from vibemq.web.api.errors import HttpCode, Problem
from vibemq.web.api.guardrails.origin import check_content_type, check_origin

HOST = {"host": "broker:2926"}


@pytest.mark.parametrize(
    ("method", "headers", "has_cookie"),
    [
        ("POST", {"sec-fetch-site": "cross-site"}, False),
        ("POST", {"sec-fetch-site": "same-site"}, False),
        ("POST", {"sec-fetch-site": "cross-site", "origin": "http://broker:2926"}, False),
        ("DELETE", {"origin": "http://evil.example"}, False),
        ("POST", {"origin": "null"}, False),
        ("POST", {"origin": "http://broker:2927"}, False),
        ("POST", {"origin": "http://broker"}, False),
        ("POST", {"origin": "https://broker:2926"}, False),
        ("PUT", {"origin": "http://["}, False),
        ("PATCH", {}, True),
        ("GET", {"sec-fetch-site": "cross-site"}, False),
    ],
)
def test_refused(method: str, headers: dict[str, str], has_cookie: bool) -> None:
    with pytest.raises(Problem) as refusal:
        check_origin(method, Headers({**HOST, **headers}), has_cookie=has_cookie, secure=False)
    assert refusal.value.code is HttpCode.CROSS_ORIGIN


@pytest.mark.parametrize(
    ("method", "headers", "has_cookie"),
    [
        ("POST", {"sec-fetch-site": "same-origin"}, True),
        ("POST", {"sec-fetch-site": "none"}, True),
        ("POST", {"origin": "http://broker:2926"}, True),
        ("POST", {"origin": "http://BROKER:2926"}, True),
        ("POST", {}, False),
        ("GET", {"sec-fetch-site": "same-site"}, True),
        ("GET", {"origin": "http://evil.example"}, False),
    ],
)
def test_taken(method: str, headers: dict[str, str], has_cookie: bool) -> None:
    check_origin(method, Headers({**HOST, **headers}), has_cookie=has_cookie, secure=False)


def test_a_program_with_a_cookie_is_told_what_to_send_in_place_of_it() -> None:
    with pytest.raises(Problem, match="programs send the header Authorization in place of a cookie"):
        check_origin("POST", Headers({}), has_cookie=True, secure=False)


def test_the_page_of_the_other_scheme_is_another_origin() -> None:
    own, other = ({**HOST, "origin": f"{scheme}://broker:2926"} for scheme in ("https", "http"))
    check_origin("POST", Headers(own), has_cookie=True, secure=True)
    with pytest.raises(Problem):
        check_origin("POST", Headers(other), has_cookie=True, secure=True)


@pytest.mark.parametrize(
    ("headers", "has_body"),
    [
        ({}, True),
        ({"content-type": "text/plain"}, True),
        ({"content-type": "application/x-www-form-urlencoded"}, False),
        ({"content-type": "multipart/form-data; boundary=x"}, True),
        ({"content-type": "application/json", "content-encoding": "gzip"}, True),
    ],
)
def test_no_form_can_send_a_body(headers: dict[str, str], has_body: bool) -> None:
    with pytest.raises(Problem) as refusal:
        check_content_type(Headers(headers), ("application/json",), has_body=has_body)
    assert refusal.value.code is HttpCode.UNSUPPORTED_MEDIA_TYPE


@pytest.mark.parametrize(
    ("headers", "has_body"), [({}, False), ({"content-type": "Application/JSON; charset=utf-8"}, True)]
)
def test_json_is_taken(headers: dict[str, str], has_body: bool) -> None:
    check_content_type(Headers(headers), ("application/json",), has_body=has_body)
