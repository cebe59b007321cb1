"""Requests out of a stream, however the network cut it."""

import pytest

from vibemq.protocols.eventmesh.http.request import EMPTY_LINES_MAX, HttpReader
from vibemq.protocols.http1 import Http1Error


def refusal_of(stream: bytes, step: int) -> int:
    reader = HttpReader(head_bytes_max=100, body_bytes_max=100, send=lambda sent: None)
    try:
        for start in range(0, len(stream), step):
            reader.receive_data(stream[start : start + step])
            while reader.fresh:
                assert reader.next_request() is None
    except Http1Error as refused:
        return refused.status
    return 0


@pytest.mark.parametrize("step", [1, 7, 2_000])
def test_why_a_head_is_refused_does_not_depend_on_how_much_comes_behind_it(step: int) -> None:
    assert refusal_of(b"GET / HTTP/1.1\r\nx: y\n\r\n" + b"z" * 1_000, step) == 400
    assert refusal_of(b"GET / HTTP/1.1\r\nx: " + b"y" * 200 + b"\n\r\n", step) == 431


@pytest.mark.parametrize("step", [1, 7, 2_000])
def test_a_few_empty_lines_before_each_request_are_passed_over_and_more_are_refused(step: int) -> None:
    few = b"\r\n" * EMPTY_LINES_MAX
    request = few + b"GET / HTTP/1.1\r\n\r\n"
    reader = HttpReader(head_bytes_max=100, body_bytes_max=100, send=lambda sent: None)
    heard = 0
    for start in range(0, 2 * len(request), step):
        reader.receive_data((request * 2)[start : start + step])
        while reader.next_request() is not None:
            heard += 1
            reader.answer(200, b"", b"")
    assert heard == 2
    assert refusal_of(few + b"\r\n" + request, step) == 400


def test_a_stranger_cannot_have_very_many_empty_lines_looked_at() -> None:
    reader = HttpReader(head_bytes_max=100, body_bytes_max=100, send=lambda sent: None)
    reader.receive_data(b"\r\n" * 131_072)
    with pytest.raises(Http1Error):
        reader.next_request()
    assert reader.buffered > 262_000
