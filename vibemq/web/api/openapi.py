"""The description of the API in OpenAPI 3.1, made from the contract: `python -m vibemq.web.api.openapi` prints what
stands in docs/reference/openapi.json; a test compares them."""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import orjson
from pydantic import BaseModel

from vibemq._version import __version__
from vibemq.auth.matrix import in_words
from vibemq.errors import ErrorCode
from vibemq.model.access import Action
from vibemq.operations.reading.instants import INSTANTS
from vibemq.web.api.arguments import RequestReader, arguments_of, schema_of
from vibemq.web.api.contract import BASE, Contract, Endpoint, Parameter
from vibemq.web.api.errors import MEANINGS, Code, HttpCode
from vibemq.web.api.idempotency import KEY_MAX, KEY_PATTERN
from vibemq.web.api.kinds import CHANGING, Kind

PROBLEM = "application/problem+json"
ETAG_PATTERN = "^[!-~]+$"
_PATH_NAMES = {
    "queue": "Name of the queue.",
    "sequence": "Sequence of the message.",
    "dead_id": "Number of the dead letter.",
}
"""Of paths whose operation has no argument of that name."""
EVERYWHERE: tuple[Code, ...] = (
    ErrorCode.INVALID_MESSAGE,
    HttpCode.CROSS_ORIGIN,
    HttpCode.OPEN_BROKER,
    HttpCode.UNKNOWN_HOST,
    ErrorCode.INVALID_PAYLOAD,
    ErrorCode.RATE_LIMITED,
    ErrorCode.SERVER_ERROR,
    HttpCode.RECOVERING,
)
WITH_LOGIN: tuple[Code, ...] = (ErrorCode.AUTH_REQUIRED, ErrorCode.AUTH_FAILED, ErrorCode.NOT_AUTHORIZED)
WITH_OPERATION: tuple[Code, ...] = (ErrorCode.TIMEOUT, ErrorCode.INVALID_QUEUE)
WITH_BODY: tuple[Code, ...] = (
    HttpCode.REQUEST_TIMEOUT,
    ErrorCode.MESSAGE_TOO_LARGE,
    HttpCode.UNSUPPORTED_MEDIA_TYPE,
)
WITH_CHANGE: tuple[Code, ...] = (ErrorCode.SHUTTING_DOWN, ErrorCode.BLOCKED, ErrorCode.INVALID_OPTIONS)
WITH_KEY: tuple[Code, ...] = (HttpCode.IDEMPOTENCY_BUSY, ErrorCode.IDEMPOTENCY_CONFLICT)


def errors_of(endpoint: Endpoint) -> list[Code]:
    """Every refusal that the endpoint can answer with."""
    codes: list[Code] = [*EVERYWHERE, *endpoint.errors]
    codes += (ErrorCode.AUTH_FAILED,) if endpoint.kind is Kind.LOGIN else ()
    codes += () if endpoint.anybody else WITH_LOGIN
    codes += WITH_OPERATION if endpoint.operation else ()
    codes += WITH_BODY if endpoint.method in ("POST", "PUT", "PATCH") else ()
    codes += WITH_CHANGE if endpoint.kind in CHANGING else ()
    codes += WITH_KEY if endpoint.idempotent else ()
    return sorted(set(codes), key=lambda code: (MEANINGS[code].status, code))


@cache
def description_of(contract: Contract) -> bytes:
    """As JSON."""
    return orjson.dumps(described(contract), option=orjson.OPT_INDENT_2) + b"\n"


def described(contract: Contract) -> dict[str, Any]:
    writer = DescriptionWriter(contract)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in contract.endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = writer.operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "VibeMQ HTTP API",
            "version": __version__,
            "license": {"name": "MIT", "identifier": "MIT"},
            "description": "Version 1 only grows: clients ignore fields of answers that they do not know.",
        },
        "servers": [{"url": BASE}],
        "security": [{"bearer": []}, {"basic": []}, {"session": []}, {}],
        "paths": paths,
        "components": {
            "schemas": {"Problem": _PROBLEM_SCHEMA, **writer.schemas},
            "responses": dict(sorted(writer.responses.items())),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "An access token, or the shared token."},
                "basic": {"type": "http", "scheme": "basic"},
                "session": {"type": "apiKey", "in": "cookie", "name": "vibemq_session"},
            },
        },
    }


