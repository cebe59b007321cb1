"""S7, S8: the HTTP port, spoken to byte by byte."""

import pytest

from tests.security.target import Target

pytestmark = pytest.mark.xdist_group("security")

GET = b"GET /livez HTTP/1.1"
HOST = b"Host: localhost"
PATHS = (
    b"/livez",
    b"/readyz",
    b"/startupz",
    b"/health",
    b"/health/",
    b"/metrics",
    b"/metrics/",
    b"/metrics/prometheus",
    b"/queues/orders",
)


@pytest.mark.parametrize(
    "request_lines",
    [
        (GET, HOST, b"Host: b"),
        (GET,),
        (GET, HOST, b"X : b"),
        (GET, HOST, b"X: a\0b"),
        (GET, HOST, b"Content-Length: +4"),
        (GET, HOST, b"Content-Length: 4", b"Content-Length: 5"),
        (GET, HOST, b"Transfer-Encoding: chunked, identity"),
        (GET, HOST, b"X: " + b"x" * 200_000),
        (b"GET /livez",),
        (b"GET /\rX: y HTTP/1.1", HOST),
        (b"\x16\x03\x01\x02\x00",),
    ],
    ids=lambda lines: b" ".join(lines).decode("latin-1")[:40].encode("unicode_escape").decode(),
)
def test_ambiguous_requests_are_refused(target: Target, request_lines: tuple[bytes, ...]) -> None:
    answer = target.say_http(*request_lines)
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 ", b"HTTP/1.1 501 ")), answer


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"DELETE", b"PATCH", b"TRACE", b"OPTIONS", b"CONNECT"])
def test_nothing_is_changed_over_http(target: Target, method: bytes) -> None:
    for path in PATHS:
        answer = target.say_http(method + b" " + path + b" HTTP/1.1", HOST, b"Origin: http://evil.example")
        assert answer.startswith((b"HTTP/1.1 404 ", b"HTTP/1.1 405 ")), answer
        assert b"access-control" not in answer.lower()


@pytest.mark.parametrize("path", [*PATHS, b"/nothing", b"/%0d%0aSet-Cookie:%20x=y", b"/livez?\xff"])
def test_every_answer_forbids_other_sites(target: Target, path: bytes) -> None:
    answer = target.say_http(b"GET " + path + b" HTTP/1.1", HOST, b"Origin: http://evil.example", b"Cookie: a=b")
    head = answer.partition(b"\r\n\r\n")[0].lower()
    if b" 400 " in head.partition(b"\r\n")[0]:
        return
    for field in (b"x-content-type-options: nosniff", b"content-security-policy: default-src 'none'"):
        assert field in head, answer
    for field in (b"set-cookie", b"access-control", b"server:", b"location"):
        assert field not in head, answer


@pytest.mark.parametrize("path", [*PATHS, b"/<script>alert(1)</script>"])
def test_no_answer_is_a_page(target: Target, path: bytes) -> None:
    answer = target.say_http(b"GET " + path + b" HTTP/1.1", HOST, b"Accept: text/html")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"text/html" not in head.lower()
    assert b"<script" not in body


@pytest.mark.parametrize("path", [path for path in PATHS if path not in (b"/livez", b"/readyz", b"/startupz")])
def test_a_name_that_is_not_the_brokers_reads_nothing(target: Target, path: bytes) -> None:
    """As it comes from a page whose name was made to resolve to this machine."""
    for host in (b"evil.example", b"evil.example:%d" % target.http_port, b"localhost.evil.example"):
        answer = target.say_http(b"GET " + path + b" HTTP/1.1", b"Host: " + host)
        assert answer.startswith(b"HTTP/1.1 421 "), answer
        assert b"vibemq_" not in answer
        assert b"default-src 'none'" in answer
    for host in (b"localhost", b"127.0.0.1:%d" % target.http_port, b"[::1]"):
        answer = target.say_http(b"GET " + path + b" HTTP/1.1", b"Host: " + host)
        # The queue of that path does not exist.
        assert answer.startswith(b"HTTP/1.1 404 " if path.startswith(b"/queues/") else b"HTTP/1.1 200 "), answer
