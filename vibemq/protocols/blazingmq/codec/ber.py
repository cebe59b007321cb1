"""BER as the C++ SDK speaks it: the subset of X.690 that the schema needs.

Written is what its own encoder writes: constructed values of indefinite length, numbers in as few bytes as they need.
Read is any definite or indefinite form; unknown fields are skipped. Depth and number of values are bounded. Source:
docs/spec/blazingmq.md, "BER".
"""

from collections.abc import Iterator
from typing import Any

from vibemq.errors import RemoteProtocolError
from vibemq.protocols.blazingmq.codec import schema
from vibemq.protocols.blazingmq.codec.schema import Choice, Element, Scalar, SchemaMismatch

_UNIVERSAL_SEQUENCE = b"\x30\x80"
_END = b"\0\0"
_CONTEXT = 0x80
_CONSTRUCTED = 0x20
_TAG_BYTES_MAX = 5
_LENGTH_BYTES_MAX = 8
_INTEGER_BYTES_MAX = 9
_UNIVERSAL_SEQUENCE_TAG = 16


def encode_choice(of: Choice, value: Any) -> bytes:
    """A message that is a tagged choice: negotiation, authentication."""
    pieces = [_UNIVERSAL_SEQUENCE, _constructed(0)]
    _put_selection(pieces, of, value)
    pieces += (_END, _END)
    return b"".join(pieces)


def encode_request(of: Choice, r_id: int | None, value: Any) -> bytes:
    """A control message: the id of the request, and an untagged choice."""
    pieces = [_UNIVERSAL_SEQUENCE]
    if r_id is not None:
        pieces.append(_primitive(0, _integer(r_id)))
    pieces.append(_constructed(1))
    _put_selection(pieces, of, value)
    pieces += (_END, _END)
    return b"".join(pieces)


def _put_selection(pieces: list[bytes], of: Choice, value: Any) -> None:
    number, _ = of.of_class[type(value)]
    pieces.append(_constructed(number))
    _put_fields(pieces, value)
    pieces.append(_END)


def _put_fields(pieces: list[bytes], value: Any) -> None:
    for part in schema.elements_of(type(value)):
        held = getattr(value, part.attribute)
        if held is None:
            continue
        if part.is_array:
            pieces.append(_constructed(part.number))
            for item in held:
                pieces.append(_UNIVERSAL_SEQUENCE)
                _put_fields(pieces, item)
                pieces.append(_END)
            pieces.append(_END)
        elif schema.is_sequence(part.type):
            pieces.append(_constructed(part.number))
            _put_fields(pieces, held)
            pieces.append(_END)
        else:
            pieces.append(_primitive(part.number, _content(part, held)))


def _content(part: Element, value: Any) -> bytes:
    if part.type is Scalar.STRING:
        return bytes(value.encode())
    if part.type is Scalar.BYTES:
        return bytes(value)
    if part.type is Scalar.BOOL:
        return b"\1" if value else b"\0"
    return _integer(value)


