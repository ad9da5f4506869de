"""Cost of moving bytes one way over a link, fitted to measured transfers.

Seconds over bytes are monotone and piecewise linear. Transfers of similar size (half an octave) form a bin of the last
few; the middle of a bin is a point of the curve. A line of latency and bandwidth through all points extends it.

A transfer that is reported in pieces is an observation of each size that it passes. If its pieces begin to miss the
prediction, they are held back until that is known to be noise or a change. After a change the transfer counts from
there on, so that no observation mixes two speeds.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median
from typing import Any

from quire.core.decisions.fits import ChangeDetector, PiecewiseLinear, isotonic

_BIN_SIZE = 12  #: with outliers in less than a third, the middle third is clean
_MAX_BINS = 64
_ENOUGH = 4  #: transfers for a calibrated curve
_PRIOR_LATENCY_S = 1e-4
_PRIOR_S_PER_BYTE = 1e-9
_PRIOR_WEIGHT = 0.01  #: points; decides latency against bandwidth if all transfers have one size
_POINT_PRIOR = 3.0  #: transfers' worth of prior that a bin lies on the line
_CUTS = (math.inf, 0.2, 0.1)  #: per round of fitting, the relative miss beyond which a point's weight falls
_HALF_LIFE = 256.0  #: transfers after which a bin's weight has halved
_KNOWN_MISS, _UNKNOWN_MISS = 0.4, 1.0  #: log ratios that noise does not explain, for a known and for a new size

_Observation = tuple[float, float, int]  #: bytes, seconds, number of its first observation


class TransferCost:
    """One direction of a link, in bounded memory. `observe` and `predict` take microseconds."""

    def __init__(self) -> None:
        self.num_observed = 0
        self.misses = ChangeDetector()
        self._bins: dict[int, deque[_Observation]] = {}
        self._moved = 0.0  #: bytes of the current transfer so far
        self._run: _Observation | None = None  #: its accepted part
        self._pending: _Observation | None = None  #: its later part, which misses
        self._curve: PiecewiseLinear | None = None  #: None after new observations

    @property
    def is_calibrated(self) -> bool:
        return self.num_observed >= _ENOUGH

    def predict(self, num_bytes: float) -> float:
        """Predicted seconds."""
        return (self._curve or self._draw())(num_bytes) if num_bytes > 0 else 0.0

    def observe(self, num_bytes: int, seconds: float, *, continues: bool = False) -> None:
        """Record busy seconds of the link for a transfer, or for a piece that continues the last observation."""
        self._moved = self._moved + num_bytes if continues else float(num_bytes)
        predicted = self._predict_piece(num_bytes)
        log_ratio = math.log(seconds / predicted)
        side = self.misses.side
        if self.is_calibrated:
            is_known = len(self._bins.get(_bin_of(self._moved), ())) >= _ENOUGH
            self.misses.observe(log_ratio, _KNOWN_MISS if is_known else _UNKNOWN_MISS)
        self.num_observed += 1
        self._accept((float(num_bytes), seconds, self.num_observed), continues, has_turned=self.misses.side != side)

    def _accept(self, piece: _Observation, continues: bool, *, has_turned: bool) -> None:
        """Add a piece to the run, or hold it back; `has_turned`: the misses have changed sides with it."""
        if not continues or self._run is None:
            self._run, self._pending = piece, None
        elif has_turned and self.misses.side:
            self._run, self._pending = _joined(self._run, self._pending), piece
            return
        elif self._pending is not None and self.misses.side:
            self._pending = _joined(self._pending, piece)
            return
        else:
            self._run, self._pending = _joined(_joined(self._run, self._pending), piece), None
        self._put(self._run)

    def _predict_piece(self, num_bytes: int) -> float:
        """Seconds of the last bytes moved: their share without latency, since the curve's own slope is too noisy."""
        curve = self._curve or self._draw()
        whole = max(1e-9, curve(self._moved))  # its logarithm is taken
        if num_bytes >= self._moved:
            return whole
        return max(whole - curve(0.0), whole / 2) * num_bytes / self._moved

    def _put(self, observation: _Observation) -> None:
        """Add an observation to its bin, in place of an earlier one of the same transfer."""
        key = _bin_of(observation[0])
        if key not in self._bins and len(self._bins) >= _MAX_BINS:
            del self._bins[min(self._bins, key=lambda other: self._bins[other][-1][2])]
        ring = self._bins.setdefault(key, deque(maxlen=_BIN_SIZE))
        if ring and ring[-1][2] == observation[2]:
            ring.pop()
        ring.append(observation)
        self._curve = None

    def follow(self) -> float:
        """Rescale all older observations by the change that the run of misses shows. Returns its logarithm."""
        num_new = len(self.misses.misses)
        change = self.misses.pop_change()
        self.rescale(change, num_new)
        if self._pending is not None:
            self._run, self._pending = self._pending, None
            self._put(self._run)
        return change

    def rescale(self, change: float, num_new: int = 0) -> None:
        """Rescale all but the `num_new` newest observations; `change` is the logarithm of the factor."""
        factor = math.exp(change)
        last_old = self.num_observed - num_new
        for ring in self._bins.values():
            rescaled = [(x, y * factor if index <= last_old else y, index) for x, y, index in ring]
            ring.clear()
            ring.extend(rescaled)
        if self._run is not None and self._run[2] <= last_old:
            x, y, index = self._run
            self._run = x, y * factor, index
        self._curve = None

    def _draw(self) -> PiecewiseLinear:
        points = sorted(self._middle(ring) for ring in self._bins.values())
        latency, s_per_byte = self._fit_line(points)
        if not points:
            self._curve = PiecewiseLinear([(0.0, latency)], after=s_per_byte)
            return self._curve
        shrunk = []  # towards the line, since a single transfer may be an outlier
        for x, y, _, count in points:
            line = latency + s_per_byte * x
            shrunk.append(line + (y - line) * count / (count + _POINT_PRIOR))
        ys = isotonic(shrunk, [weight for _, _, weight, _ in points])
        xs = [x for x, _, _, _ in points]
        # Below the first point the line continues, but not below the latency or zero.
        before = max(0.0, min(s_per_byte, (ys[0] - latency) / xs[0]))
        self._curve = PiecewiseLinear(list(zip(xs, ys, strict=True)), before, s_per_byte)
        return self._curve

    def _middle(self, ring: deque[_Observation]) -> tuple[float, float, float, int]:
        """A bin as a point (bytes, seconds, weight, count): means of the middle thirds, without outliers."""
        xs = sorted(x for x, _, _ in ring)
        ys = sorted(y for _, y, _ in ring)
        count = len(xs)
        cut = count // 3
        kept = count - 2 * cut
        weight = count * 0.5 ** ((self.num_observed - ring[-1][2]) / _HALF_LIFE)
        return sum(xs[cut : count - cut]) / kept, sum(ys[cut : count - cut]) / kept, max(weight, 1e-3), count

    def _fit_line(self, points: list[tuple[float, float, float, int]]) -> tuple[float, float]:
        """(latency, seconds per byte), not negative, by least squares of relative errors."""
        if not points:
            return _PRIOR_LATENCY_S, _PRIOR_S_PER_BYTE
        speed = median(y / (_PRIOR_LATENCY_S + _PRIOR_S_PER_BYTE * x) for x, y, _, _ in points)
        a0, b0 = speed * _PRIOR_LATENCY_S, speed * _PRIOR_S_PER_BYTE
        a, b = a0, b0
        for cut in _CUTS:
            # The prior pulls in proportion to the values, so that a latency 100 times the prior's is possible.
            aa, bb, ab = _PRIOR_WEIGHT / max(a, a0) ** 2, _PRIOR_WEIGHT / max(b, b0) ** 2, 0.0
            ay, by = aa * a0, bb * b0
            for x, y, weight, _ in points:
                miss = abs(1.0 - (a + b * x) / y)
                weight = weight if miss <= cut else weight * cut / miss
                u, v = 1.0 / y, x / y
                aa += weight * u * u
                ab += weight * u * v
                bb += weight * v * v
                ay += weight * u
                by += weight * v
            determinant = aa * bb * (1.0 + 1e-9) - ab * ab  # positive despite rounding
            a = (ay * bb - by * ab) / determinant
            b = (by * aa - ay * ab) / determinant
            if a < 0.0:
                a, b = 0.0, by / bb
            elif b < 0.0:
                a, b = ay / aa, 0.0
        return a, b

    def to_dict(self) -> dict[str, Any]:
        observations = sorted((each for ring in self._bins.values() for each in ring), key=lambda each: each[2])
        return {"num_observed": self.num_observed, "observations": [[x, y, index] for x, y, index in observations]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> TransferCost:
        """The inverse of `to_dict`. ValueError, KeyError or TypeError if the data is invalid."""
        cost = cls()
        cost.num_observed = int(data["num_observed"])
        for x, y, index in data["observations"]:
            if not (1.0 <= x < math.inf and 0.0 < y < math.inf and 0 <= index <= cost.num_observed):
                raise ValueError(f"({x}, {y}, {index}) is no transfer")
            ring = cost._bins.setdefault(_bin_of(x), deque(maxlen=_BIN_SIZE))
            ring.append((float(x), float(y), int(index)))
        if len(cost._bins) > _MAX_BINS:
            raise ValueError("more sizes than are ever kept")
        return cost


def _joined(first: _Observation, then: _Observation | None) -> _Observation:
    return first if then is None else (first[0] + then[0], first[1] + then[1], first[2])


def _bin_of(num_bytes: float) -> int:
    return int(2.0 * math.log2(num_bytes))
