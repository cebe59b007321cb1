"""TypeScript's types of what the API answers, from its description. The console's JSDoc names them."""

import json
from pathlib import Path
from typing import Any

DESCRIPTION = Path(__file__).parents[2] / "docs" / "reference" / "openapi.json"
SIMPLE = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def answer_types(description: Path = DESCRIPTION) -> str:
    """`Api["jobs/{job}"]`: what a GET of this path answers."""
    described = json.loads(description.read_text())
    lines = ["// Made from docs/reference/openapi.json by tools/console/types.py.", "interface Api {"]
    for path, operations in described["paths"].items():
        schema = _answer(operations.get("get", {}))
        if schema is not None:
            lines.append(f"  {json.dumps(path.lstrip('/'))}: {type_of(schema, described)};")
    return "\n".join([*lines, "}"]) + "\n"


def type_of(schema: dict[str, Any], described: dict[str, Any]) -> str:
    """An object without named fields may have any; one with some has no others, so that a field which a page shows is
    described."""
    if "$ref" in schema:
        return type_of(described["components"]["schemas"][schema["$ref"].rpartition("/")[2]], described)
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return _either(type_of(one, described) for one in schema[choice])
    if "enum" in schema:
        return _either(json.dumps(value) for value in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"])
    kind = schema.get("type")
    if isinstance(kind, list):
        return _either(type_of({**schema, "type": one}, described) for one in kind)
    if kind == "array":
        return f"{type_of(schema.get('items', {}), described)}[]"
    if kind == "object":
        return _object(schema, described)
    return SIMPLE.get(str(kind), "any")


def _object(schema: dict[str, Any], described: dict[str, Any]) -> str:
    fields = schema.get("properties")
    if not fields:
        return "Record<string, any>"
    required = schema.get("required", ())
    inside = (
        f"{json.dumps(name)}{'' if name in required else '?'}: {type_of(one, described)}"
        for name, one in fields.items()
    )
    return "{ " + "; ".join(inside) + " }"


def _either(types: Any) -> str:
    found = list(dict.fromkeys(types))
    return found[0] if len(found) == 1 else f"({' | '.join(found)})"


def _answer(operation: dict[str, Any]) -> dict[str, Any] | None:
    for status, answer in operation.get("responses", {}).items():
        for media, content in answer.get("content", {}).items():
            if status.startswith("2") and media == "application/json":
                schema: dict[str, Any] | None = content.get("schema")
                return schema
    return None
