"""Assign requests to model stages during progressive loading.

KV is valid for one stage only: a new layer has none for earlier tokens, and all later layers' inputs change with it. So
a request in flight at a promotion either finishes on its stage (it is pinned) or is recomputed on the new one. All
sequences of a step share a stage; while two stages are alive, their steps alternate. At most one older stage stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from collections.abc import Sequence as Seq

from quire.core.decisions.costs import Costs, StepShape
from quire.core.request import Request

POLICIES = ("cost", "pin", "recompute")
PIN_LIMIT_S = 10.0  #: maximum life of an older stage; its remaining requests are recomputed then


class Stages:
    """The stages in use, and how many requests compute with each.

    Args:
        costs: predicts pinning and recomputing; None recomputes, unless the policy says otherwise.
        policy: cost, pin or recompute.
        chunk: maximum tokens of a step.

    Attributes:
        current: stage of new requests, counted from 1.
        root: namespace key of its KV; None leaves requests the root that they bring.
        older: stage of the pinned requests; None without any.
    """

    def __init__(self, costs: Costs | None, policy: str, chunk: int) -> None:
        self.current = 1
        self.root: bytes | None = None
        self.older: int | None = None
        self._num_requests: Counter[int] = Counter()  #: by stage
        self._retired: list[int] = []
        self._costs = costs
        self._policy = policy
        self._chunk = chunk
        self._last_served = 0

    def start(self, number: int, root: bytes) -> None:
        """Set the first stage, before any request."""
        assert not self._num_requests
        self.current, self.root = number, root

    def advance(self, number: int, root: bytes) -> None:
        """Make a later stage the current one. Requests stay on the older one until `leave`."""
        assert number > self.current, f"stage {number} does not come after stage {self.current}"
        assert self.older is None, "two older stages"
        before = self.current
        self.current, self.root = number, root
        if self._num_requests[before]:
            self.older = before
        else:
            self._retired.append(before)

    def assign(self, request: Request) -> None:
        """Have a request compute with the current stage."""
        request.stage = self.current
        if self.root is not None:
            request.root = self.root
        self._num_requests[request.stage] += 1

    def leave(self, request: Request) -> None:
        """Release a request's stage: it has finished, or is about to be recomputed."""
        self._num_requests[request.stage] -= 1
        if request.stage == self.older and not self._num_requests[request.stage]:
            self._retired.append(self.older)
            self.older = None

    def pop_retired(self) -> list[int]:
        """Return the stages that no step names any more, once each."""
        retired, self._retired = self._retired, []
        return retired

    def serving_order(self) -> tuple[int, ...]:
        """Return the stages that the next step may compute. It takes the first one with work."""
        if self.older is None:
            return (self.current,)
        stages = (self.older, self.current)
        return stages[::-1] if self._last_served == self.older else stages

    def record_served(self, stage: int) -> None:
        self._last_served = stage

    def check_integrity(self, requests: Iterable[Request]) -> None:
        """Raise AssertionError unless all requests are counted, on at most two stages."""
        assert +self._num_requests == Counter(request.stage for request in requests)
        assert set(+self._num_requests) <= {self.current, self.older}

    def choose_pinned(self, running: Seq[Request]) -> list[Request]:
        """Choose the requests that finish on the current stage when the next one arrives.

        Pinning costs extra steps until the last pinned request has finished; recomputing costs the tokens so far. The
        requests with the fewest tokens left are pinned, as many as minimise the sum, none beyond `PIN_LIMIT_S`. The
        length of an answer is unknown: its maximum counts.
        """
        if self._policy != "cost" or self._costs is None:
            return list(running) if self._policy == "pin" else []
        by_rest = sorted((request for request in running if _has_begun(request)), key=self._num_left)
        recompute = [self._recompute_s(request) for request in by_rest]
        best, least_s = 0, sum(recompute)
        for count in range(1, len(by_rest) + 1):
            extra_s, whole_s = self._pinning_s(by_rest[:count], by_rest[count:])
            if whole_s > PIN_LIMIT_S:
                break
            seconds = extra_s + sum(recompute[count:])
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
        """Maximum steps until its last sequence ends, at least one."""
        fewest = min((seq.num_output_tokens for seq in request.unfinished), default=0)
        missing = sum(len(seq.token_ids) - seq.num_computed_tokens for seq in request.unfinished)
        return max(1, request.max_tokens - fewest) + missing // self._chunk

    def _pinning_s(self, pinned: Seq[Request], others: Seq[Request]) -> tuple[float, float]:
        """Predict the extra seconds of separate steps, and the seconds until the last pinned request ends."""
        assert self._costs is not None
        step = self._costs.step
        alone = _decoding(others)
        extra_s = whole_s = 0.0
        done = 0
        for at, request in enumerate(pinned):
            num_steps = self._num_left(request) - done
            done += num_steps
            own = _decoding(pinned[at:])
            own_s, others_s = step(own), step(alone)
            together_s = step(own.plus(alone))
            extra_s += num_steps * max(0.0, own_s + others_s - together_s)
            whole_s += num_steps * (own_s + others_s)
        return extra_s, whole_s


def _has_begun(request: Request) -> bool:
    return any(seq.num_computed_tokens for seq in request.unfinished)


def _decoding(requests: Seq[Request]) -> StepShape:
    """The shape of a step that decodes one token of each sequence."""
    lengths = [len(seq.token_ids) for request in requests for seq in request.unfinished]
    return StepShape(len(lengths), len(lengths), 0.0, sum(lengths))
