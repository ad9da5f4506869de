"""Parameters of tests, of which some are quick and the others slow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import pytest


def quick(names: Iterable[Any], among: Iterable[Any]) -> list[Any]:
    """Return parameters of a test: those in `names` are quick, the others slow."""
    chosen = list(names)
    return [
        each
        if each in chosen
        else pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=pytest.mark.slow)
        for each in among
    ]


def in_turns(first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    """Return all pairs as a test's parameters, of which some that have each value of either list are quick."""
    longest = max(len(first), len(second))
    pairs = [(first[i % len(first)], second[i % len(second)]) for i in range(longest)]
    return quick(pairs, product(first, second))
