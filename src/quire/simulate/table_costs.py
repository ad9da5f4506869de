"""Costs from a table that somebody measured elsewhere: interpolated, never fitted.

Such tables do not give decode steps; those are assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quire.core.decisions.costs import EMPTY_STEP, StepShape
from quire.core.decisions.piecewise import PiecewiseLinear

Table = Sequence[tuple[float, float]]  #: (tokens, seconds)


@dataclass(frozen=True, slots=True)
class DecodeCosts:
    """The costs of a step beside its prefill, in seconds."""

    step: float  #: of any step that only decodes
    sequence: float  #: for each sequence
    context_token: float  #: for each token of their contexts

    def scaled(self, factor: float) -> DecodeCosts:
        return DecodeCosts(self.step * factor, self.sequence * factor, self.context_token * factor)


class TableCosts:
    """Straight lines between the table's rows and beyond its ends.

    Args:
        swap_out: seconds to save a sequence, by its tokens.
        swap_in: seconds to load it.
        recompute: seconds to compute it, in one step of its own.
        bytes_per_token: KV bytes of a token, by which bytes are turned into the table's tokens.
        decode: what decode steps cost.

    Raises:
        ValueError: a table is empty, out of order, or falls.
    """

    def __init__(
        self,
        swap_out: Table,
        swap_in: Table,
        recompute: Table,
        bytes_per_token: int,
        decode: DecodeCosts,
    ) -> None:
        if bytes_per_token <= 0:
            raise ValueError(f"a token has KV bytes; bytes_per_token={bytes_per_token}")
        self.bytes_per_token = bytes_per_token
        self.decode = decode
        self._swap_out = PiecewiseLinear(swap_out)
        self._swap_in = PiecewiseLinear(swap_in)
        self._recompute = PiecewiseLinear(recompute)

    @property
    def is_link_usable(self) -> bool:
        return True

    def step(self, shape: StepShape) -> float:
        """Seconds of a step.

        Its prefill is taken as one chunk, which `attended` places in its sequence; the step's fixed cost is that of
        prefill (the table's line at no tokens) or of decoding, whichever is more, and counts once.
        """
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

    def decode_steps(self, num_seqs: int, context: int, num_steps: int) -> list[float]:
        """Seconds of steps that bring each of so many sequences its next token: as `step`, one after the other.

        Args:
            context: the tokens that those of the first step look back on together.
        """
        fixed, of_seqs, of_token = self.decode.step, self.decode.sequence * num_seqs, self.decode.context_token
        ahead = range(context, context + num_steps * num_seqs, num_seqs)
        return [fixed + (of_seqs + of_token * each) for each in ahead]

    def recompute(self, num_tokens: int, *, start: int = 0, chunk: int = 512, beside: StepShape | None = None) -> float:
        """Seconds that computing tokens [start, start + num_tokens) adds, in chunks of at most `chunk` tokens.

        The fixed cost of a chunk's step counts as far as what is `beside` it does not pay it anyway. A length that is
        a row of the table, computed in one go from its start, costs what the table says.
        """
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
