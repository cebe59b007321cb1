"""Bodies of any kind to payload bytes, and back.

The protocol's payload is JSON unless the header `content-type` says otherwise, so what is not JSON is labelled
`application/octet-stream`. Bytes travel untouched.
"""

from typing import Any, Final

import orjson

from vibemq.errors import LocalProtocolError

CONTENT_TYPE: Final = "content-type"
BINARY: Final = "application/octet-stream"

JSON_STARTS: Final = frozenset(b'{["-0123456789tfn \t\r\n')
"""What is not JSON mostly shows it in its first byte."""


def encode(body: object) -> tuple[bytes, bool]:
    """Payload bytes, and whether they are JSON.

    bytes-like: as they are. Pydantic models: their own JSON. All else (str, dict, list, dataclass, number, None …):
    JSON by orjson.

    Raises:
        LocalProtocolError: the body has no JSON form.
    """
    if isinstance(body, bytes):
        return body, is_json(body)
    if isinstance(body, bytearray | memoryview):
        raw = bytes(body)
        return raw, is_json(raw)
    dump = getattr(body, "model_dump_json", None)
    if dump is not None:
        return dump().encode(), True
    try:
        return orjson.dumps(body), True
    except (TypeError, orjson.JSONEncodeError) as exc:
        raise LocalProtocolError(f"a body of type {type(body).__name__} cannot be published: {exc}") from exc


def is_json(raw: bytes) -> bool:
    """Whether the bytes are one JSON value; no bytes count as JSON (an absent payload)."""
    if not raw:
        return True
    if raw[0] not in JSON_STARTS:
        return False
    try:
        orjson.loads(raw)
    except orjson.JSONDecodeError:
        return False
    return True


def decode(raw: bytes, content_type: str | None) -> Any:
    """The published value: parsed JSON, text for `text/…`, bytes for any other content type, None when absent."""
    if content_type is None or "json" in content_type:
        return orjson.loads(raw) if raw else None
    if content_type.startswith("text/"):
        return raw.decode(errors="replace")
    return raw
