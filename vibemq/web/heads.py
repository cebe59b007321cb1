"""Heads of requests before they are parsed: what two readers of HTTP/1.1 could read in two ways is refused. Pure.

h11 takes a line feed alone for the end of a line, joins continued lines, and lets a transfer coding overrule a length
(RFC 9112, 2.2, 5.2 and 6.3). Behind a proxy that does otherwise, a request could hide in the body of another one.
"""

import re

HEAD_BYTES_MAX = 16_384
"""First line, headers and the empty line."""
_END = re.compile(rb"\n\r?\n")
"""As h11 sees it."""
_CONTROLS = bytes({*range(32), 127} - set(b"\t\r\n"))
_FRAMING = re.compile(rb"\r\n(content-length|transfer-encoding)[ \t]*:[ \t]*([^\r\n]*)")
"""In lower case."""
_VERSION = re.compile(rb"\A[^\r\n]* HTTP/([0-9])\.[0-9]\r\n")


class HeadRefused(Exception):
    """`status`: of the answer, after which the connection is closed."""

    def __init__(self, why: str, status: int = 400) -> None:
        super().__init__(why)
        self.status = status


def check_head(received: bytes) -> None:
    """`received`: from the beginning of a request on, whole or not. Raises HeadRefused."""
    end = _END.search(received, 0, HEAD_BYTES_MAX)
    if end is None:
        if len(received) >= HEAD_BYTES_MAX:
            raise HeadRefused(f"the header is longer than {HEAD_BYTES_MAX:,} bytes; send less in it", 431)
        return
    head = received[: end.end()]
    if not head.count(b"\n") == head.count(b"\r") == head.count(b"\r\n"):
        raise HeadRefused("a line of the header does not end with CR LF")
    if len(head.translate(None, _CONTROLS)) < len(head):
        raise HeadRefused("the header has a control character")
    if b"\r\n " in head or b"\r\n\t" in head:
        raise HeadRefused("a line of the header is continued in the next one")
    version = _VERSION.search(head)
    if version is not None and version[1] != b"1":
        raise HeadRefused("the version of HTTP must be 1.1", 505)
    framing = _FRAMING.findall(head.lower())
    if len(framing) > 1:
        raise HeadRefused("the length of the body is said more than once; send Content-Length or Transfer-Encoding")
    for name, value in framing:
        if name == b"content-length" and not value.strip(b" \t").isdigit():
            raise HeadRefused("Content-Length is not a number")
        if name != b"content-length" and head.partition(b"\r\n")[0].endswith(b"HTTP/1.0"):
            raise HeadRefused("HTTP/1.0 has no Transfer-Encoding")
        if name != b"content-length" and value.strip(b" \t") != b"chunked":
            raise HeadRefused("the transfer coding is not chunked; send the body as it is, or in chunks", 501)
