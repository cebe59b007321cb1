"""Places in a list, as text that nobody but this broker can make: base64url of a position and an HMAC, which also
covers the list, its filter and who asks. Pure."""

import base64
import binascii
import hmac
import json
from collections.abc import Mapping
from typing import Any

import orjson

from vibemq.errors import InvalidPayload

_SEAL_BYTES = 16
LENGTH_MAX = 4096


class CursorSeal:
    """Args:
    key: of the broker's life; with another one no cursor of before is read.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def seal(self, position: Any, place: str, filters: Mapping[str, Any], user: str) -> str:
        """`position`: JSON-ready, where the next page begins."""
        body = orjson.dumps(position)
        return base64.urlsafe_b64encode(self._digest(body, place, filters, user) + body).decode().rstrip("=")

    def open(self, cursor: str, place: str, filters: Mapping[str, Any], user: str) -> Any:
        """Raises InvalidPayload: it was made for another list, filter or user, by another run of the broker, or by
        nobody."""
        if len(cursor) > LENGTH_MAX or not cursor.isascii():
            raise _foreign()
        try:
            sealed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise _foreign() from None
        digest, body = sealed[:_SEAL_BYTES], sealed[_SEAL_BYTES:]
        if not hmac.compare_digest(digest, self._digest(body, place, filters, user)):
            raise _foreign()
        return orjson.loads(body)

    def _digest(self, body: bytes, place: str, filters: Mapping[str, Any], user: str) -> bytes:
        # Nobody has looked at the filters yet: numbers of any length and lone surrogates are no fault of ours.
        about = json.dumps([place, user, dict(filters)], sort_keys=True).encode()
        return hmac.digest(self._key, len(about).to_bytes(8) + about + body, "sha256")[:_SEAL_BYTES]


def _foreign() -> InvalidPayload:
    return InvalidPayload(
        "cursor does not belong to this list, filter and user, or the broker was restarted; read the list from its "
        "beginning, without a cursor",
        "cursor",
    )
