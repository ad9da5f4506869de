"""Settings: each is defined once, as a dataclass field with a default, a help text and rules for its value.

`quire.cli.options` makes an option of each field; `EnvironmentSettings` also reads it from the environment.
"""

from __future__ import annotations

import math
import operator
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, get_args, get_type_hints

REQUIRED: Any = MISSING
LogLevel = Literal["debug", "info", "warning", "error"]
RankBy = Literal["hybrid", "vectors"]  #: passages by vectors and words, or by vectors only
N = TypeVar("N", int, float)
_LEAST_SIZE = 1024  # bytes; a smaller number lacks its unit
_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _UNITS[_letter] = _UNITS[_letter + "ib"] = 1024**_power
    _UNITS[_letter + "b"] = 1000**_power


def setting(default: Any, help: str, **rules: Any) -> Any:
    """A field that is an option.

    Args:
        default: default value, as a text if `read` is given; `REQUIRED` if there is none.
        help: sentence for the command line's help.
        **rules: any of
            read: parses a text; its ValueError starts with that text.
            metavar: name of the value in help; one of `_METAVARS` by default.
            name: name of the option, if it differs from the field's (a plural, a unit).
            at_least, at_most, above, below: bounds of a number, or of each number of a tuple.
            choices: all valid values.
            is_flag: a bool that can only be switched on.
            envvar: environment variable that every command reads.
            in_environment: False if other code reads QUIRE_<NAME>.
            repr: False for a secret.
    """
    rules.setdefault("metavar", _METAVARS.get(rules.get("read")))
    return field(default=default, repr=rules.pop("repr", True), metadata={"help": help, **rules})


def setting_fields(kind: type[Settings]) -> Iterator[Field[Any]]:
    return (each for each in fields(kind) if "help" in each.metadata)


def option_name(each: Field[Any]) -> str:
    """Return an option's name with underscores, as a parameter."""
    return str(each.metadata.get("name", each.name))


