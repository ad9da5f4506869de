"""Random JSON Schemas from the standard's keywords and the examples of OpenAI's documentation.

Every schema is bounded (lengths, items, ranges, recursion), so random answers end.
"""

from __future__ import annotations

from random import Random
from typing import Any

Schema = dict[str, Any]

_NAMES = ("name", "age", "tags", "id", "value", "kind", "city", "x y", 'quo"te', "größe")
_FORMATS = ("date", "time", "date-time", "uuid", "ipv4", "ipv6", "email", "duration", "hostname")
_PATTERNS = ("^[a-z]{1,8}$", "^(red|green|blue)$", r"^\d{3}-\d{4}$", "^[A-Z][a-z]{0,5}( [A-Z][a-z]{0,5})?$", "^$")
#: Keywords that llguidance rejects by name.
UNSUPPORTED = (
    "uniqueItems", "contains", "not", "if", "propertyNames", "dependentRequired", "dependentSchemas",
    "unevaluatedProperties", "$dynamicRef",
)  # fmt: skip


def random_schema(seed: int) -> Schema:
    """Return the schema of a seed."""
    rng = Random(seed)
    return rng.choice(_DOCUMENTED)(rng) if rng.random() < 0.25 else _object(rng, 2)


def _object(rng: Random, depth: int) -> Schema:
    names = rng.sample(_NAMES, rng.randint(1, 4))
    schema: Schema = {"type": "object", "properties": {name: _any(rng, depth - 1) for name in names}}
    schema["required"] = names if rng.random() < 0.7 else rng.sample(names, rng.randint(0, len(names)))
    schema["additionalProperties"] = False
    if rng.random() < 0.1:
        schema |= {"title": "Thing", "description": "A thing.", "$comment": "none"}
    return schema


def _any(rng: Random, depth: int) -> Schema:
    kinds = [_string, _string, _integer, _number, _plain, _enum, _nullable]
    if depth > 0:
        kinds += [_object_below, _array, _tuple, _any_of, _one_of, _all_of, _reference, _patterned, _map]
    if rng.random() < 0.015:
        return _unsupported(rng)
    return rng.choice(kinds)(rng, depth)


def _object_below(rng: Random, depth: int) -> Schema:
    return _object(rng, depth)


def _string(rng: Random, depth: int) -> Schema:
    kind = rng.randrange(4)
    if kind == 0:
        return {"type": "string", "format": rng.choice(_FORMATS)}
    if kind == 1:
        return {"type": "string", "pattern": rng.choice(_PATTERNS)}
    low = rng.randint(0, 3)
    return {"type": "string", "minLength": low, "maxLength": low + rng.randint(0, 8)}


def _integer(rng: Random, depth: int) -> Schema:
    low = rng.randint(-1000, 1000)
    schema: Schema = {"type": "integer", "minimum": low, "maximum": low + rng.randint(20, 5000)}
    if rng.random() < 0.3:
        schema = {"type": "integer", "exclusiveMinimum": low, "exclusiveMaximum": low + rng.randint(20, 5000)}
    if rng.random() < 0.2:
        schema["multipleOf"] = rng.choice((2, 3, 5))
    return schema


def _number(rng: Random, depth: int) -> Schema:
    low = round(rng.uniform(-50, 50), 2)
    return {"type": "number", "minimum": low, "maximum": round(low + rng.uniform(1, 500), 2)}


def _plain(rng: Random, depth: int) -> Schema:
    return rng.choice(({"type": "boolean"}, {"type": "null"}, {"const": "fixed"}, {"const": {"a": [1, None]}}))


def _enum(rng: Random, depth: int) -> Schema:
    return {"enum": rng.sample(["a", "b c", 1, 2.5, True, None, 'q"', "é"], rng.randint(1, 4))}


def _nullable(rng: Random, depth: int) -> Schema:
    return {"type": [rng.choice(("integer", "boolean")), "null"]}


def _array(rng: Random, depth: int) -> Schema:
    low = rng.randint(0, 2)
    return {"type": "array", "items": _any(rng, depth - 1), "minItems": low, "maxItems": low + rng.randint(0, 2)}


def _tuple(rng: Random, depth: int) -> Schema:
    items = [_any(rng, depth - 1) for _ in range(rng.randint(1, 3))]
    return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}


