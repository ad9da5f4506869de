"""The words of cost prediction: what a step looks like, what a prediction is, and who can give one.

Behind `Costs` stand the model that learns (`cost_model`) and the tables that others published (`table_costs`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

#: Places for KV blocks beside the device: the swap tier, wherever it is, and the KV directory.
TIERS = ("host", "disk")


@dataclass(frozen=True, slots=True)
class StepShape:
    """What a step computes, as far as its cost depends on it."""

    num_tokens: int
    num_seqs: int
    attended: float = 0.0  #: sum over prefill chunks (n > 1) of n * (start + n / 2): pairs of query and key
    context_decode: int = 0  #: sum over sequences with one new token of the tokens that they look back on

    def plus(self, other: StepShape) -> StepShape:
        """One step that computes what both do, of different sequences."""
        return StepShape(
            self.num_tokens + other.num_tokens,
            self.num_seqs + other.num_seqs,
            self.attended + other.attended,
            self.context_decode + other.context_decode,
        )

    def plus_chunk(self, start: int, num_tokens: int) -> StepShape:
        """The same step with one more chunk: `num_tokens` of a sequence that has `start` already."""
        attended = self.attended + num_tokens * (start + num_tokens / 2)
        return StepShape(self.num_tokens + num_tokens, self.num_seqs + 1, attended, self.context_decode)

    def minus_chunk(self, start: int, num_tokens: int) -> StepShape:
        """The same step without the tokens [start, start + num_tokens) of one of its sequences; 1 token is a decode.

        The sequence keeps its place (`num_seqs`), and nothing falls below 0.
        """
        is_decode = num_tokens == 1
        pairs = 0.0 if is_decode else num_tokens * (start + num_tokens / 2)
        return StepShape(
            num_tokens=max(0, self.num_tokens - num_tokens),
            num_seqs=self.num_seqs,
            attended=max(0.0, self.attended - pairs),
            context_decode=max(0, self.context_decode - (start if is_decode else 0)),
        )

    @property
    def decoding(self) -> StepShape:
        """What of it goes on step after step: its sequences with a token each, their prefill done."""
        num_seqs = min(self.num_seqs, self.num_tokens)
        return StepShape(num_seqs, num_seqs, 0.0, self.context_decode)


EMPTY_STEP = StepShape(0, 0)


def decoding_beside(last: StepShape) -> StepShape | None:
    """What of the last step goes on beside what is computed anew: its decoding. None where there was none."""
    return last.decoding if last.num_tokens > 0 else None


class StepShapeSum:
    """Adds up what a step computes, sequence by sequence."""

    __slots__ = ("attended", "context_decode", "num_seqs", "num_tokens")

    def __init__(self) -> None:
        self.num_tokens = self.num_seqs = self.context_decode = 0
        self.attended = 0.0

    def add(self, start: int, num_new: int) -> None:
        self.num_tokens += num_new
        self.num_seqs += 1
        if num_new == 1:
            self.context_decode += start
        else:
            self.attended += num_new * (start + num_new / 2)

    def total(self) -> StepShape:
        return StepShape(self.num_tokens, self.num_seqs, self.attended, self.context_decode)


class Costs(Protocol):
    """Predicts seconds: of steps, of computing a span of tokens, of moving bytes to a tier and back.

    No prediction is negative, and none falls where tokens or bytes grow.
    """

    @property
    def is_link_usable(self) -> bool:
        """Whether both ways of swapping are known, and bring what is given to them."""
        ...

    def step(self, shape: StepShape) -> float: ...

    def recompute(self, num_tokens: int, *, start: int = 0, chunk: int = 512, beside: StepShape | None = None) -> float:
        """Seconds that computing tokens [start, start + num_tokens) adds, in chunks of at most `chunk` tokens.

        Args:
            num_tokens: 0 costs nothing.
            start: tokens of the sequence that are there already.
            chunk: tokens of it that one step takes.
            beside: what the steps compute anyway; None where each chunk needs a step of its own.
        """
        ...

    def save(self, num_bytes: int, tier: str = "host") -> float:
        """Seconds that the link to one of `TIERS` is busy with taking bytes there."""
        ...

    def load(self, num_bytes: int, tier: str = "host") -> float:
        """Seconds that the link is busy with bringing bytes back from there."""
        ...


def transfer_seconds(costs: Costs, kind: str, num_bytes: int, tier: str = "host") -> float:
    """What moving bytes one way, "save" or "load", is predicted to take."""
    return costs.save(num_bytes, tier) if kind == "save" else costs.load(num_bytes, tier)


def find_crossings(
    costs: Costs, bytes_per_token: int, max_tokens: int, *, granularity: int = 16, chunk: int | None = None
) -> list[int]:
    """Token counts from which on the other of swap (save and load) and recompute is the cheaper one.

    Args:
        costs: whose predictions.
        bytes_per_token: KV bytes of a token.
        max_tokens: where to stop looking.
        granularity: only multiples of it are looked at (a block's tokens: partial blocks are not moved).
        chunk: tokens that a step takes; None computes any length in one step.

    Returns:
        None, one or several, ascending: each the first count that is cheaper by the other mode than the count before.
    """
    crossings: list[int] = []
    was_swap: bool | None = None
    for num_tokens in range(granularity, max_tokens + 1, granularity):
        num_bytes = num_tokens * bytes_per_token
        swap = costs.save(num_bytes) + costs.load(num_bytes)
        recompute = costs.recompute(num_tokens, chunk=num_tokens if chunk is None else chunk)
        if swap == recompute:
            continue
        if was_swap is not None and was_swap != (swap < recompute):
            crossings.append(num_tokens)
        was_swap = swap < recompute
    return crossings
