"""Random numbers depend on their address only."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from itertools import pairwise, product

from hypothesis import given, settings
from hypothesis import strategies as st

import quire
from quire.runner.random import derived_seed, uniform

integers = st.integers(-(2**63), 2**63 - 1)
small = st.integers(0, 2**20)


@settings(deadline=None)
@given(integers, small, small, small)
def test_numbers_are_in_the_unit_interval_and_have_53_bits(seed: int, index: int, position: int, draw: int) -> None:
    number = uniform(seed, index, position, draw)
    assert 0 <= number < 1
    assert (number * 2**53).is_integer()
    assert number == uniform(seed, index, position, draw)


def test_every_address_has_its_own_number() -> None:
    addresses = list(product((-1, 0, 1, 2, 2**62), range(4), range(32), range(4)))
    assert len({uniform(*address) for address in addresses}) == len(addresses)


def test_parts_of_an_address_do_not_stand_in_for_each_other() -> None:
    assert len({uniform(*address) for address in product(range(3), repeat=4)}) == 81


@cache
def along(axis: int) -> list[float]:
    """Return 20,001 numbers along one part of the address."""
    return [uniform(*(i if at == axis else 3 for at in range(4))) for i in range(20_001)]


def test_numbers_are_spread_evenly_along_every_part_of_the_address() -> None:
    """A chi-squared test over 64 bins: its statistic has mean 63 and standard deviation 11."""
    for axis in range(4):
        counts = [0] * 64
        for number in along(axis)[:20_000]:
            counts[int(64 * number)] += 1
        expected = 20_000 / 64
        assert sum((count - expected) ** 2 / expected for count in counts) < 63 + 5 * 11


def test_neighbouring_numbers_are_not_alike() -> None:
    """The correlation of pairs along each part of the address has standard deviation 1/141."""
    for axis in range(4):
        numbers = [number - 0.5 for number in along(axis)]
        assert abs(sum(a * b for a, b in pairwise(numbers)) / 20_000 * 12) < 5 / 141


def test_requests_without_a_seed_get_different_ones() -> None:
    seeds = {derived_seed(engine_seed, serial) for engine_seed in range(20) for serial in range(500)}
    assert len(seeds) == 10_000
    assert derived_seed(7, 3) == derived_seed(7, 3)


def test_numbers_are_the_same_in_every_process_and_version() -> None:
    """If this fails, a seed no longer gives the same tokens as before."""
    code = "from quire.runner.random import *; print(uniform(0, 0, 0, 0), uniform(-5, 1, 2, 3), derived_seed(1, 2))"
    for hash_seed in ("0", "1"):
        environment = {"PYTHONPATH": next(iter(quire.__path__)).removesuffix("/quire"), "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", code]
        printed = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
        assert printed.split() == ["0.1296456182997474", "0.9494967634057618", "13608149317741381227"]
