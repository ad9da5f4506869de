"""Costs from a published table: interpolated, never fitted. Decode steps are not in such tables, and assumed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quire.core.decisions.costs import EMPTY_STEP, StepShape
from quire.core.decisions.fits import PiecewiseLinear

Table = Sequence[tuple[float, float]]  #: (tokens, seconds)


@dataclass(frozen=True, slots=True)
class DecodeCosts:
    """Costs of a step without its prefill, in seconds."""

    step: float  #: fixed cost of a decode step
    sequence: float  #: per sequence
    context_token: float  #: per token of context

    def scaled(self, factor: float) -> DecodeCosts:
        return DecodeCosts(self.step * factor, self.sequence * factor, self.context_token * factor)


class TableCosts:
    """Straight lines between the table's rows and beyond its ends: seconds to save, to load, and to compute in one
    step, by a sequence's tokens. Raises ValueError if a table is empty, out of order, or falls."""

    def __init__(
        self, swap_out: Table, swap_in: Table, recompute: Table, bytes_per_token: int, decode: DecodeCosts
    ) -> None:
        if bytes_per_token <= 0:
            raise ValueError(f"bytes_per_token={bytes_per_token} must be above 0")
        self.bytes_per_token = bytes_per_token
        self.decode = decode
        self._swap_out = PiecewiseLinear(swap_out)
        self._swap_in = PiecewiseLinear(swap_in)
        self._recompute = PiecewiseLinear(recompute)

    @property
    def is_link_usable(self) -> bool:
        return True

    def step(self, shape: StepShape) -> float:
        """Seconds of a step. All prefill counts as one chunk, at a position derived from `attended`. The fixed cost is
        that of prefill (the table at no tokens) or of decoding, whichever is more."""
        if shape.num_tokens <= 0:
            return 0.0
        if shape.attended <= 0.0:
            num_prefill, num_decode = 0, shape.num_tokens
        else:
            num_decode = min(shape.num_seqs - 1, shape.num_tokens - 1) if shape.context_decode > 0 else 0
            num_prefill = shape.num_tokens - num_decode
        seconds = self.decode.sequence * num_decode + self.decode.context_token * shape.context_decode
        fixed = self.decode.step if num_decode else 0.0
        if num_prefill:
            start = max(0.0, shape.attended / num_prefill - num_prefill / 2)
            fixed = max(fixed, self._recompute(0.0))
            seconds += self._recompute(start + num_prefill) - self._recompute(start)
        return fixed + seconds

    def recompute(self, num_tokens: int, *, start: int = 0, chunk: int = 512, beside: StepShape | None = None) -> float:
        """Seconds added by computing tokens [start, start + num_tokens) in chunks of at most `chunk` tokens. Work
        `beside` a chunk pays a part of its fixed cost. A length in the table, computed at once, costs its row."""
        if num_tokens <= 0:
            return 0.0
        others = beside or EMPTY_STEP
        paid = 0.0
        if others.num_tokens > 0:
            paid = max(self.decode.step, self._recompute(0.0)) if others.attended > 0.0 else self.decode.step
        fixed = max(0.0, self._recompute(0.0) - paid)
        num_steps = -(-num_tokens // max(1, chunk))
        return num_steps * fixed + self._recompute(start + num_tokens) - self._recompute(start)

    def save(self, num_bytes: int, tier: str = "host") -> float:
        return self._swap_out(num_bytes / self.bytes_per_token) if num_bytes > 0 else 0.0

    def load(self, num_bytes: int, tier: str = "host") -> float:
        return self._swap_in(num_bytes / self.bytes_per_token) if num_bytes > 0 else 0.0