_PROBLEM_SCHEMA = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong, where, and how to repair it."},
        "code": {"type": "string", "enum": sorted(str(code) for code in MEANINGS)},
        "instance": {"type": "string", "description": "Id of the request, as in X-Request-Id."},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"pointer": {"type": "string"}, "detail": {"type": "string"}},
            },
        },
    },
}


def needs(contract: Contract, endpoint: Endpoint) -> str:
    """The permissions in words."""
    if endpoint.anybody:
        return "none, not even a login"
    asked = [in_words(need) for need in contract.permissions(endpoint) if need.action is not Action.OWN]
    return ", ".join(each for each in asked if each != "none") or "a login"


def without_key(endpoint: Endpoint) -> str:
    """Why a request that changes something takes no key, and what becomes of one that has one."""
    if not endpoint.keyless:
        return ""
    return f" It takes no Idempotency-Key, because {endpoint.keyless}; with one it is 422 INVALID_PAYLOAD."


class DescriptionWriter:
    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self._reader = RequestReader(contract)
        self.schemas: dict[str, Any] = {}
        self.responses: dict[str, Any] = {}

    def operation(self, endpoint: Endpoint) -> dict[str, Any]:
        words = re.sub(r"\W+", "_", f"{endpoint.method.lower()}{endpoint.path}").strip("_")
        told: dict[str, Any] = {
            "operationId": words,
            "summary": endpoint.summary,
            "description": f"Permissions: {needs(self._contract, endpoint)}.{without_key(endpoint)}",
            "tags": [endpoint.path.split("/")[1].split(".")[0]],
            "parameters": [*self._path(endpoint), *self._query(endpoint), *self._headers(endpoint)],
            "responses": self._responses(endpoint),
        }
        if endpoint.anybody:
            told["security"] = [{}]
        if endpoint.operation:
            told["x-vibemq-operation"] = endpoint.operation
        if (body := self._body(endpoint)) is not None:
            told["requestBody"] = body
        return told

    # -- what comes in ----------------------------------------------------------------------------------------------

    def _path(self, endpoint: Endpoint) -> Iterable[dict[str, Any]]:
        operation = self._contract.operations.get(endpoint.operation)
        known = schema_of(arguments_of(operation))["properties"] if operation is not None else {}
        for name in endpoint.names:
            said = {"description": _PATH_NAMES[name]} if name in _PATH_NAMES else {}
            about = known.get(endpoint.renamed.get(name, name), {"type": "string", "minLength": 1, **said})
            yield {"name": name, "in": "path", "required": True, "schema": self._schema(about), **_described(about)}

    def _query(self, endpoint: Endpoint) -> Iterable[dict[str, Any]]:
        for parameter in self._reader.parameters(endpoint):
            yield self._parameter(parameter)

    def _parameter(self, parameter: Parameter) -> dict[str, Any]:
        schema = self._schema(_not_null(parameter.schema))
        if parameter.name in INSTANTS:
            schema = _instant(schema)
        told = {"name": parameter.name, "in": "query", "required": parameter.required, "schema": schema}
        if schema.get("type") == "object":
            # As name:value, repeated: what OpenAPI has no word for is told as text.
            told["schema"] = {"type": "array", "items": {"type": "string", "pattern": "^[^:]+:"}}
            told["explode"] = True
        return {**told, **({"description": parameter.description} if parameter.description else {})}

    def _headers(self, endpoint: Endpoint) -> Iterable[dict[str, Any]]:
        if "If-Match" in endpoint.from_headers:
            required = HttpCode.PRECONDITION_REQUIRED in endpoint.errors
            about = "ETag of what the caller has seen; `*`: whatever it is."
            yield _header("If-Match", about, ETAG_PATTERN, required=required)
        for parameter in endpoint.headers:
            told = {"name": parameter.name, "in": "header", "required": False, "schema": dict(parameter.schema)}
            yield {**told, "description": parameter.description}
        if endpoint.idempotent or "Idempotency-Key" in endpoint.from_headers:
            yield _header("Idempotency-Key", "A name of this request: the same one is carried out once.", KEY_PATTERN)

    def _body(self, endpoint: Endpoint) -> dict[str, Any] | None:
        if endpoint.method not in ("POST", "PUT", "PATCH"):
            return None
        schema = self.body_schema(endpoint)
        if not schema:
            return None
        content = {media: {"schema": schema} for media in endpoint.consumes}
        return {"required": bool(schema.get("required")), "content": content}

    def body_schema(self, endpoint: Endpoint) -> dict[str, Any]:
        """Of the body; {} when there is none."""
        if isinstance(endpoint.body, type) and issubclass(endpoint.body, BaseModel):
            return self._schema(schema_of(endpoint.body))
        if endpoint.body is not None:
            return self._schema(endpoint.body)
        if endpoint.arguments is not None or not endpoint.operation:
            return {}
        free = self._reader.free_arguments(endpoint)
        if not free:
            return {}
        # The definitions that the arguments refer to.
        self._schema({"$defs": schema_of(arguments_of(self._contract.operations[endpoint.operation])).get("$defs", {})})
        return {
            "type": "object",
            "additionalProperties": False,
            "required": [name for name, (_, required) in free.items() if required],
            "properties": {
                name: _instant(about) if name in INSTANTS else self._schema(about) for name, (about, _) in free.items()
            },
        }

    # -- what goes out ----------------------------------------------------------------------------------------------

    def _responses(self, endpoint: Endpoint) -> dict[str, Any]:
        answers: dict[str, Any] = {}
        schema = self._schema(endpoint.response)
        if endpoint.items:
            schema = {
                "type": "object",
                "required": ["items", "next"],
                "properties": {
                    "items": {"type": "array", "items": schema},
                    "next": {"type": ["string", "null"], "description": "`cursor` of the next page."},
                },
            }
        for status in (endpoint.status, *endpoint.more_statuses):
            content = {} if status == 204 else {"content": {endpoint.produces: {"schema": schema} if schema else {}}}
            answers[str(status)] = {"description": "Done.", **content}
        if endpoint.reads and endpoint.conditional and endpoint.handler is None:
            answers["304"] = {"description": "As the client knows it (If-None-Match)."}
        by_status: dict[int, list[Code]] = {}
        for code in errors_of(endpoint):
            by_status.setdefault(MEANINGS[code].status, []).append(code)
        for number, codes in by_status.items():
            answers[str(number)] = {"$ref": f"#/components/responses/{self._problem(codes)}"}
        answers["431"] = {"$ref": "#/components/responses/HEADER_TOO_LONG"}
        self.responses["HEADER_TOO_LONG"] = {
            "description": "URL and headers are longer than 16 KiB; the connection ends.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        }
        return answers

    def _problem(self, codes: list[Code]) -> str:
        """Name of the component: endpoints that refuse alike share it."""
        name = ".".join(codes)
        self.responses[name] = {
            "description": "; ".join(f"{code}: {MEANINGS[code].title}" for code in codes),
            "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        return name

    def _schema(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """A schema of pydantic's, whose own definitions become components."""
        told: dict[str, Any] = self._moved(dict(schema))
        for name, definition in told.pop("$defs", {}).items():
            self.schemas[name] = definition
        return told

    def _moved(self, value: Any) -> Any:
        if isinstance(value, dict):
            if INSTANTS & set(properties := value.get("properties", ())):
                named = {name: _instant(properties[name]) for name in INSTANTS & set(properties)}
                value = {**value, "properties": {**properties, **named}}
            return {
                name: f"#/components/schemas/{inner.rpartition('/')[2]}" if name == "$ref" else self._moved(inner)
                for name, inner in value.items()
                if name not in ("title", "default") or not isinstance(inner, str | None)
            }
        return [self._moved(inner) for inner in value] if isinstance(value, list) else value


def _instant(schema: Mapping[str, Any]) -> dict[str, Any]:
    """RFC 3339; or milliseconds since 1970, as operations take them."""
    return {
        "anyOf": [{"type": "string", "format": "date-time"}, {"type": "integer", "minimum": 0}],
        **_described(schema),
    }


def _not_null(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = [choice for choice in schema.get("anyOf", ()) if choice.get("type") != "null"]
    return choices[0] if len(choices) == 1 else schema


def _described(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": schema["description"]} if "description" in schema else {}


def _header(name: str, description: str, pattern: str, *, required: bool = False) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": required,
        "schema": {"type": "string", "minLength": 1, "maxLength": KEY_MAX, "pattern": pattern},
        "description": description,
    }


if __name__ == "__main__":
    from vibemq.web.api.endpoints import ENDPOINTS

    print(description_of(Contract(ENDPOINTS)).decode(), end="")  # noqa: T201
