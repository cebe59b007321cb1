"""From a request to the arguments of an operation, as the row of the contract says; and what may stand in it. Pure."""

import re
from collections.abc import Callable, Collection, Mapping
from functools import cache
from math import inf
from typing import Any
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError

from vibemq.errors import InvalidMessage, InvalidPayload
from vibemq.operations import Operation
from vibemq.operations import arguments as operations_arguments
from vibemq.operations.reading.instants import INSTANTS, read_in
from vibemq.web.api.answers import seen_tag
from vibemq.web.api.contract import Contract, Endpoint, Exchange, Parameter
from vibemq.web.api.guardrails.misplaced import body_fields, unknown_field, unknown_parameter
from vibemq.web.api.idempotency import checked_key

CURSOR = Parameter("cursor", {"type": "string"}, "Where the page begins: `next` of the page before.")
GUARDS = {
    **operations_arguments.GUARDS,
    "filter": "which would mean every letter; give an object, {} for every letter",
}
"""Fields that keep a request from doing more than was meant, and why one that a program has left empty is refused."""
PARAMETERS_MAX = 200
_READ_HEADER: Mapping[str, Callable[[str], str | None]] = {"Idempotency-Key": checked_key, "If-Match": seen_tag}
_WHOLE = re.compile(r"-?\d{1,20}", re.ASCII)
_UNSIGNED_ZONE = re.compile(r" (?=\d\d:\d\d$)", re.ASCII)
"""Of an instant: a `+` that was not escaped comes as a blank."""


@cache
def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """JSON schema of the arguments of an operation, or of a body; made when it is needed."""
    return model.model_json_schema(by_alias=True)


def arguments_of(operation: Operation[Any]) -> type[operations_arguments.Arguments]:
    model: type[operations_arguments.Arguments] = operation.arguments
    return model


class RequestReader:
    """Knows, for each row, which parameters and fields there are, and their types."""

    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self._parameters: dict[int, tuple[Parameter, ...]] = {}

    # -- what there is ----------------------------------------------------------------------------------------------

    def parameters(self, endpoint: Endpoint) -> tuple[Parameter, ...]:
        """Of the query."""
        known = self._parameters.get(id(endpoint))
        if known is None:
            known = self._parameters[id(endpoint)] = self._make_parameters(endpoint)
        return known

    def _make_parameters(self, endpoint: Endpoint) -> tuple[Parameter, ...]:
        page = _page_of(endpoint) if endpoint.items else ()
        if endpoint.query is not None:
            return endpoint.query + page
        if endpoint.method not in ("GET", "DELETE") or not endpoint.operation or endpoint.arguments is not None:
            return page
        left_out = {endpoint.after, "limit"} if endpoint.items else set()
        own = (
            Parameter(name, schema, schema.get("description", ""), required)
            for name, (schema, required) in self.free_arguments(endpoint).items()
            if name not in left_out
        )
        return (*own, *page)

    def free_arguments(self, endpoint: Endpoint) -> dict[str, tuple[dict[str, Any], bool]]:
        """Arguments of the operation that the query or the body brings: name -> (schema, required)."""
        operation: Operation[Any] = self._contract.operations[endpoint.operation]
        schema = schema_of(arguments_of(operation))
        required = set(schema.get("required", ()))
        names = {argument: name for name, argument in endpoint.renamed.items()}
        taken = {endpoint.renamed.get(name, name) for name in endpoint.names} | set(endpoint.fixed) | endpoint.hidden
        taken |= set(endpoint.from_headers.values())
        return {
            names.get(argument, argument): (about, argument in required)
            for argument, about in schema.get("properties", {}).items()
            if argument not in taken
        }

    # -- what has come ----------------------------------------------------------------------------------------------

    def query(self, endpoint: Endpoint, text: str) -> dict[str, Any]:
        """Raises InvalidPayload, InvalidMessage."""
        try:
            pairs = parse_qsl(
                text, keep_blank_values=True, max_num_fields=PARAMETERS_MAX, errors="strict", separator="&"
            )
        except ValueError as error:
            raise InvalidMessage(f"the query cannot be read: {error}") from None
        known = {parameter.name: parameter for parameter in self.parameters(endpoint)}
        found: dict[str, list[str]] = {}
        for name, value in pairs:
            if name not in known:
                raise unknown_parameter(endpoint, name, known, self._body_fields(endpoint))
            found.setdefault(name, []).append(_UNSIGNED_ZONE.sub("+", value) if name in INSTANTS else value)
        given: dict[str, Any] = read_in({name: typed(known[name], values) for name, values in found.items()})
        for parameter in endpoint.query or ():
            if parameter.name in given:
                _check(parameter, given[parameter.name])
        limit = given.get("limit") if endpoint.items else None
        if type(limit) is int and limit > endpoint.limit_max:
            raise InvalidPayload(
                f"limit is {limit:,}, and a page of this list has at most {endpoint.limit_max:,} items; ask for the "
                "next page with cursor",
                "limit",
            )
        if limit is not None:
            _check(_page_of(endpoint)[0], limit)
        return given

    def arguments(self, exchange: Exchange) -> dict[str, Any]:
        """Of the operation. Raises InvalidPayload."""
        endpoint = exchange.endpoint
        for guard, why in GUARDS.items() if isinstance(exchange.body, dict) else ():
            if exchange.body.get(guard, 0) is None:
                raise InvalidPayload(f"{guard} is null, {why}", guard)
        if endpoint.arguments is not None:
            given: dict[str, Any] = read_in(endpoint.arguments(exchange))
            return given
        given = exchange.query if endpoint.method in ("GET", "DELETE") else (exchange.body or {})
        given = {**given, **{name: exchange.query[name] for name in ("limit",) if name in exchange.query}}
        if endpoint.method not in ("GET", "DELETE"):
            self._check_fields(endpoint, given)
        path = {name: self._typed_path(endpoint, name, value) for name, value in exchange.path.items()}
        merged = {endpoint.renamed.get(name, name): value for name, value in {**given, **path}.items()}
        merged.pop("cursor", None)
        brought = exchange.request.headers
        headers = {
            argument: _READ_HEADER[name](brought[name])
            for name, argument in endpoint.from_headers.items()
            if name in brought
        }
        return {**read_in(merged), **headers, **endpoint.fixed}

    def _check_fields(self, endpoint: Endpoint, body: Mapping[str, Any]) -> None:
        known = self.free_arguments(endpoint)
        for name, value in body.items():
            if name not in known:
                raise unknown_field(endpoint, name, known, self._preview(endpoint))
            if value is None and not _may_be_null(known[name][0]):
                raise InvalidPayload(f"{name} is null; give a value, or leave it out", name)

    def _body_fields(self, endpoint: Endpoint) -> Collection[str]:
        has_operation = endpoint.operation and endpoint.arguments is None
        return body_fields(endpoint, self.free_arguments(endpoint) if has_operation else ())

    def _preview(self, endpoint: Endpoint) -> str:
        """Of an endpoint without dry run: the one that says what it would do."""
        name = arguments_of(self._contract.operations[endpoint.operation]).preview
        found = (f"{one.method} {one.path}" for one in self._contract.endpoints if name and one.operation == name)
        return next(found, "")

    def _typed_path(self, endpoint: Endpoint, name: str, value: str) -> Any:
        operation: Operation[Any] = self._contract.operations[endpoint.operation]
        about = schema_of(arguments_of(operation))["properties"].get(endpoint.renamed.get(name, name), {})
        return typed(Parameter(name, about, ""), [value])