def _integer(value: int) -> bytes:
    bits = (value if value >= 0 else ~value).bit_length()
    return value.to_bytes(bits // 8 + 1, "big", signed=True)


def _tag(form: int, number: int) -> bytes:
    if number < 31:
        return bytes((form | number,))
    septets = [number & 127]
    while number := number >> 7:
        septets.append(number & 127 | 128)
    return bytes((form | 31, *reversed(septets)))


def _constructed(number: int) -> bytes:
    return _tag(_CONTEXT | _CONSTRUCTED, number) + b"\x80"


def _primitive(number: int, content: bytes) -> bytes:
    size = len(content)
    if size < 128:
        length = bytes((size,))
    else:
        count = (size.bit_length() + 7) // 8
        length = bytes((128 | count,)) + size.to_bytes(count, "big")
    return _tag(_CONTEXT, number) + length + content


# -- reading ----------------------------------------------------------------------------------------------------------


def decode_choice(of: Choice, data: bytes) -> Any:
    """Of what `encode_choice` writes. None: a selection that the schema does not have.

    Raises:
        RemoteProtocolError: it cannot be read.
        SchemaMismatch: it can be read, and a value is missing or cannot be.
    """
    reader = _BerReader(data)
    selected = None
    for form, number, end in reader.root():
        if (form, number) == (_CONTEXT | _CONSTRUCTED, 0):
            selected = _selection(reader, of, end)
        else:
            reader.skip(form, end)
    return selected


def decode_request(of: Choice, data: bytes) -> tuple[int | None, Any]:
    """(request id, value) of what `encode_request` writes; None: neither has an id, nor a selection that is known.

    A value that does not match the schema is returned as the `SchemaMismatch`, so that the request can be answered.

    Raises:
        RemoteProtocolError: it cannot be read.
    """
    reader = _BerReader(data)
    r_id, selected = None, None
    for form, number, end in reader.root():
        if (form, number) == (_CONTEXT, 0):
            r_id = schema.checked_number(Scalar.INT, "rId", reader.integer(end))
        elif (form, number) == (_CONTEXT | _CONSTRUCTED, 1):
            place = reader.place()
            try:
                selected = _selection(reader, of, end)
            except SchemaMismatch as mismatch:
                selected = mismatch
                reader.go_back(place)
                reader.skip(form, end)
        else:
            reader.skip(form, end)
    return r_id, selected


def _selection(reader: "_BerReader", of: Choice, end: int | None) -> Any:
    selected = None
    for form, number, inner in reader.members(end):
        found = of.by_number.get(number) if form == _CONTEXT | _CONSTRUCTED else None
        if found is None:
            reader.skip(form, inner)
        elif selected is not None:
            raise SchemaMismatch(f"{found[0]} and another selection in one message")
        else:
            selected = _sequence(reader, found[1], inner)
    return selected


def _sequence(reader: "_BerReader", cls: type[Any], end: int | None) -> Any:
    values: dict[str, Any] = {}
    known = schema.elements_by_number(cls)
    for form, number, inner in reader.members(end):
        part = known.get(number) if form & 0xC0 == _CONTEXT else None
        if part is None:
            reader.skip(form, inner)
            continue
        if part.attribute in values:
            raise SchemaMismatch(f"{part.name} is there twice")
        if (form & _CONSTRUCTED != 0) != (part.is_array or schema.is_sequence(part.type)):
            raise SchemaMismatch(f"{part.name} is a {'group' if form & _CONSTRUCTED else 'single value'}")
        values[part.attribute] = _value(reader, part, inner)
    return schema.build(cls, values)


def _value(reader: "_BerReader", part: Element, end: int | None) -> Any:
    if part.is_array:
        items = []
        for form, number, inner in reader.members(end):
            if (form, number) == (_CONSTRUCTED, _UNIVERSAL_SEQUENCE_TAG):
                items.append(_sequence(reader, part.type, inner))
            else:
                reader.skip(form, inner)
        return tuple(items)
    if schema.is_sequence(part.type):
        return _sequence(reader, part.type, end)
    if schema.is_enumeration(part.type):
        return schema.checked_member(part.type, part.name, reader.integer(end))
    if part.type is Scalar.STRING:
        try:
            return reader.content(end).decode()
        except UnicodeDecodeError as error:
            raise SchemaMismatch(f"{part.name} is not UTF-8 at byte {error.start}") from None
    if part.type is Scalar.BYTES:
        return reader.content(end)
    if part.type is Scalar.BOOL:
        content = reader.content(end)
        if len(content) != 1:
            raise SchemaMismatch(f"{part.name} is a boolean of {len(content)} bytes")
        return content != b"\0"
    return schema.checked_number(part.type, part.name, reader.integer(end))


class _BerReader:
    """Walks through encoded values; whoever gets one from `members` reads it to its end before asking for the next."""

    def __init__(self, data: bytes) -> None:
        self.at = 0
        self.depth = 0
        """Constructed values around the place."""
        self._data = data
        self._limits = [len(data)]
        """Ends of the definite values around the place."""
        self._values_left = schema.VALUES_MAX

    def root(self) -> Iterator[tuple[int, int, int | None]]:
        form, number, end = self._header()
        if (form, number) != (_CONSTRUCTED, _UNIVERSAL_SEQUENCE_TAG):
            raise RemoteProtocolError(f"a BER message begins with the tag {form:#04x} {number}, not with a sequence")
        yield from self.members(end)
        if self.at != len(self._data):
            raise RemoteProtocolError(f"{len(self._data) - self.at} bytes behind a BER message")

    def members(self, end: int | None) -> Iterator[tuple[int, int, int | None]]:
        """(class and form, tag number, end or None for indefinite) of each value within a constructed one."""
        self.depth += 1
        if self.depth > schema.DEPTH_MAX:
            raise RemoteProtocolError(f"more than {schema.DEPTH_MAX} levels of BER values")
        if end is not None:
            self._limits.append(end)
        data = self._data
        while True:
            if end is None:
                if data.startswith(_END, self.at) and self.at + 2 <= self._limits[-1]:
                    self.at += 2
                    break
            elif self.at == end:
                break
            yield self._header()
        if end is not None:
            self._limits.pop()
        self.depth -= 1

    def _header(self) -> tuple[int, int, int | None]:
        self._values_left -= 1
        if self._values_left < 0:
            raise RemoteProtocolError(f"more than {schema.VALUES_MAX} values in a BER message")
        first = self._octet()
        form, number = first & 0xE0, first & 31
        if number == 31:
            number = self._long_number()
        length = self._octet()
        if length == 128:
            if not form & _CONSTRUCTED:
                raise RemoteProtocolError("a single BER value of indefinite length")
            return form, number, None
        if length > 128:
            count = length & 127
            if count > _LENGTH_BYTES_MAX:
                raise RemoteProtocolError(f"a BER length of {count} bytes")
            length = 0
            for _ in range(count):
                length = length << 8 | self._octet()
        end = self.at + length
        if end > self._limits[-1]:
            raise RemoteProtocolError(f"a BER value of {length} bytes, where {self._limits[-1] - self.at} are left")
        return form, number, end

    def _octet(self) -> int:
        if self.at >= self._limits[-1]:
            raise RemoteProtocolError("a BER message is cut short")
        octet = self._data[self.at]
        self.at += 1
        return octet

    def _long_number(self) -> int:
        number = 0
        for _ in range(_TAG_BYTES_MAX):
            octet = self._octet()
            number = number << 7 | octet & 127
            if octet < 128:
                return number
        raise RemoteProtocolError(f"a BER tag of more than {_TAG_BYTES_MAX} bytes")

    def place(self) -> tuple[int, int, int]:
        return self.at, self.depth, len(self._limits)

    def go_back(self, place: tuple[int, int, int]) -> None:
        """To a place before a value that could not be read to its end."""
        self.at, self.depth, limits = place
        del self._limits[limits:]

    def skip(self, form: int, end: int | None) -> None:
        """Pass over a value with everything in it."""
        if end is not None:
            # Its inside is of no interest, sound or not.
            self.at = end
            return
        assert form & _CONSTRUCTED
        for inner_form, _, inner in self.members(None):
            self.skip(inner_form, inner)

    def content(self, end: int | None) -> bytes:
        assert end is not None
        content = self._data[self.at : end]
        self.at = end
        return content

    def integer(self, end: int | None) -> int:
        content = self.content(end)
        if not 1 <= len(content) <= _INTEGER_BYTES_MAX:
            raise RemoteProtocolError(f"a BER integer of {len(content)} bytes")
        return int.from_bytes(content, "big", signed=True)
