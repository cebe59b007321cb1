"""The reference of the API as Markdown: `python -m vibemq.web.api.reference` prints what stands in
docs/reference/http-api.md behind its marker; a test compares them."""

from collections.abc import Mapping
from typing import Any

from vibemq.web.api.contract import JSON, Contract, Endpoint
from vibemq.web.api.endpoints import ENDPOINTS
from vibemq.web.api.errors import MEANINGS
from vibemq.web.api.openapi import DescriptionWriter, needs

TYPES = {"integer": "whole number", "boolean": "true or false", "string": "text", "number": "number"}


def reference() -> str:
    """One section for each path, in the order of the contract; the errors at the end."""
    contract = Contract(ENDPOINTS)
    writer = _Sections(contract)
    parts: list[str] = []
    for noun in dict.fromkeys(endpoint.path.split("/")[1] for endpoint in ENDPOINTS):
        own = [endpoint for endpoint in ENDPOINTS if endpoint.path.split("/")[1] == noun]
        parts += [f"## /{noun}", *map(writer.section, own)]
    return "\n\n".join([*parts, _errors()]) + "\n"


class _Sections:
    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self._writer = DescriptionWriter(contract)

    def section(self, endpoint: Endpoint) -> str:
        told = self._writer.operation(endpoint)
        lines = [f"### {endpoint.method} {endpoint.path}", "", f"{endpoint.summary} {self._facts(endpoint)}"]
        rows = [
            (each["name"], f"{each['in']}, {_type(each['schema'])}", each["required"], each.get("description", ""))
            for each in told["parameters"]
        ]
        body = self._writer.body_schema(endpoint) if "requestBody" in told else {}
        required = body.get("required", ())
        rows += [
            (name, f"body, {_type(about)}", name in required, about.get("description") or _fields(about))
            for name, about in body.get("properties", {}).items()
        ]
        if body.get("description") and not body.get("properties"):
            rows.append(("the body", _type(body), told["requestBody"]["required"], body["description"]))
        if rows:
            lines += ["", "| name | where | required | meaning |", "|---|---|---|---|"]
            lines += [
                f"| `{name}` | {where} | {'yes' if needed else 'no'} | {_plain(meaning)} |"
                for name, where, needed, meaning in rows
            ]
        own = ", ".join(f"`{code}`" for code in endpoint.errors)
        if own:
            lines += ["", f"Errors of its own: {own}."]
        return "\n".join(lines)

    def _facts(self, endpoint: Endpoint) -> str:
        facts = [f"Permissions: {needs(self._contract, endpoint)}."]
        if endpoint.operation:
            facts.append(f"Operation: `{endpoint.operation}`.")
        statuses = ", ".join(map(str, (endpoint.status, *endpoint.more_statuses)))
        answer = "" if endpoint.produces == JSON else f", `{endpoint.produces}`"
        facts.append(f"Answer: {statuses}{answer}{', a page' if endpoint.items else ''}.")
        if endpoint.consumes != (JSON,) and endpoint.method != "GET":
            facts.append(f"Content types: {', '.join(f'`{each}`' for each in endpoint.consumes)}.")
        return " ".join(facts)


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ") or "–"


def _type(schema: Mapping[str, Any]) -> str:
    choices = [choice for choice in schema.get("anyOf", [schema]) if choice.get("type") != "null"]
    if isinstance(kinds := schema.get("type"), list):
        choices = [{"type": kind} for kind in kinds if kind != "null"]
    return " or ".join(dict.fromkeys(map(_one_type, choices)))


def _one_type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(f"`{each}`" for each in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_one_type(schema.get('items', {}))}"
    return TYPES.get(str(schema.get("type")), "object")


def _fields(schema: Mapping[str, Any]) -> str:
    """Of the objects of a list."""
    inner = schema.get("items", {})
    names = [f"`{name}`" for name in inner.get("properties", {})]
    needed = [f"`{name}`" for name in inner.get("required", ())]
    return f"Each with {', '.join(names)}; required: {', '.join(needed) or 'none'}." if names else ""


def _errors() -> str:
    rows = [
        f"| `{code}` | {meaning.status} | {meaning.title} |"
        for code, meaning in sorted(MEANINGS.items(), key=lambda entry: (entry[1].status, entry[0]))
    ]
    return "\n".join(["## Errors", "", "| code | status | title |", "|---|---|---|", *rows])


if __name__ == "__main__":
    print(reference(), end="")  # noqa: T201
