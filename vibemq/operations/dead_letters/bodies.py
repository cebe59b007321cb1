"""What is in the body of a dead letter, for people who look at one: opened, and its digest. Work for a thread. Pure."""

import hashlib
from time import monotonic
from typing import Any

from vibemq.model.rows import RowView
from vibemq.operations.messages import part_json
from vibemq.operations.reading.decoding import decoded, decoded_whole

TOGETHER_MAX = 2
"""Bodies that are looked into at a time: an opened one may take 16 MiB."""
OPENED_BYTES_MAX = 262_144
"""Shown of an opened body: as text with every byte escaped, it still fits an answer."""


def looked_into(row: bytes, *, coding: str | None, digest: bool) -> dict[str, Any]:
    """The SHA-256 of the body as it is stored, and the beginning of what it holds; `decoded_size` is null when there is
    more to open.

    Raises:
        InvalidPayload: it cannot be opened so.
    """
    view, told = RowView(row), dict[str, Any]()
    if digest:
        told["sha256"] = hashlib.sha256(view.payload_view).hexdigest()
    if coding is not None:
        opened = decoded(view.payload_view, coding, OPENED_BYTES_MAX, monotonic)
        told["decoded_size"] = len(opened.data) if opened.whole else None
        told |= part_json(opened.data, 0, whole=opened.whole)
    return told


def whole_body(row: bytes, coding: str) -> memoryview:
    """Raises InvalidPayload, MessageTooLarge."""
    return memoryview(decoded_whole(RowView(row).payload_view, coding, monotonic))
