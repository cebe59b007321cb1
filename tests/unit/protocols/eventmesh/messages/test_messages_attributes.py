"""What the libraries of clients read: `java.net.URI` and `java.time.OffsetDateTime` of Java 17 were asked."""

import pytest

from vibemq.protocols.eventmesh.messages.attributes import is_name, is_timestamp, is_uri_reference


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "/größe?a=[b]#c",
        "urn:a:b",
        "mailto:x@y",
        "a:/",
        "a:///",
        "///x",
        "//#x",
        "a://?q",
        "?a:b",
        "a/b:c",
        "%41",
        "http://h:abc/a",
        "http://u@[::1]:80/x",
        "http://[::1]",
    ],
)
def test_references_that_are_read(text: str) -> None:
    assert is_uri_reference(text)


@pytest.mark.parametrize(
    "text",
    [
        "my app",
        "{x}",
        "a|b",
        "a^b",
        'a"b',
        "a\\b",
        "%4",
        "a#b#c",
        "//",
        "http://",
        "a:",
        ":",
        "1a:b",
        "[a]",
        "http://[1:2]/a",
        "http://[::1]abc",
        "a\u00a0b",
        "a\u2028b",
    ],
)
def test_references_that_are_not_read(text: str) -> None:
    assert not is_uri_reference(text)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("2026-11-27T10:00:00Z", True),
        ("2026-11-27t10:00:00.123456789-18:00", True),
        ("2024-02-29T23:59:59+01:00", True),
        ("2026-11-27T10:00:00.1234567890Z", False),
        ("2026-02-29T10:00:00Z", False),
        ("2026-11-27T10:00:60Z", False),
        ("2026-11-27T24:00:00Z", False),
        ("2026-11-27T10:00:00", False),
        ("2026-11-27 10:00:00Z", False),
        ("2026-11-27T10:00:00+18:01", False),
        ("yesterday", False),
    ],
)
def test_timestamps(text: str, is_one: bool) -> None:
    assert is_timestamp(text) is is_one


def test_names() -> None:
    assert is_name("a" * 40 + "9")
    assert not any(map(is_name, ("", "A", "a-b", "a_b", "é", "٣", "a\n")))
