"""Which stage of a model requests compute with while the model arrives, and who finishes on an older one.

A layer that is added has no KV for earlier tokens, and every later layer's KV was computed from other inputs. So KV is
never carried from one stage to another: at a promotion, a request in flight either finishes on the stage that it began
on (it is pinned), or gives its blocks up and is computed again on the new stage with the tokens that it has. All
sequences of one step share a stage; where two stages are alive, they take turns. At most one older stage is.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

from quire.core.decisions.costs import Costs, StepShape
from quire.core.request import Request

POLICIES = ("cost", "pin", "recompute")
PIN_LIMIT_S = 10.0  #: that an older stage stays; what is left on it then is computed again


class Stages:
    """Args:
    costs: predicts what pinning and computing again take; None computes all again, unless the policy says otherwise.
    policy: cost, or always pin, or always recompute.
    chunk: tokens that a step computes at most.

    Attributes:
        current: the stage that new requests compute with; stages count from 1.
        root: the key of its KV's namespace; None until the first promotion, since requests bring theirs.
        older: the stage before, as long as requests are pinned to it.
    """

    def __init__(self, costs: Costs | None, policy: str, chunk: int) -> None:
        self.current = 1
        self.root: bytes | None = None
        self.older: int | None = None
        self._costs = costs
        self._policy = policy
        self._chunk = chunk
        self._last_turn = 0

    def begin(self, number: int, root: bytes, *, keeps_older: bool) -> None:
        """Have a later stage be the current one."""
        assert number > self.current, f"stage {number} does not come after stage {self.current}"
        assert self.older is None, "two older stages"
        self.older = self.current if keeps_older else None
        self.current, self.root = number, root

    def turns(self) -> tuple[int, ...]:
        """The stages that the next step may compute, in the order in which they may: the first that has anything."""
        if self.older is None:
            return (self.current,)
        stages = (self.older, self.current)
        return stages[::-1] if self._last_turn == self.older else stages

    def take_turn(self, stage: int) -> None:
        """A step computes this stage."""
        self._last_turn = stage

    def choose_pinned(self, running: Seq[Request]) -> list[Request]:
        """Who finishes on the stage that it began on, if the stage that follows is there.

        Pinning costs steps of its own beside those of the others, until the last pinned request has ended; computing
        again costs what the tokens so far cost. Those with the least left are pinned, as many as makes the sum least,
        and none beyond `PIN_LIMIT_S`. How long an answer becomes nobody knows: what is left is what it may have.
        """
        if self._policy != "cost" or self._costs is None:
            return list(running) if self._policy == "pin" else []
        by_rest = sorted((request for request in running if _has_begun(request)), key=self._num_left)
        recompute = [self._recompute_s(request) for request in by_rest]
        best, least_s = 0, sum(recompute)
        for count in range(1, len(by_rest) + 1):
            beside_s, whole_s = self._pinning_s(by_rest[:count], by_rest[count:])
            if whole_s > PIN_LIMIT_S:
                break
            seconds = beside_s + sum(recompute[count:])
            if seconds < least_s:
                best, least_s = count, seconds
        return by_rest[:best]

    def _recompute_s(self, request: Request) -> float:
        assert self._costs is not None
        tokens = [len(seq.token_ids) for seq in request.unfinished]
        num_prompt = len(request.prompt_token_ids)
        total = num_prompt + sum(count - num_prompt for count in tokens)  # samples share the prompt
        return self._costs.recompute(total, chunk=self._chunk)

    def _num_left(self, request: Request) -> int:
        """Steps until its last sequence has all the tokens that it may have, at least one."""
        fewest = min((seq.num_output_tokens for seq in request.unfinished), default=0)
        missing = sum(len(seq.token_ids) - seq.num_computed_tokens for seq in request.unfinished)
        return max(1, request.max_tokens - fewest) + missing // self._chunk

    def _pinning_s(self, pinned: Seq[Request], others: Seq[Request]) -> tuple[float, float]:
        """Seconds that steps of their own take beyond what the pinned would add to others' steps, and seconds until the
        last of them has ended, which begin at their shortest rest."""
        assert self._costs is not None
        step = self._costs.step
        alone = _decoding(others)
        beside_s = whole_s = 0.0
        done = 0
        for at, request in enumerate(pinned):
            num_steps = self._num_left(request) - done
            done += num_steps
            own = _decoding(pinned[at:])
            own_s, others_s = step(own), step(alone)
            together_s = step(own.plus(alone))
            beside_s += num_steps * max(0.0, own_s + others_s - together_s)
            whole_s += num_steps * (own_s + others_s)
        return beside_s, whole_s


def _has_begun(request: Request) -> bool:
    return any(seq.num_computed_tokens for seq in request.unfinished)


def _decoding(requests: Seq[Request]) -> StepShape:
    """A step in which all their sequences get one token."""
    lengths = [len(seq.token_ids) for request in requests for seq in request.unfinished]
    return StepShape(len(lengths), len(lengths), 0.0, sum(lengths))
