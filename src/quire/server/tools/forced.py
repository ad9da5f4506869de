"""Calls that a grammar forces, so that they work with any model: a JSON array of {"name": ..., "arguments": {...}}."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from quire.server.tools.json_reading import Reading, skip_blanks
from quire.server.tools.mistral import read_array
from quire.server.tools.parser import ToolParser

_MOST_CALLS = 16


class ForcedParser(ToolParser):
    """Reads what `forced_calls_schema` describes."""

    openings = markers = ()

    def __init__(self, tool_names: Collection[str]) -> None:
        super().__init__(tool_names)
        self._begin("")

    def _read(self, marker: str, character: str) -> Reading[str]:
        character = yield from skip_blanks(character)
        return (yield from read_array(character, self))


def forced_calls_schema(functions: Sequence[Mapping[str, Any]], *, is_parallel: bool) -> dict[str, Any]:
    """The JSON schema of one call at least.

    Args:
        functions: that may be called: dicts with a `name` and, unless they take anything, `parameters` (a JSON schema).
        is_parallel: there may be several calls.
    """
    calls, definitions = [], {}
    for number, function in enumerate(functions):
        key = f"arguments{number}"
        definitions[key] = _moved(function.get("parameters") or {"type": "object"}, f"#/$defs/{key}")
        calls.append(
            {
                "type": "object",
                "properties": {"name": {"const": function["name"]}, "arguments": {"$ref": f"#/$defs/{key}"}},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
        )
    item = calls[0] if len(calls) == 1 else {"anyOf": calls}
    most = _MOST_CALLS if is_parallel else 1
    return {"type": "array", "items": item, "minItems": 1, "maxItems": most, "$defs": definitions}


def _moved(schema: Any, place: str) -> Any:
    """A schema whose own root is now at this place, so that what refers to it still does."""
    if isinstance(schema, list):
        return [_moved(item, place) for item in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {}
    for key, value in schema.items():
        if key == "$ref" and isinstance(value, str) and value.startswith("#"):
            moved[key] = place + value[1:]
        else:
            moved[key] = value if key in ("const", "enum", "default", "examples") else _moved(value, place)
    return moved
