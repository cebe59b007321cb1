"""What to do about a parameter or a field that a request does not have where it was given. Pure.

It was meant to do something: only where it belongs nowhere, and its loss does no harm, it is to be left out.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any, Protocol

from pydantic import BaseModel

from vibemq.errors import InvalidPayload
from vibemq.model.options import QueueOptions
from vibemq.operations.arguments import unguarded

_OPTIONS = frozenset(field.name for field in fields(QueueOptions))


class _Named(Protocol):
    @property
    def name(self) -> str: ...


class AskedEndpoint(Protocol):
    """What a row of the contract says of a request."""

    @property
    def method(self) -> str: ...
    @property
    def raw(self) -> bool: ...
    @property
    def body(self) -> type[BaseModel] | Mapping[str, Any] | None: ...
    @property
    def from_headers(self) -> Mapping[str, str]: ...
    @property
    def headers(self) -> Sequence[_Named]: ...


def body_fields(endpoint: AskedEndpoint, arguments: Collection[str]) -> Collection[str]:
    """Names of the fields of the body.

    Args:
        arguments: of the operation, which the query or the body brings.
    """
    if endpoint.method not in ("POST", "PUT", "PATCH") or endpoint.raw:
        return ()
    if isinstance(endpoint.body, type) and issubclass(endpoint.body, BaseModel):
        return endpoint.body.model_fields
    if endpoint.body is None:
        return arguments
    named: Collection[str] = endpoint.body.get("properties", _OPTIONS if endpoint.body else ())
    return named


def unknown_parameter(
    endpoint: AskedEndpoint, name: str, known: Collection[str], body: Collection[str]
) -> InvalidPayload:
    """Of the query."""
    if name in body:
        return _refusal("query parameter", name, known, "it is a field of the body: give it there, as JSON")
    return _refusal("query parameter", name, known, _remedy(endpoint, name))


def unknown_field(endpoint: AskedEndpoint, name: str, known: Collection[str], preview: str = "") -> InvalidPayload:
    """Of the body.

    Args:
        preview: what says what the request would do.
    """
    return _refusal("field", name, known, _remedy(endpoint, name, preview))


def _refusal(what: str, name: str, known: Collection[str], remedy: str) -> InvalidPayload:
    takes = f"known are {', '.join(known)}" if known else "this request has none"
    return InvalidPayload(f"{what} {name[:40]!r} is unknown here; {takes}; {remedy}", name[:40])


def _remedy(endpoint: AskedEndpoint, name: str, preview: str = "") -> str:
    headers = {argument: header for header, argument in endpoint.from_headers.items()}
    headers |= {_field_of(header.name): header.name for header in endpoint.headers}
    if name in headers:
        return f"it is the header {headers[name]} of the request: give it there"
    return unguarded(name, preview) or "leave it out"


def _field_of(header: str) -> str:
    """`VibeMQ-TTL-Ms` -> `ttl_ms`"""
    return header.lower().removeprefix("vibemq-").replace("-", "_")
