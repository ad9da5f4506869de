"""Beam search over one request: continue beams, collect hypotheses, end when none can improve.

Scores and the ending rule are those of `transformers`: a hypothesis scores ``sum of log-probabilities / generated
tokens ** length_penalty``. Only the best `beam_width` continuations may end a hypothesis; the others are there to
continue `beam_width` beams. Knows no blocks: the scheduler turns its decisions into forks.
"""

from __future__ import annotations

from dataclasses import dataclass

from quire.sampling_params import BeamSearchParams


@dataclass(frozen=True, slots=True)
class Candidate:
    beam: int
    token_id: int
    sum_logprob: float


@dataclass(frozen=True, slots=True)
class Hypothesis:
    token_ids: tuple[int, ...]  #: generated, the end token included
    sum_logprob: float
    score: float
    stopped: bool  #: by an end token, not by length
    stop_token: int | None


class BeamSearch:
    """The state of one search. `max_tokens` limits each hypothesis."""

    def __init__(self, params: BeamSearchParams, eos_token_ids: frozenset[int], max_tokens: int) -> None:
        self.params = params
        self.eos_token_ids = eos_token_ids
        self.max_tokens = max_tokens
        self.num_generated = 0
        self.finished: list[Hypothesis] = []  #: best first, at most beam_width
        self.is_done = False

    @property
    def num_candidates(self) -> int:
        """Continuations to request per beam: enough that beam_width remain when all others end."""
        return self.params.beam_width * max(2, 1 + len(self.eos_token_ids))

    def advance(self, beams: list[tuple[list[int], float, list[tuple[int, float]]]]) -> list[Candidate]:
        """Advance every beam by one token. Returns the continued beams, best first; none when the search `is_done`. A
        beam is its generated tokens, sum of log-probabilities, and most likely next tokens."""
        width = self.params.beam_width
        candidates = [
            Candidate(beam, token, total + logprob)
            for beam, (_, total, best) in enumerate(beams)
            for token, logprob in best
        ]
        ranked = sorted(candidates, key=lambda c: -c.sum_logprob)[: self.num_candidates]
        self.num_generated += 1
        at_limit = self.num_generated >= self.max_tokens
        continued: list[Candidate] = []
        ended: list[Hypothesis] = []
        for rank, candidate in enumerate(ranked):
            is_end = candidate.token_id in self.eos_token_ids
            if not (is_end or at_limit):
                continued.append(candidate)
            elif rank < width:
                tokens = (*beams[candidate.beam][0], candidate.token_id)
                score = candidate.sum_logprob / self.num_generated**self.params.length_penalty
                stop = candidate.token_id if is_end else None
                ended.append(Hypothesis(tokens, candidate.sum_logprob, score, is_end, stop))
        is_full = len(self.finished) == width
        if not (is_full and self.params.early_stopping is True):
            self.finished = sorted(self.finished + ended, key=lambda h: -h.score)[:width]
        continued = continued[:width]
        self.is_done = not continued or not self._can_improve(continued[0])
        return [] if self.is_done else continued

    def _can_improve(self, best: Candidate) -> bool:
        if len(self.finished) < self.params.beam_width:
            return True
        if self.params.early_stopping is True:
            return False
        longest = self.params.early_stopping == "never" and self.params.length_penalty > 0
        length = float(self.max_tokens if longest else self.num_generated)
        score: float = best.sum_logprob / length**self.params.length_penalty
        return score > self.finished[-1].score
