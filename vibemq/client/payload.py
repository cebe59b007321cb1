"""Bodies of any kind to payload bytes, and back.

The protocol's payload is JSON unless the header `content-type` says otherwise, so what is not JSON is labelled
`application/octet-stream`. Bytes travel untouched.
"""

import sys
from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from typing import Any, Final, get_args, get_type_hints, is_typeddict

import orjson

from vibemq.errors import LocalProtocolError
from vibemq.model.arguments import misfit

CONTENT_TYPE: Final = "content-type"
BINARY: Final = "application/octet-stream"

_MODELS: Final = "a type that pydantic reads: its models, dataclasses, list[…] of them"
JSON_STARTS: Final = frozenset(b'{["-0123456789tfn \t\r\n')
"""What is not JSON mostly shows it in its first byte."""


def encode(body: object) -> tuple[bytes, bool]:
    """Payload bytes, and whether they are JSON.

    bytes-like: as they are. Pydantic models: their own JSON. All else (str, dict, list, dataclass, number, None …):
    JSON by orjson, with msgspec's and pydantic's models inside it as these libraries write them.

    Raises:
        LocalProtocolError: the body has no JSON form.
    """
    if isinstance(body, bytes):
        return body, is_json(body)
    if isinstance(body, bytearray | memoryview):
        raw = bytes(body)
        return raw, is_json(raw)
    if isinstance(body, type):
        raise LocalProtocolError(f"the class {body.__name__} cannot be published; publish an object of it")
    dump = getattr(body, "model_dump_json", None)
    if dump is not None:
        return dump().encode(), True
    try:
        return orjson.dumps(body, _json_form), True
    except (TypeError, orjson.JSONEncodeError) as exc:
        raise LocalProtocolError(
            f"a body of type {type(body).__name__} cannot be published: {exc.__cause__ or exc}"
        ) from exc


def _json_form(value: Any) -> Any:
    """What orjson has no form for: models of other libraries."""
    if _contains_struct(type(value)):
        import msgspec

        return orjson.Fragment(msgspec.json.encode(value))
    dump = getattr(value, "model_dump_json", None)
    if dump is None or isinstance(value, type):
        raise TypeError(f"{type(value).__name__} has no JSON form")
    return orjson.Fragment(dump())


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


class ReadPayload:
    """What messages and replies have in common: ways to read the payload that they carry."""

    __slots__ = ()

    @property
    def payload(self) -> bytes:
        """The bytes that were sent."""
        raise NotImplementedError

    @property
    def headers(self) -> dict[str, str]:
        raise NotImplementedError

    @property
    def content_type(self) -> str | None:
        """None means JSON."""
        return self.headers.get(CONTENT_TYPE)

    @property
    def body(self) -> Any:
        """The payload as its content type says: a JSON value, text, or bytes."""
        return decode(self.payload, self.content_type)

    def json(self) -> Any:
        """The payload parsed as JSON, whatever its content type. Raises ValueError when it is not."""
        return orjson.loads(self.payload)


def validator(model: type[Any] | None) -> Callable[[bytes], Any] | None:
    """What reads payloads as `model`, and raises the ValidationError of the model's library.

    Types that contain a `msgspec.Struct` are read by msgspec, all others by pydantic.
    """
    if model is None:
        return None
    if _contains_struct(model):
        import msgspec

        return msgspec.json.Decoder(model).decode
    if isinstance(model, str | dict):
        # Pydantic takes a text for a name that is still to come, and reads a dict as a schema of its own.
        raise misfit("model", model, _MODELS)
    # Imported late: a quarter of a second that programs without models need not pay.
    from pydantic import PydanticUserError, TypeAdapter
    from pydantic.errors import PydanticUndefinedAnnotation

    try:
        return TypeAdapter(model).validate_json
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        raise misfit("model", model, _MODELS) from error


def _contains_struct(model: Any) -> bool:
    """Without importing msgspec: a program that has a Struct has imported it."""
    msgspec = sys.modules.get("msgspec")
    return msgspec is not None and _contains(model, msgspec.Struct, set())


def _contains(model: Any, wanted: type[Any], seen: set[type[Any]]) -> bool:
    """Also in fields of dataclasses and typed dictionaries; `seen` are those that were looked into."""
    if isinstance(model, type):
        if issubclass(model, wanted):
            return True
        if model not in seen and (is_dataclass(model) or is_typeddict(model)):
            seen.add(model)
            return any(_contains(kind, wanted, seen) for kind in _kinds_of_fields(model))
    return any(_contains(part, wanted, seen) for part in get_args(model))


def _kinds_of_fields(model: type[Any]) -> Iterable[Any]:
    try:
        return get_type_hints(model).values()
    except (NameError, AttributeError, TypeError):
        # A name that only the library finds, or nobody, or an annotation that is no type.
        return ()
