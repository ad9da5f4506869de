"""Addressed random numbers: the same address gives the same number in any batch and on any machine.

An address is (seed, sequence index, output position, draw). Integers are mixed as in SplitMix64 (Steele, Lea and Flood,
"Fast splittable pseudorandom number generators", OOPSLA 2014).
"""

from __future__ import annotations

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def _mix(z: int) -> int:
    z = (z + _GOLDEN) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def address(seed: int, index: int, position: int) -> int:
    """Return the address of the draws at an output position, in 64 bits."""
    return _mix(_mix(_mix(seed & _MASK) ^ (index & _MASK)) ^ (position & _MASK))


def uniform(seed: int, index: int, position: int, draw: int) -> float:
    """Return a number in [0, 1) with 53 random bits."""
    return (_mix(address(seed, index, position) ^ (draw & _MASK)) >> 11) * 2.0**-53


def derived_seed(engine_seed: int, serial: int) -> int:
    """Return the seed of a request without one; `serial` is its number in the engine."""
    return _mix(_mix(engine_seed & _MASK) ^ serial)
