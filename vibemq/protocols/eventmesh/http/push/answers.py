"""What a subscriber's answer means for the message. Source: docs/spec/eventmesh.md, "Pushes"."""

from dataclasses import dataclass

import orjson

from vibemq.protocols.eventmesh.http.codes import PushOutcome
from vibemq.protocols.eventmesh.messages.large_json import has_many_lists
from vibemq.protocols.session import HttpAnswer

_DONE, _RETRY, _FAILED, _NOT_LISTENING = (0, 1), 2, 3, 5
_READ = frozenset({200, 201, 202})
_NO_CONTENT, _TOO_MANY = 204, 429
_GONE = frozenset({410, 415})


@dataclass(frozen=True, slots=True)
class PushVerdict:
    outcome: PushOutcome
    reason: str = ""
    delay_ms: int | None = None
    """Until the next try; None = as the queue's backoff says."""


_OK = PushVerdict(PushOutcome.DONE)


def verdict_of(answer: HttpAnswer, retry_after_max_ms: int) -> PushVerdict:
    status = answer.status
    if status in _READ:
        return _by_body(answer.body)
    if status == _NO_CONTENT:
        return _OK
    if status in _GONE:
        return PushVerdict(PushOutcome.GIVE_UP, f"the subscriber answered with status {status}")
    reason = f"the subscriber answered with status {status}"
    if status == _TOO_MANY:
        return PushVerdict(PushOutcome.RETRY, reason, _retry_after(answer, retry_after_max_ms))
    return PushVerdict(PushOutcome.RETRY, reason)


def _by_body(body: bytes) -> PushVerdict:
    try:
        value = None if has_many_lists(body) else orjson.loads(body)
    except orjson.JSONDecodeError:
        return PushVerdict(PushOutcome.GIVE_UP, 'the subscriber\'s answer is not JSON; it must be like {"retCode": 1}')
    code = value.get("retCode") if isinstance(value, dict) else None
    if isinstance(code, str) and code.isascii() and code.isdigit():
        code = int(code[:9])
    if isinstance(code, float) and code.is_integer():
        code = int(code)
    if type(code) is int and code in _DONE:
        return _OK
    if code == _RETRY:
        return PushVerdict(PushOutcome.RETRY, "the subscriber asked for another try (retCode 2)")
    if code == _NOT_LISTENING:
        return PushVerdict(PushOutcome.RETRY, "the subscriber does not listen to the topic (retCode 5)")
    return PushVerdict(PushOutcome.GIVE_UP, f"the subscriber failed (retCode {str(code)[:32]})")


def _retry_after(answer: HttpAnswer, most_ms: int) -> int | None:
    text = answer.headers.get("retry-after", "").strip()
    if not (text.isascii() and text.isdigit()):
        return None
    return min(int(text[:18]), most_ms)
