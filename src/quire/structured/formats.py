"""JSON Schema formats as patterns, where llguidance accepts invalid values. They allow valid values only, but not
all."""

from __future__ import annotations

from typing import Any

_YEAR = r"([1-9]\d{3}|0[1-9]\d{2}|00[1-9]\d|000[1-9])"
_DATE = rf"{_YEAR}-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-(0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8]))"
_TIME = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)"
_LABEL = r"[a-zA-Z]([a-zA-Z0-9]{0,40}[a-zA-Z0-9])?"
_HOST = rf"{_LABEL}(\.{_LABEL}){{0,3}}"
_LOCAL = r"[a-zA-Z0-9_%+-]{1,20}(\.[a-zA-Z0-9_%+-]{1,20}){0,2}"
_PATTERNS = {
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}T{_TIME}$",
    "hostname": f"^{_HOST}$",
    "email": f"^{_LOCAL}@{_LABEL}(\\.{_LABEL}){{1,2}}$",
}
_MAPS = ("properties", "patternProperties", "$defs", "definitions")  #: keywords whose values are schemas by name
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_SINGLE = ("items", "additionalItems", "additionalProperties", "contains", "not")


def with_strict_formats(schema: Any) -> Any:
    """Replace these formats by patterns in a schema of checked depth."""
    if not isinstance(schema, dict):
        return schema
    found = dict(schema)
    for name in _MAPS:
        if isinstance(found.get(name), dict):
            found[name] = {key: with_strict_formats(value) for key, value in found[name].items()}
    for name in _LISTS:
        if isinstance(found.get(name), list):
            found[name] = [with_strict_formats(value) for value in found[name]]
    for name in _SINGLE:
        if isinstance(found.get(name), dict):
            found[name] = with_strict_formats(found[name])
    given = found.get("format")
    pattern = _PATTERNS.get(given) if isinstance(given, str) else None
    kinds = found.get("type", "string")
    if pattern is not None and "string" in (kinds if isinstance(kinds, list) else [kinds]):
        del found["format"]
        if "pattern" in found:
            found["allOf"] = [*found.get("allOf", []), {"pattern": pattern}]
        else:
            found["pattern"] = pattern
    return found