def _page_of(endpoint: Endpoint) -> tuple[Parameter, ...]:
    schema = {"type": "integer", "minimum": 1, "maximum": endpoint.limit_max}
    return Parameter("limit", schema, f"Most items of the page, up to {endpoint.limit_max:,}."), CURSOR


def checked(model: type[BaseModel], body: Any) -> dict[str, Any]:
    """A body that has a model of its own. Raises InvalidPayload, which says where the trouble is."""
    try:
        return model.model_validate(body if body is not None else {}).model_dump(exclude_unset=True, by_alias=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        pointer = "/".join(str(part)[:40] for part in first["loc"])
        known = ", ".join(info.alias or name for name, info in model.model_fields.items())
        wrong = first["msg"].replace("Input should be", "must be", 1)
        why = f"is unknown; known are {known}" if first["type"] == "extra_forbidden" else wrong
        raise InvalidPayload(f"field {pointer or 'body'} {why}", pointer) from None


def typed(parameter: Parameter, values: list[str]) -> Any:
    """Text of a URL as the type says; what does not fit stays text, and the operation refuses it. Raises
    InvalidPayload for a parameter that may stand there once only."""
    schema = _told(parameter.schema)
    match schema.get("type"):
        case "array":
            inner = Parameter(parameter.name, schema.get("items", {}), "")
            return [typed(inner, [part]) for value in values for part in value.split(",")]
        case "object":
            return _object_of(parameter.name, values)
    if len(values) > 1:
        raise InvalidPayload(f"query parameter {parameter.name} is given more than once", parameter.name)
    (value,) = values
    match schema.get("type"):
        case "integer" if _WHOLE.fullmatch(value):
            return int(value)
        case "number" if re.fullmatch(r"-?\d{1,20}(\.\d{1,20})?", value, re.ASCII):
            return float(value)
        case "boolean" if value in ("true", "false"):
            return value == "true"
    return value


def _check(parameter: Parameter, value: Any) -> None:
    """Of a parameter that the endpoint itself declares: perhaps no operation looks at it. Raises InvalidPayload."""
    schema = _told(parameter.schema)
    if "enum" in schema:
        fits, wanted = value in schema["enum"], "one of " + ", ".join(schema["enum"])
    elif schema.get("type") == "boolean":
        fits, wanted = type(value) is bool, "true or false"
    elif schema.get("type") == "integer":
        least, most = schema.get("minimum", -inf), schema.get("maximum", inf)
        fits = type(value) is int and least <= value <= most
        wanted = f"a whole number from {least:,} to {most:,}" if most < inf else f"a whole number, {least:,} or more"
    else:
        return
    if not fits:
        raise InvalidPayload(f"{parameter.name} must be {wanted}, not {str(value)[:40]!r}", parameter.name)


def _may_be_null(schema: Mapping[str, Any]) -> bool:
    """One that says nothing of types takes everything."""
    if "anyOf" in schema:
        return any(choice.get("type") == "null" for choice in schema["anyOf"])
    kind = schema.get("type", "" if "$ref" in schema else "null")
    return "null" in ([kind] if isinstance(kind, str) else kind)


def _told(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The form that is not null."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice.get("type") != "null"]
    return choices[0] if choices else schema


def _object_of(parameter: str, values: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for value in values:
        name, content = _named(parameter, value)
        if name in found:
            raise InvalidPayload(
                f"query parameter {parameter} gives {name[:40]!r} more than once; leave all but one out", parameter
            )
        found[name] = content
    return found


def _named(parameter: str, value: str) -> tuple[str, str]:
    name, colon, content = value.partition(":")
    if not colon or not name:
        raise InvalidPayload(f"query parameter {parameter} is written {parameter}=name:value", parameter)
    return name, content
