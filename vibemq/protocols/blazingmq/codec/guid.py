"""Message GUIDs of 16 bytes, and the ids under which messages are stored.

    version u2 = 1 | counter u22 | nanoseconds since the generator began u56 | client id u48

A GUID is opaque here: it is not zero, and the same in ACK, PUSH, CONFIRM and retransmission. The id of a stored message
is its text, 32 upper-case hexadecimal digits, so equal GUIDs are found by the engine's deduplication. Source:
docs/spec/blazingmq.md, "Message GUID".
"""

from binascii import Error, unhexlify
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b

GUID_BYTES = 16
GUID_TEXT_BYTES = 2 * GUID_BYTES

_ZERO = bytes(GUID_BYTES)
_VERSION = 1 << 126
_COUNTER_MAX = (1 << 22) - 1
_TICK_MAX = (1 << 56) - 1
_NS_PER_MS = 1_000_000


def guid_text(guid: bytes) -> str:
    return guid.hex().upper()


def guid_of_message_id(message_id: bytes) -> bytes:
    """The GUID of a stored message: the one it was posted with, or one made from the id that another protocol gave it.

    The same id always has the same GUID, so a message that is delivered again has it too.
    """
    if len(message_id) == GUID_TEXT_BYTES:
        try:
            guid = unhexlify(message_id)
        except Error:
            guid = _ZERO
        if guid != _ZERO:
            return guid
    made = int.from_bytes(blake2b(message_id, digest_size=GUID_BYTES).digest(), "big")
    return (made & (_VERSION - 1) | _VERSION).to_bytes(GUID_BYTES, "big")


def guids_of_message_ids(ids: Sequence[bytes]) -> list[bytes]:
    """The same of several."""
    if all(len(message_id) == GUID_TEXT_BYTES for message_id in ids):
        with suppress(Error):
            joined = unhexlify(b"".join(ids))
            guids = [joined[at : at + GUID_BYTES] for at in range(0, len(joined), GUID_BYTES)]
            if _ZERO not in guids:
                return guids
    return [guid_of_message_id(message_id) for message_id in ids]


class GuidMaker:
    """Makes GUIDs for the messages of one client that has none of its own.

    Args:
        client_id: 12 hexadecimal digits, unique among all generators.
        now: instant of its beginning, ms.
    """

    def __init__(self, client_id: str, now: int) -> None:
        self._client_id = int(client_id[:12], 16)
        self._began = now
        self._counter = 0

    def make(self, now: int) -> bytes:
        """Unique within the generator for as many calls per millisecond as the counter has values, four million."""
        tick = (now - self._began) * _NS_PER_MS & _TICK_MAX
        value = _VERSION | self._counter << 104 | tick << 48 | self._client_id
        self._counter = self._counter + 1 & _COUNTER_MAX
        return value.to_bytes(GUID_BYTES, "big")
