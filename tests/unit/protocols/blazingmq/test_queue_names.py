"""URIs to names and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.model.options import check_queue_name
from vibemq.protocols.blazingmq.queue_names import BadUri, QueueUri, check_domain, parse_uri, queue_name, uri_of

_part = st.text("ab-_.", min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("text", "uri", "name"),
    [
        ("bmq://bmq.test.mmap.priority/q1", ("bmq.test.mmap.priority", "q1", None), "bmq.test.mmap.priority..q1"),
        ("bmq://d/q?id=foo", ("d", "q", "foo"), "d..q"),
        ("bmq://d.~lab-1/q", ("d.~lab-1", "q", None), "d._.lab-1..q"),
        ("bmq://d/.q", ("d", ".q", None), "d...q"),
        ("bmq://d/..", ("d", "..", None), "d...."),
    ],
)
def test_a_uri_stands_for_a_name(text: str, uri: tuple[str, str, str | None], name: str) -> None:
    parsed = parse_uri(text)
    assert parsed == uri
    assert queue_name(parsed) == name
    assert check_queue_name(name) == name
    assert uri_of(name) == parsed._replace(app_id=None)


@given(_part, st.none() | st.text("ab-", min_size=1, max_size=3), _part)
def test_two_uris_never_have_one_name(domain: str, tier: str | None, queue: str) -> None:
    uri = QueueUri(domain if tier is None else f"{domain}.~{tier}", queue)
    try:
        name = queue_name(uri)
    except BadUri:
        assert ".." in domain or "._." in domain or domain.endswith((".", "._"))
        return
    assert uri_of(name) == uri


@pytest.mark.parametrize(
    "text",
    [
        "",
        "bmq://",
        "bmq://d",
        "bmq://d/",
        "bmq:///q",
        "amqp://d/q",
        "bmq://d/q/r",
        "bmq://d/q?id=",
        "bmq://d/q?x=1",
        "bmq://d/q\n",
        "bmq://dü/q",
        "bmq://d~t/q",
        "bmq://d/" + "q" * 65,
        "bmq://" + "d" * 600 + "/q",
    ],
)
def test_what_is_no_uri_is_refused(text: str) -> None:
    with pytest.raises(BadUri):
        parse_uri(text)


@pytest.mark.parametrize("domain", ["a..b", "a.", "a._.b"])
def test_domains_whose_queues_could_not_be_told_apart_are_refused(domain: str) -> None:
    with pytest.raises(BadUri, match="cannot be served"):
        check_domain(domain)


def test_a_name_that_is_too_long_is_refused() -> None:
    with pytest.raises(BadUri, match="too long"):
        queue_name(parse_uri("bmq://" + "d" * 220 + "/" + "q" * 64))


def test_plain_names_are_those_of_the_queues() -> None:
    assert queue_name(QueueUri("here", "orders"), plain=True) == "orders"
    assert uri_of("orders", "here") == QueueUri("here", "orders")
    assert uri_of("orders") is None
    assert uri_of("d..q", "here") == QueueUri("d", "q")
    with pytest.raises(BadUri):
        queue_name(QueueUri("here", "d..q"), plain=True)
