"""Calls that a grammar forces, so that they work with any model: a JSON array of {"name": ..., "arguments": {...}}."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from quire.server.tools.json_reading import Reading, skip_blanks
from quire.server.tools.mistral import read_array
from quire.server.tools.parser import ToolParser

_MOST_CALLS = 16
#: Of JSON Schema: keywords whose values are schemas by name, those whose values are no schemas, and those beside which
#: an object may have more than its `properties`.
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_VALUES = frozenset({"const", "enum", "default", "examples", "required"})
_OPEN = frozenset(
    {"additionalProperties", "unevaluatedProperties", "patternProperties", "anyOf", "oneOf", "$ref", "if"}
)


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
        schema = function.get("parameters") or {"type": "object", "properties": {}}
        definitions[key] = _moved(schema, f"#/$defs/{key}", closes=not _joins(schema))
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


def _moved(schema: Any, place: str, *, closes: bool) -> Any:
    """A schema whose own root is now at this place, so that what refers to it still does.

    Args:
        closes: objects that say nothing of further properties have none, so that a model at random comes to an end.
    """
    if isinstance(schema, list):
        return [_moved(item, place, closes=closes) for item in schema]
    if not isinstance(schema, dict):
        return schema
    moved: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "$ref" and isinstance(value, str) and value.startswith("#"):
            moved[key] = place + value[1:]
        elif key in _NAMED and isinstance(value, dict):
            moved[key] = {name: _moved(item, place, closes=closes) for name, item in value.items()}
        else:
            moved[key] = value if key in _VALUES else _moved(value, place, closes=closes)
    if closes and "properties" in moved and not _OPEN & moved.keys():
        moved["additionalProperties"] = False
    return moved


def _joins(schema: Any) -> bool:
    """Whether objects are put together of several schemas, none of which may forbid the others' properties."""
    if isinstance(schema, list):
        return any(map(_joins, schema))
    return isinstance(schema, dict) and ("allOf" in schema or any(map(_joins, schema.values())))
