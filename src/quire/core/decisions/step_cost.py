"""Cost of a step, fitted to measured steps.

    seconds = F(num_tokens) + c2 * attended + c3 * context_decode + c4 * num_seqs

F includes the fixed cost; it never falls, and is piecewise linear with one point per octave, and below 16 tokens, where
a kernel's tiles matter, one per number. The coefficients are never negative. A few observations of each kind of step
(by tokens and octave of context) are kept, so that a thousand decode steps do not displace prefill. All kept
observations are refitted now and then, by robust least squares of relative errors.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median
from typing import Any, NamedTuple

from quire.core.decisions.costs import EMPTY_STEP, StepShape
from quire.core.decisions.fits import ChangeDetector, PiecewiseLinear, isotonic

_KIND_SIZE = 6
_MAX_KINDS = 64
_ENOUGH = 16  #: steps for a calibrated fit
_REFIT_EVERY = 256
_HURRIED_REFIT = 16  #: if predictions have become worse than the fit was
_PRIOR = (5e-3, 5e-4, 7.5e-8, 3e-6, 2e-4)  #: c0, seconds per token, c2, c3, c4 of a small model on a CPU
_PRIOR_WEIGHT = 0.02  #: observations
_LEAST_S = 1e-9  #: keeps logarithms and ratios defined
_FIRM = 1.0 + 1e-9  #: keeps the equations solvable if two coefficients cannot be told apart
_POINT_PRIOR = 1.0  #: observations' worth of prior that an octave lies on the line
_HALF_LIFE = 8192.0  #: steps
_HUBER = 1.5  #: deviations beyond which a residual's weight falls
_MISS = 0.4  #: log ratio that noise does not explain, for a known kind of step


class _Observation(NamedTuple):
    num_tokens: int
    num_seqs: int
    attended: float
    context_decode: int
    seconds: float
    number: int  #: counted from 1


class StepCost:
    """Step costs in bounded memory. `observe` takes microseconds; a fit, every few hundred steps, 1 to 2 ms."""

    def __init__(self) -> None:
        self.num_observed = 0
        self.misses = ChangeDetector()
        self._kinds: dict[tuple[int, int], deque[_Observation]] = {}  #: latest kind last
        self._num_fitted = 0  #: observations at the last fit
        self._recent_error = 0.0  #: decaying mean of relative errors
        self._spread = 1.0  #: relative scatter of steps around the fit
        self._line = _PRIOR
        self._curve = PiecewiseLinear([(0.0, _PRIOR[0])], after=_PRIOR[1])

    @property
    def is_calibrated(self) -> bool:
        return self.num_observed >= _ENOUGH

    @property
    def coefficients(self) -> tuple[float, float, float]:
        """c2, c3, c4: seconds per attended pair, token of context, and sequence."""
        return self._line[2:]

    def seconds(self, shape: StepShape) -> float:
        if shape.num_tokens <= 0:
            return 0.0
        _, _, c2, c3, c4 = self._line
        fixed = self._curve(shape.num_tokens)
        return fixed + c2 * shape.attended + c3 * shape.context_decode + c4 * shape.num_seqs

    def recompute(self, num_tokens: int, start: int, chunk: int, beside: StepShape | None) -> float:
        """The steps with the span minus the steps without it, in closed form (see `Costs`)."""
        if num_tokens <= 0:
            return 0.0
        chunk = max(1, chunk)
        num_whole, rest = divmod(num_tokens, chunk)
        num_steps = num_whole + (rest > 0)
        with_others = beside or EMPTY_STEP
        others = with_others.num_tokens
        without = self._curve(others) if others > 0 else 0.0
        _, _, c2, _, c4 = self._line
        seconds = c4 * num_steps
        if num_whole:
            seconds += num_whole * (self._curve(others + chunk) - without)
        if rest:
            seconds += self._curve(others + rest) - without
        # n * (s + n/2) = (e^2 - s^2) / 2 of consecutive chunks [s, e) adds up to that of the whole span.
        seconds += c2 * num_tokens * (start + num_tokens / 2)
        return seconds

    def observe(self, shape: StepShape, seconds: float) -> None:
        """Record one executed step."""
        num_tokens, num_seqs = shape.num_tokens, shape.num_seqs
        attended, context = shape.attended, shape.context_decode
        _, _, c2, c3, c4 = self._line
        predicted = self._curve(num_tokens) + c2 * attended + c3 * context + c4 * num_seqs + _LEAST_S
        error = abs(predicted - seconds) / seconds
        key = _size_class(num_tokens), int(attended + context).bit_length()
        kind = self._kinds.pop(key, None)
        if kind is None:
            if len(self._kinds) >= _MAX_KINDS:
                del self._kinds[next(iter(self._kinds))]
            kind = deque(maxlen=_KIND_SIZE)
        elif self.num_observed >= _ENOUGH and len(kind) >= 3:
            self.misses.observe(math.log(seconds / predicted), _MISS)
        self._kinds[key] = kind
        self.num_observed += 1
        kind.append(_Observation(num_tokens, num_seqs, attended, context, seconds, self.num_observed))
        self._recent_error += (min(error, 2.0) - self._recent_error) / 8.0
        self._refit_if_due(is_new_kind=len(kind) <= 2)

    def _refit_if_due(self, *, is_new_kind: bool) -> None:
        since = self.num_observed - self._num_fitted
        if self.num_observed <= 4 * _ENOUGH:
            is_due = since * 4 >= self.num_observed
        elif is_new_kind or self._recent_error > 2.0 * self._spread + 0.02:
            is_due = since >= _HURRIED_REFIT
        else:
            is_due = since >= min(_REFIT_EVERY, self.num_observed // 4)
        if is_due:
            self.fit()

    def follow(self) -> None:
        """Rescale all older observations by the change that the run of misses shows."""
        num_new = len(self.misses.misses)
        factor = math.exp(self.misses.pop_change())
        last_old = self.num_observed - num_new
        for kind in self._kinds.values():
            rescaled = [s._replace(seconds=s.seconds * factor) if s.number <= last_old else s for s in kind]
            kind.clear()
            kind.extend(rescaled)
        c0, c1, c2, c3, c4 = self._line
        self._line = c0 * factor, c1 * factor, c2 * factor, c3 * factor, c4 * factor
        self._curve = self._curve.scaled(factor)
        self.fit()

    def scaled(self, factor: float) -> StepCost:
        """A copy in which all steps took `factor` times as long."""
        costs = self.to_dict()
        for observation in costs["observations"]:
            observation[4] *= factor
        return StepCost.from_dict(costs)

    def fit(self) -> None:
        """Fit line, coefficients and curve to the kept observations."""
        observations = [observation for kind in self._kinds.values() for observation in kind]
        if not observations:
            return
        speed = median(s.seconds / _line_seconds(_PRIOR, s) for s in observations)
        prior = tuple(speed * c for c in _PRIOR)
        if self._num_fitted == 0:
            self._line = prior[0], prior[1], prior[2], prior[3], prior[4]
            self._curve = PiecewiseLinear([(0.0, prior[0])], after=prior[1])
        for _ in range(3 if self.num_observed <= 4 * _ENOUGH else 1):
            self._fit_line(observations, prior)
            self._draw_curve(observations)
        self._num_fitted = self.num_observed

    def _fit_line(self, observations: list[_Observation], prior: tuple[float, ...]) -> None:
        """One round of robust least squares for c0 to c4, given the curve's deviation from its line."""
        c0, c1, c2, c3, c4 = line = self._line
        curve, cut, now = self._curve, _HUBER * max(self._spread, 0.01), self.num_observed
        # Normal equations in multiples of the prior. The prior pulls in proportion to the coefficient, so that a
        # coefficient 100 times the prior's is possible.
        right = [_PRIOR_WEIGHT / max(1.0, c / p) ** 2 for c, p in zip(line, prior, strict=True)]
        matrix = [[right[i] if i == j else 0.0 for j in range(5)] for i in range(5)]
        for n, num_seqs, attended, context, seconds, number in observations:
            fixed = curve(n)
            predicted = fixed + c2 * attended + c3 * context + c4 * num_seqs + _LEAST_S
            miss = abs(seconds / predicted - 1.0)
            weight = 0.5 ** ((now - number) / _HALF_LIFE) * (1.0 if miss <= cut else cut / miss)
            z = [p * x / predicted for p, x in zip(prior, (1, n, attended, context, num_seqs), strict=True)]
            y = (seconds - fixed + c0 + c1 * n) / predicted
            for i in range(5):
                weighted = weight * z[i]
                right[i] += weighted * y
                row = matrix[i]
                for j in range(i, 5):
                    row[j] += weighted * z[j]
        symmetric = [[matrix[min(i, j)][max(i, j)] * (_FIRM if i == j else 1.0) for j in range(5)] for i in range(5)]
        m = _solve_non_negative(symmetric, right)
        self._line = prior[0] * m[0], prior[1] * m[1], prior[2] * m[2], prior[3] * m[3], prior[4] * m[4]

    def _draw_curve(self, observations: list[_Observation]) -> None:
        """Draw F: the line, shifted in each octave by its median residual."""
        c0, c1, c2, c3, c4 = self._line
        octaves: dict[int, list[tuple[int, float, float]]] = {}
        for n, num_seqs, attended, context, seconds, _ in observations:
            rest = seconds - c2 * attended - c3 * context - c4 * num_seqs
            octaves.setdefault(_size_class(n), []).append((n, rest - c0 - c1 * n, seconds))
        xs, ys, weights, misses = [], [], [], []
        for octave in sorted(octaves):
            members = octaves[octave]
            count = len(members)
            x = sum(n for n, _, _ in members) / count
            moved = median(miss for _, miss, _ in members)
            misses += [abs(miss - moved) / seconds for _, miss, seconds in members]
            xs.append(x)
            ys.append(max(0.0, c0 + c1 * x + moved * count / (count + _POINT_PRIOR)))
            weights.append(count / max(ys[-1], 1e-9) ** 2)
        ys = isotonic(ys, weights)
        before = min(c1, ys[0] / xs[0])
        self._curve = PiecewiseLinear(list(zip(xs, ys, strict=True)), before, c1)
        if self.num_observed >= 8:
            self._spread = min(1.0, max(0.01, 1.4826 * median(misses)))

    def to_dict(self) -> dict[str, Any]:
        observations = sorted((each for kind in self._kinds.values() for each in kind), key=lambda each: each.number)
        return {"num_observed": self.num_observed, "observations": [list(each) for each in observations]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> StepCost:
        """The inverse of `to_dict`, fitted. ValueError, KeyError or TypeError if the data is invalid."""
        cost = cls()
        num_observed = int(data["num_observed"])
        for fields in data["observations"]:
            observation = _Observation(*fields)
            n, num_seqs, attended, context, seconds, number = observation
            if not (n >= 1 and num_seqs >= 0 and 0 <= attended < math.inf and context >= 0 and 0 < seconds < math.inf):
                raise ValueError(f"{observation} is no step")
            if not 1 <= number <= num_observed:
                raise ValueError(f"{observation} was never observed")
            key = _size_class(n), int(attended + context).bit_length()
            cost._kinds.setdefault(key, deque(maxlen=_KIND_SIZE)).append(observation)
        if len(cost._kinds) > _MAX_KINDS:
            raise ValueError("more kinds of steps than are ever kept")
        cost.num_observed = min(num_observed, 4 * _ENOUGH)  # for a thorough fit
        cost.fit()
        cost.num_observed = cost._num_fitted = num_observed
        return cost


def _size_class(num_tokens: int) -> int:
    return num_tokens if num_tokens < 16 else 11 + num_tokens.bit_length()


def _line_seconds(line: tuple[float, ...], observation: _Observation) -> float:
    c0, c1, c2, c3, c4 = line
    n, num_seqs, attended, context, _, _ = observation
    return c0 + c1 * n + c2 * attended + c3 * context + c4 * num_seqs


def _solve_non_negative(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Solve a small positive definite system with non-negative unknowns: negative ones are set to 0 and removed."""
    active = list(range(len(right)))
    while active:
        solution = _solve([[matrix[i][j] for j in active] for i in active], [right[i] for i in active])
        least = min(range(len(active)), key=solution.__getitem__)
        if solution[least] >= 0.0:
            result = [0.0] * len(right)
            for i, value in zip(active, solution, strict=True):
                result[i] = value
            return result
        del active[least]
    return [0.0] * len(right)


def _solve(a: list[list[float]], b: list[float]) -> list[float]:
    """Gaussian elimination in place, without pivoting: the matrix is symmetric and positive definite."""
    size = len(b)
    for i in range(size):
        for j in range(i + 1, size):
            factor = a[j][i] / a[i][i]
            if factor:
                for k in range(i + 1, size):
                    a[j][k] -= factor * a[i][k]
                b[j] -= factor * b[i]
    for i in reversed(range(size)):
        b[i] = (b[i] - sum(a[i][k] * b[k] for k in range(i + 1, size))) / a[i][i]
    return b
