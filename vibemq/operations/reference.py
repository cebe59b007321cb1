"""The reference of all operations as Markdown: `python -m vibemq.operations.reference` prints what stands in
docs/reference/admin.md between its markers; a test compares them."""

from typing import Any

from vibemq.auth.matrix import in_words
from vibemq.operations import OPERATIONS
from vibemq.operations.registry import Operation


def reference() -> str:
    """One section for each operation: what it does, what it needs, its arguments."""
    return "\n\n".join(map(_section, OPERATIONS)) + "\n"


def _section(operation: Operation[Any]) -> str:
    needs = ", ".join(map(in_words, operation.permissions))
    head = f"### {operation.name}\n\n{operation.summary} Permissions: {needs}."
    schema = operation.arguments.model_json_schema()
    required = set(schema.get("required", ()))
    rows = [
        f"| `{name}` | {_type(argument)} | {'required' if name in required else _default(argument)} "
        f"| {argument['description']} |"
        for name, argument in schema.get("properties", {}).items()
    ]
    if not rows:
        return f"{head} No arguments."
    return "\n".join([head, "", "| argument | type | default | meaning |", "|---|---|---|---|", *rows])


def _type(argument: dict[str, Any]) -> str:
    choices = [choice for choice in argument.get("anyOf", [argument]) if choice.get("type") != "null"]
    return " or ".join(_one_type(choice) for choice in choices)


def _one_type(choice: dict[str, Any]) -> str:
    match choice.get("type"):
        case "integer":
            return "whole number"
        case "number":
            return "number"
        case "boolean":
            return "true or false"
        case "string":
            return "text"
        case "array":
            item = choice["items"]
            return f"list of {'pairs' if item.get('type') == 'array' else _one_type(item) + 's'}"
        case _:
            return "object"


def _default(argument: dict[str, Any]) -> str:
    default = argument.get("default")
    match default:
        case None:
            return "–"
        case bool():
            return str(default).lower()
        case int():
            return f"{default:,}"
        case _:
            return f"`{default}`"


if __name__ == "__main__":
    print(reference(), end="")  # noqa: T201
