"""Draft tokens of which some are right, as an adversary proposes them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from quire import LLM
from quire.core.request import Sequence as RequestSequence
from quire.core.speculation.drafts import Draft

Answer = Callable[[RequestSequence], Sequence[int]]


class Adversary:
    """Knows the answers, and proposes up to `most` tokens, `num_right` of eight of which are right."""

    def __init__(self, answer: Answer, num_right: int, seed: int = 0, vocab_size: int = 256) -> None:
        self._answer = answer
        self._num_right = num_right
        self._random = random.Random(seed)
        self._vocab_size = vocab_size

    def propose(self, seq: RequestSequence, most: int) -> Draft | None:
        draw, at = self._random.randrange, seq.num_output_tokens
        right = [*self._answer(seq)[at : at + most], *[0] * most]
        drafts = [right[i] if draw(8) < self._num_right else draw(self._vocab_size) for i in range(1 + draw(most))]
        return Draft(drafts, "adversary") if draw(8) else None


def draft_from(llm: LLM, source: Adversary) -> None:
    """Let an engine with drafts verify all that the adversary proposes."""
    speculator = llm.engine.scheduler.speculator
    speculator.costs = None
    speculator.make_sources = lambda seq: (source,)


def share_right(llm: LLM) -> float | None:
    """Return the share of draft tokens that were right; None without any."""
    counts = llm.engine.scheduler.speculator.counts
    return counts.accepted.total() / counts.draft_tokens if counts.draft_tokens else None
