"""What is answered to a request."""

from dataclasses import dataclass

import orjson

from vibemq.errors import VibeMQError
from vibemq.protocols.eventmesh.http.codes import RetCode, ret_code_of
from vibemq.protocols.eventmesh.http.settings import EventMeshHttpSettings

_KEEP = b"content-type: text/plain; charset=UTF-8\r\nconnection: keep-alive\r\ncode: %s\r\n%s"
_CLOSE = b"content-type: text/plain; charset=UTF-8\r\nconnection: close\r\ncode: %s\r\n%s"
_CODE_UNITS_MAX = 64
QUIET_CODES = frozenset({"203", "206", "207"})
"""Their successes do not say which server answers."""


@dataclass(slots=True)
class EventMeshAnswer:
    """Of one request."""

    ret_code: RetCode = RetCode.SUCCESS
    text: str = "success"
    status: int = 200
    body: bytes | None = None
    """Instead of code and text."""


@dataclass(slots=True)
class AnswerStyle:
    """How the request wants its answer."""

    code: str = "0"
    """The header `code` as it was given."""
    uri: bool = False
    """An endpoint by its path: newer numbers, and no time."""
    keep: bool = True


def refusal_answer(error: VibeMQError, otherwise: RetCode) -> EventMeshAnswer:
    status = getattr(error, "status", 200)
    return EventMeshAnswer(ret_code_of(error, otherwise), str(error), status)


class AnswerWriter:
    def __init__(self, settings: EventMeshHttpSettings) -> None:
        self._identity = (
            f"eventmeshcluster: {settings.cluster}\r\neventmeship: {settings.address}\r\n"
            f"eventmeshenv: {settings.environment}\r\neventmeshidc: {settings.idc}\r\n"
        ).encode()
        self._last: tuple[tuple[str, bool, bool] | None, bytes] = None, b""
        """Answers of a connection are mostly alike."""

    def headers(self, answer: EventMeshAnswer, style: AnswerStyle) -> bytes:
        """As lines."""
        quiet = style.code in QUIET_CODES and answer.ret_code is RetCode.SUCCESS
        asked = style.code, style.keep, quiet or answer.status != 200
        if asked != self._last[0]:
            code, identity = _printable(style.code).encode(), b"" if asked[2] else self._identity
            self._last = asked, (_KEEP if style.keep else _CLOSE) % (code, identity)
        return self._last[1]

    @staticmethod
    def body(answer: EventMeshAnswer, style: AnswerStyle, now: int) -> bytes:
        if answer.body is not None:
            return answer.body
        if style.uri:
            return orjson.dumps({"retCode": answer.ret_code.newer, "retMsg": answer.text})
        return orjson.dumps({"retCode": answer.ret_code.number, "retMsg": answer.text, "resTime": now})


def _printable(text: str) -> str:
    """What came in a header may go out in one; of a query parameter that is not known."""
    kept = "".join(character for character in text[:_CODE_UNITS_MAX] if " " <= character <= "~").strip()
    return kept or "0"
