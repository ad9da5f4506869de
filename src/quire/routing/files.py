"""Read YAML configuration, with errors that name the file and the entry."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from quire.routing.policy import RoutingError


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a file with a mapping. Raises RoutingError if it is unreadable or holds something else."""
    import yaml

    try:
        # libyaml's loader is ten times as fast, but not always installed.
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        data = yaml.load(path.read_text(encoding="utf-8"), loader)
    except OSError as error:
        raise RoutingError(f"{path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RoutingError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise RoutingError(f"{path} should be a mapping of names to values, and is {type(data).__name__}")
    return data


def check_keys(
    data: Mapping[Any, Any], *, required: Sequence[str] = (), optional: Sequence[str] = (), location: str
) -> None:
    """Raise RoutingError for a missing or unknown key."""
    if missing := [key for key in required if key not in data]:
        raise RoutingError(f"{location} lacks {missing[0]!r}")
    if unknown := [key for key in data if key not in (*required, *optional)]:
        raise RoutingError(f"{location} has {unknown[0]!r}; known are {', '.join((*required, *optional))}")


def numbers_of(data: object, location: str) -> dict[str, float]:
    """Check that `data` maps names to finite numbers, or raise RoutingError."""
    if not isinstance(data, dict):
        raise RoutingError(f"{location} should be a mapping of names to numbers, got {data!r}")
    for name, value in data.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise RoutingError(f"{location}: {name} should be a number, got {value!r}")
    return {str(name): float(value) for name, value in data.items()}


def strings_of(data: object, location: str) -> list[str]:
    """Check that `data` is a non-empty list of non-empty texts, or raise RoutingError."""
    if not isinstance(data, list) or not data:
        raise RoutingError(f"{location} should be a list of texts, got {data!r}")
    if wrong := [each for each in data if not isinstance(each, str) or not each.strip()]:
        raise RoutingError(f"{location} should be a list of texts, and has {wrong[0]!r} (put it in quotes)")
    return data
