"""Calls that a grammar forces, for any model: a JSON array of {"name": ..., "arguments": {...}}."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from quire.server.tools.families import read_array
from quire.server.tools.json_reading import Reading, skip_blanks
from quire.server.tools.parser import ToolParser

_MAX_CALLS = 16
# Keywords of JSON Schema: with schemas by name, with values that are no schemas, and those that let an object have more
# than its `properties`.
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_VALUES = frozenset({"const", "enum", "default", "examples", "required"})
_OPEN = frozenset(
    {"additionalProperties", "unevaluatedProperties", "patternProperties", "anyOf", "oneOf", "$ref", "if"}
)


class ForcedParser(ToolParser):
    """Parses answers that follow `forced_calls_schema`."""

    openings = markers = ()

    def __init__(self, tool_names: Collection[str]) -> None:
        super().__init__(tool_names)
        self._open("")

    def _read(self, marker: str, character: str) -> Reading[str]:
        character = yield from skip_blanks(character)
        return (yield from read_array(character, self))


def forced_calls_schema(functions: Sequence[Mapping[str, Any]], *, is_parallel: bool) -> dict[str, Any]:
    """Return the JSON schema of one or more calls.

    Args:
        functions: dicts with `name` and optionally `parameters`, a JSON schema.
        is_parallel: allow several calls.
    """
    calls, definitions = [], {}
    for number, function in enumerate(functions):
        key = f"arguments{number}"
        schema = function.get("parameters") or {"type": "object", "properties": {}}
        definitions[key] = _relocated(schema, f"#/$defs/{key}", closes=not _has_all_of(schema))
        calls.append(
            {
                "type": "object",
                "properties": {"name": {"const": function["name"]}, "arguments": {"$ref": f"#/$defs/{key}"}},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
        )
    item = calls[0] if len(calls) == 1 else {"anyOf": calls}
    max_items = _MAX_CALLS if is_parallel else 1
    return {"type": "array", "items": item, "minItems": 1, "maxItems": max_items, "$defs": definitions}


def _relocated(schema: Any, root: str, *, closes: bool) -> Any:
    """Return a schema whose references work below the new root.

    Args:
        closes: forbid additional properties by default, so that a random model comes to an end.
    """
    if isinstance(schema, list):
        return [_relocated(item, root, closes=closes) for item in schema]
    if not isinstance(schema, dict):
        return schema
    moved: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "$ref" and isinstance(value, str) and value.startswith("#"):
            moved[key] = root + value[1:]
        elif key in _NAMED and isinstance(value, dict):
            moved[key] = {name: _relocated(item, root, closes=closes) for name, item in value.items()}
        else:
            moved[key] = value if key in _VALUES else _relocated(value, root, closes=closes)
    if closes and "properties" in moved and not _OPEN & moved.keys():
        moved["additionalProperties"] = False
    return moved


def _has_all_of(schema: Any) -> bool:
    """Whether objects combine several schemas, none of which may forbid the others' properties."""
    if isinstance(schema, list):
        return any(map(_has_all_of, schema))
    return isinstance(schema, dict) and ("allOf" in schema or any(map(_has_all_of, schema.values())))