def _any_of(rng: Random, depth: int) -> Schema:
    return {"anyOf": [_any(rng, depth - 1) for _ in range(rng.randint(2, 3))]}


def _one_of(rng: Random, depth: int) -> Schema:
    return {"oneOf": [_string(rng, 0), _integer(rng, 0), {"type": "null"}]}


def _all_of(rng: Random, depth: int) -> Schema:
    return {"allOf": [{"type": "string", "maxLength": 9}, {"minLength": 2}]}


def _reference(rng: Random, depth: int) -> Schema:
    return {"$ref": "#/$defs/thing", "$defs": {"thing": {"type": "boolean"}}} if depth < 0 else _object(rng, depth)


def _patterned(rng: Random, depth: int) -> Schema:
    return {
        "type": "object", "patternProperties": {"^[ab]$": _any(rng, 0)}, "additionalProperties": False,
        "maxProperties": 2,
    }  # fmt: skip


def _map(rng: Random, depth: int) -> Schema:
    return {
        "type": "object", "properties": {"k": {"type": "boolean"}}, "required": ["k"],
        "additionalProperties": {"type": "boolean"}, "maxProperties": 1,
    }  # fmt: skip


def _unsupported(rng: Random) -> Schema:
    return {
        "uniqueItems": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "maxItems": 3},
        "contains": {"type": "array", "contains": {"type": "integer"}, "maxItems": 3},
        "not": {"not": {"type": "string"}},
        "if": {"if": {"type": "integer"}, "then": {"minimum": 0}},
        "propertyNames": {"type": "object", "propertyNames": {"maxLength": 3}, "maxProperties": 2},
        "dependentRequired": {"type": "object", "dependentRequired": {"a": ["b"]}, "maxProperties": 2},
        "dependentSchemas": {"type": "object", "dependentSchemas": {"a": {"required": ["b"]}}, "maxProperties": 2},
        "unevaluatedProperties": {"properties": {"a": {"type": "null"}}, "unevaluatedProperties": False},
        "$dynamicRef": {"$dynamicRef": "#node"},
    }[rng.choice(UNSUPPORTED)]


# -- as OpenAI's documentation shows them, bounded ------------------------------------------------------------------


def _short(most: int = 10) -> Schema:
    return {"type": "string", "maxLength": most}


def _closed(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _steps(rng: Random) -> Schema:
    step = _closed(explanation=_short(), output=_short())
    return _closed(steps={"type": "array", "items": step, "maxItems": 2}, final_answer=_short())


def _event(rng: Random) -> Schema:
    return _closed(name=_short(), date=_short(), participants={"type": "array", "items": _short(), "maxItems": 3})


def _interface(rng: Random) -> Schema:
    """A recursive schema that ends with short arrays."""
    node = _closed(
        type={"type": "string", "enum": ["div", "button", "field"]},
        label=_short(),
        children={"type": "array", "items": {"$ref": "#/$defs/leaf"}, "maxItems": 2},
    )
    leaf = _closed(
        type={"type": "string", "enum": ["form"]}, next={"anyOf": [{"$ref": "#/$defs/leaf"}, {"type": "null"}]}
    )
    return {**node, "$defs": {"leaf": leaf}}


def _moderation(rng: Random) -> Schema:
    category = {"type": ["string", "null"], "enum": ["violence", "self_harm", None]}
    return _closed(is_violating={"type": "boolean"}, category=category, explanation_if_violating=_short())


def _definitions(rng: Random) -> Schema:
    address = _closed(number=_short(4), street=_short(), city={"type": "string", "pattern": "^[A-Z][a-z]{2,8}$"})
    user = _closed(name=_short(), age={"type": "number", "minimum": 0, "maximum": 130})
    item = {"anyOf": [{"$ref": "#/$defs/user"}, {"$ref": "#/$defs/address"}]}
    return {**_closed(item=item), "$defs": {"user": user, "address": address}}


def _union(rng: Random) -> Schema:
    """A discriminated union as pydantic writes it."""
    cat = _closed(kind={"const": "cat", "type": "string"}, lives={"type": "integer", "minimum": 1, "maximum": 9})
    dog = _closed(kind={"const": "dog", "type": "string"}, good={"type": "boolean"})
    return _closed(pet={"anyOf": [cat, dog]})


_DOCUMENTED = (_steps, _event, _interface, _moderation, _definitions, _union)
