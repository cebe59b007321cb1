"""JSON of peers is measured before it is read: lists in lists take a hundred times as long as a text of their size."""

import ast
from collections.abc import Iterator
from pathlib import Path

PROTOCOLS = Path(__file__).parents[2] / "vibemq" / "protocols"
MEASURED = {
    "blazingmq/codec/json_codec.py _parsed": "count",
    "eventmesh/http/fields.py json_value": "_check_values",
    "eventmesh/http/fields.py parsed": "_check_values",
    "eventmesh/http/push/answers.py _by_body": "has_many_lists",
    "eventmesh/messages/cloudevent.py _is_json": "has_many_lists",
    "eventmesh/messages/cloudevent.py _kept_headers": "has_many_lists",
    "eventmesh/messages/large_json.py _read": "",  # Of a member up to PARSED_BYTES, or with VALUES_MAX at most.
    "eventmesh/messages/message.py _json_header": "has_many_lists",
    "eventmesh/messages/received.py json_object": "has_many_lists",
    "eventmesh/tcp/frames.py _is_json": "has_many_lists",
    "eventmesh/tcp/package.py read_package": "has_many_lists",
    "native/codec/extensions/decoding.py _parsed": "small_object",
    "native/codec/json_check.py small_object": "values_in",
    "native/commands.py _named": "is_read_at_once",
}
"""The function, and what measures; "": what calls it does."""
SHORT = {
    "eventmesh/http/fields.py heartbeat_items",  # Each item has _ENTITY_BYTES_MAX at most.
    "eventmesh/http/push/registry.py from_row",  # What the broker itself has written.
    "eventmesh/messages/cloudevent.py _last_data",  # Again, and less than `json_object` has read.
    "eventmesh/messages/json_scan.py _loaded",  # One text.
    "eventmesh/tcp/package.py check_seq",  # One number or text.
}
CHECKS = {
    "native/codec/json_check.py",  # It is what asks whether payloads are JSON, in turns: VALUES_AT_ONCE.
}


def reading(path: Path) -> Iterator[tuple[str, set[str]]]:
    """Each function that reads JSON, with what it calls."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            calls = [each.func for each in ast.walk(node) if isinstance(each, ast.Call)]
            names = {call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls}
            if "loads" in names:
                yield f"{path.relative_to(PROTOCOLS)} {node.name}", names


def test_each_place_that_reads_json_of_peers_measures_it_first() -> None:
    found = {name: calls for path in PROTOCOLS.rglob("*.py") for name, calls in reading(path)}
    others = {name for name in found if name.split()[0] in CHECKS and name not in MEASURED}
    assert set(found) - others == MEASURED.keys() | SHORT
    assert {name for name, measure in MEASURED.items() if measure and measure not in found[name]} == set()
