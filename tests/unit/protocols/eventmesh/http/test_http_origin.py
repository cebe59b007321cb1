import pytest

from vibemq.protocols.eventmesh.http.origin import comes_from_elsewhere

HOST = {"host": "127.0.0.1:10105"}


@pytest.mark.parametrize(
    ("headers", "elsewhere"),
    [
        ({}, False),
        (HOST, False),
        ({"sec-fetch-site": "none"}, False),
        ({"sec-fetch-site": "same-origin"}, False),
        ({"sec-fetch-site": "same-site"}, True),
        ({"sec-fetch-site": "cross-site"}, True),
        ({"sec-fetch-site": "?"}, True),
        (HOST | {"origin": "http://127.0.0.1:10105"}, False),
        (HOST | {"origin": "http://127.0.0.1"}, True),
        (HOST | {"origin": "https://page.example"}, True),
        (HOST | {"origin": "null"}, True),
        ({"origin": "null"}, True),
    ],
)
def test_browsers_say_where_a_request_comes_from(headers: dict[str, str], elsewhere: bool) -> None:
    assert comes_from_elsewhere(headers) is elsewhere
