"""Large messages that come in parts: what has come of each, for the session that sends them."""

from collections.abc import Callable
from dataclasses import dataclass, field

from vibemq.errors import Blocked, InvalidPayload

TOTAL_BYTES = 64 << 20
"""Of all sessions, unless a single message may be larger."""
LEAST_BYTES = 64 * 1024
"""What an upload counts as at least, so that their number is limited too."""
IDLE_MS = 60_000
"""An upload of which no part has come for so long makes room for others."""

UploadKey = tuple[str, str, int]
"""Of a session: queue, import and position."""


@dataclass(slots=True, eq=False)
class _Upload:
    size: int
    touched_at: int
    text: bytearray = field(default_factory=bytearray)

    @property
    def reserved(self) -> int:
        return max(self.size, LEAST_BYTES)


class Uploads:
    """An upload reserves its whole size when it begins, so whoever has begun can finish."""

    def __init__(self, *, largest: Callable[[], int], now: Callable[[], int]) -> None:
        """`largest`: bytes of one upload, and of all of one session, as they are limited now. `now`: milliseconds."""
        self._largest = largest
        self._now = now
        self._reserved = 0
        self._sessions: dict[int, dict[UploadKey, _Upload]] = {}

    @property
    def reserved_bytes(self) -> int:
        return self._reserved

    def add(self, session: int, key: UploadKey, part: bytes, *, offset: int, size: int) -> bytes | None:
        """The whole text, once its last part is there.

        Raises:
            InvalidPayload: the part does not fit behind those before.
            Blocked: other sessions send so many large messages that this one has to wait.
        """
        if not offset:
            self._begin(session, key, size)
        upload = self._sessions.get(session, {}).get(key)
        if upload is None or len(upload.text) != offset or upload.size != size:
            raise InvalidPayload(f"no part of this message ends at {offset}; send it again from offset 0 on")
        if offset + len(part) > size:
            self._drop(session, key)
            raise InvalidPayload(f"the parts of the message are longer than its size, {size:,} bytes")
        upload.touched_at = self._now()
        upload.text += part
        if len(upload.text) < size:
            return None
        self._drop(session, key)
        return bytes(upload.text)

    def forget_session(self, session: int) -> None:
        for key in list(self._sessions.get(session, ())):
            self._drop(session, key)

    def _begin(self, session: int, key: UploadKey, size: int) -> None:
        upload = _Upload(size, self._now())
        own = self._sessions.get(session, {})
        if key in own:
            self._drop(session, key)
        # A session that begins another one gives up the one that it began first.
        session_bytes = max(self._largest(), LEAST_BYTES)
        while own and sum(each.reserved for each in own.values()) + upload.reserved > session_bytes:
            self._drop(session, next(iter(own)))
        total_bytes = max(session_bytes, TOTAL_BYTES)
        if self._reserved + upload.reserved > total_bytes:
            self._drop_idle()
        if self._reserved + upload.reserved > total_bytes:
            raise Blocked("other connections are sending too many large messages at once; try again in a few seconds")
        self._sessions.setdefault(session, {})[key] = upload
        self._reserved += upload.reserved

    def _drop_idle(self) -> None:
        before = self._now() - IDLE_MS
        for session, own in list(self._sessions.items()):
            for key in [key for key, upload in own.items() if upload.touched_at <= before]:
                self._drop(session, key)

    def _drop(self, session: int, key: UploadKey) -> None:
        own = self._sessions[session]
        self._reserved -= own.pop(key).reserved
        if not own:
            del self._sessions[session]
