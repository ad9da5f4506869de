"""Interface of cost predictions. `CostModel` learns them; the simulator has tables and hypothetical machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

#: Tiers of KV blocks besides the device: the swap tier, in memory or in a file, and the KV directory.
TIERS = ("host", "disk")


@dataclass(frozen=True, slots=True)
class StepShape:
    """The features of a step on which its cost depends."""

    num_tokens: int
    num_seqs: int
    attended: float = 0.0  #: pairs of query and key: sum of n * (start + n / 2) over prefill chunks (n > 1)
    context_decode: int = 0  #: tokens attended by sequences with one new token

    def plus(self, other: StepShape) -> StepShape:
        """A step that computes the different sequences of both."""
        return StepShape(
            self.num_tokens + other.num_tokens,
            self.num_seqs + other.num_seqs,
            self.attended + other.attended,
            self.context_decode + other.context_decode,
        )

    def plus_chunk(self, start: int, num_tokens: int) -> StepShape:
        """The step with one more chunk, tokens [start, start + num_tokens) of another sequence."""
        attended = self.attended + num_tokens * (start + num_tokens / 2)
        return StepShape(self.num_tokens + num_tokens, self.num_seqs + 1, attended, self.context_decode)

    def plus_drafts(self, start: int, num_tokens: int) -> StepShape:
        """The step with draft tokens after tokens [0, start) of a sequence that it computes already."""
        attended = self.attended + num_tokens * (start + num_tokens / 2)
        return StepShape(self.num_tokens + num_tokens, self.num_seqs, attended, self.context_decode)

    def minus_chunk(self, start: int, num_tokens: int) -> StepShape:
        """The step without tokens [start, start + num_tokens) of a sequence, which still counts in `num_seqs`."""
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
        """The part that continues in the next step: one token of each sequence."""
        num_seqs = min(self.num_seqs, self.num_tokens)
        return StepShape(num_seqs, num_seqs, 0.0, self.context_decode)


EMPTY_STEP = StepShape(0, 0)


def decoding_beside(last: StepShape) -> StepShape | None:
    """The decoding of the last step, which continues beside new work; None if there was no step."""
    return last.decoding if last.num_tokens > 0 else None


class StepShapeSum:
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

    def add_drafts(self, start: int, num_tokens: int) -> None:
        """Add draft tokens of a sequence that counts already (`StepShape.plus_drafts`)."""
        self.num_tokens += num_tokens
        self.attended += num_tokens * (start + num_tokens / 2)

    def total(self) -> StepShape:
        return StepShape(self.num_tokens, self.num_seqs, self.attended, self.context_decode)


class Costs(Protocol):
    """Predicted seconds: never negative, and never falling as tokens or bytes grow."""

    @property
    def is_link_usable(self) -> bool:
        """Whether both directions of the swap link are known, and do not fail."""
        ...

    def step(self, shape: StepShape) -> float: ...

    def recompute(self, num_tokens: int, *, start: int = 0, chunk: int = 512, beside: StepShape | None = None) -> float:
        """Seconds that computing tokens [start, start + num_tokens) adds, in chunks of at most `chunk` tokens. `beside`
        is the rest of each step; None if each chunk has a whole step of its own."""
        ...

    def save(self, num_bytes: int, tier: str = "host") -> float:
        """Seconds that the link is busy with saving bytes to one of `TIERS`."""
        ...

    def load(self, num_bytes: int, tier: str = "host") -> float:
        """Seconds that the link is busy with loading bytes from there."""
        ...


def transfer_seconds(costs: Costs, kind: str, num_bytes: int, tier: str = "host") -> float:
    """Predicted seconds of a transfer of one kind, "save" or "load"."""
    return costs.save(num_bytes, tier) if kind == "save" else costs.load(num_bytes, tier)


def find_crossings(
    costs: Costs,
    bytes_per_token: int,
    max_tokens: int,
    *,
    granularity: int = 16,
    chunk: int | None = None,
    state_bytes: int = 0,
) -> list[int]:
    """Ascending token counts up to `max_tokens` at which the cheaper of swap and recompute changes, at multiples of
    `granularity` (a block's tokens). `chunk` None computes any length in one step. `state_bytes` move with any length.
    """
    crossings: list[int] = []
    was_swap: bool | None = None
    for num_tokens in range(granularity, max_tokens + 1, granularity):
        num_bytes = num_tokens * bytes_per_token + state_bytes
        swap = costs.save(num_bytes) + costs.load(num_bytes)
        recompute = costs.recompute(num_tokens, chunk=num_tokens if chunk is None else chunk)
        if swap == recompute:
            continue
        if was_swap is not None and was_swap != (swap < recompute):
            crossings.append(num_tokens)
        was_swap = swap < recompute
    return crossings