@dataclass(frozen=True)
class Settings:
    """User settings, parsed and checked on creation. A ValueError names the field and the expected values."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = _value(each, getattr(self, each.name))
            object.__setattr__(self, each.name, value)
            if value is not None:
                _check(each, value)

    def changed(self, *names: str) -> list[str]:
        """Return the names whose fields differ from their default."""
        by_name = {each.name: each for each in fields(self)}
        return [name for name in names if getattr(self, name) != _value(by_name[name], by_name[name].default)]

    def as_json(self) -> dict[str, Any]:
        """Return the values for a report, without secrets."""
        values = {each: getattr(self, each.name) for each in fields(self)}
        return {each.name: _as_json(value) if each.repr or value is None else "given" for each, value in values.items()}


@dataclass(frozen=True)
class EnvironmentSettings(Settings):
    """Settings that are also read from the environment, as QUIRE_<NAME of the option>."""

    @classmethod
    def from_env(cls, under: Mapping[str, Any] | None = None, /, **given: Any) -> Self:
        """Make settings from explicit values (None: not given), then the environment, then the values `under` it."""
        hints = get_type_hints(cls)
        values = dict(under or {})
        for each in setting_fields(cls):
            variable = f"QUIRE_{option_name(each).upper()}"
            raw = os.environ.get(variable) if each.metadata.get("in_environment", True) else None
            # For a service named quire, Kubernetes sets QUIRE_PORT=tcp://10.0.0.1:8000 in every pod.
            if raw is not None and not raw.startswith("tcp://"):
                values[each.name] = raw if "read" in each.metadata else _from_text(variable, hints[each.name], raw)
        return cls(**values | {name: value for name, value in given.items() if value is not None})


_BOUNDS: dict[str, Callable[[float, float], bool]] = {
    "at_least": operator.ge,
    "at_most": operator.le,
    "above": operator.gt,
    "below": operator.lt,
}


def _value(each: Field[Any], given: Any) -> Any:
    read = each.metadata.get("read")
    if read is None or not isinstance(given, str):
        return given
    try:
        return read(given)
    except ValueError as error:
        raise ValueError(f"{each.name}={error}") from None


def _check(each: Field[Any], value: Any) -> None:
    rules = each.metadata
    for number in value if isinstance(value, tuple) else (value,):
        if not all(holds(number, rules[name]) for name, holds in _BOUNDS.items() if name in rules):
            shown = ",".join(map(str, value)) if isinstance(value, tuple) else value
            bounds = (f"{name.replace('_', ' ')} {rules[name]}" for name in _BOUNDS if name in rules)
            raise ValueError(f"{each.name}={shown} must be {' and '.join(bounds)}")
    if "choices" in rules and value not in rules["choices"]:
        raise ValueError(f"{each.name}={value!r} is not one of {', '.join(rules['choices'])}")


def _as_json(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple | list):
        return [_as_json(each) for each in value]
    return "inf" if value == math.inf else value  # JSON has no infinity


def _from_text(variable: str, hint: Any, raw: str) -> Any:
    kinds = get_args(hint) or (hint,)
    if bool in kinds:
        if raw.lower() not in ("0", "1", "true", "false", "yes", "no"):
            raise ValueError(f"{variable}={raw!r} is not a yes or no; write 1 or 0")
        return raw.lower() in ("1", "true", "yes")
    for number in (int, float):
        if number in kinds:
            try:
                return number(raw)
            except ValueError:
                raise ValueError(f"{variable}={raw!r} is not a number") from None
    if Ellipsis in kinds:
        return names(raw)
    return Path(raw) if Path in kinds else raw


def parse_size(text: str) -> int:
    """Parse a size such as ``4GiB``, ``500MB`` or ``2g`` into bytes (binary unless it ends in B without an i)."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError(f"{text!r} is not a size; write bytes or a unit, such as 4GiB or 512MiB")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def parse_count(text: str) -> int:
    """Parse a number such as ``8192``, ``8k`` (8,000), ``8K`` (8,192) or ``1m``, as vLLM does."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)([kmgtKMGT]?)\s*", text)
    if match is None or ("." in match[1] and not match[2]):
        raise ValueError(f"{text!r} is not a number of tokens; write it as 8192, 8k or 8K (1,024 each)")
    unit = 1024 if match[2].isupper() else 1000
    return int(float(match[1]) * unit ** " kmgt".index(match[2].lower() or " "))


def check_unit(**sizes: int | None) -> None:
    """Raise ValueError for small sizes without a unit: 4 means 4 GiB in other engines."""
    for name, size in sizes.items():
        if size is not None and 0 < size < _LEAST_SIZE:
            raise ValueError(f"{name}={size} is {size} bytes; write its unit, too, such as {size}GiB")


def names(text: str) -> tuple[str, ...]:
    """Parse a list such as swap,cost."""
    return tuple(part.strip() for part in text.split(","))


def integers(text: str) -> tuple[int, ...]:
    """Parse a list such as 1,2,4."""
    return _read(int, text, text.split(","), "a list of integers such as 16 or 1,2,4")


def numbers(text: str) -> tuple[float, ...]:
    """Parse a list such as 0.5,1,2."""
    return _read(float, text, text.split(","), "a list of numbers such as 0.5,1,2")


def integer_range(text: str) -> tuple[int, ...]:
    """Parse a range of lengths such as 64-512, or one number, into both ends."""
    ends = _read(int, text, _ends(text), "a length such as 128 or a range such as 64-512")
    if not 1 <= ends[0] <= ends[1]:
        raise ValueError(f"{text!r} has no lengths: expected 1 <= low <= high, such as 64-512")
    return ends


def share_range(text: str) -> tuple[float, ...]:
    """Parse a range such as 0.1-0.9, or one number, into both ends."""
    return _read(float, text, _ends(text), "a share such as 0.5 or a range such as 0.1-0.9")


def _ends(text: str) -> list[str]:
    low, _, high = text.partition("-")
    return [low, high or low]


def _read(kind: Callable[[str], N], text: str, parts: Sequence[str], expected: str) -> tuple[N, ...]:
    try:
        return tuple(kind(part) for part in parts)
    except ValueError:
        raise ValueError(f"{text!r} is not {expected}") from None


_METAVARS: dict[Any, str] = {
    parse_size: "SIZE",
    parse_count: "TOKENS",
    integers: "N[,N...]",
    numbers: "X[,X...]",
    integer_range: "N[-N]",
    share_range: "X-X",
}
