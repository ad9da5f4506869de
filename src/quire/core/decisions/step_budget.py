"""Token budget of a step: how large a chunk of a prompt may be, alone and beside decoding streams, which it delays."""

from __future__ import annotations

from quire.config import SchedulerConfig
from quire.core.decisions.costs import Costs, StepShape

LEAST_CHUNK = 16  #: minimum tokens of a prompt per step, even if streams miss their target: the prompt must progress
_MARGIN = 0.9  #: share of the target for computing; scheduling and delivery need the rest


class StepBudget:
    """The budget of a step: `left` tokens remain. Raises ValueError for a target between tokens without costs."""

    def __init__(self, config: SchedulerConfig, costs: Costs | None) -> None:
        if config.target_itl_s is not None and costs is None:
            raise ValueError("a target for the time between tokens needs costs that predict it")
        self._most = config.max_num_batched_tokens
        self.most_beside_streams = min(self._most, config.max_tokens_beside_streams or self._most)
        self._target_s = None if config.target_itl_s is None else config.target_itl_s * _MARGIN
        self._costs = costs
        self.left = 0
        self._num_waiting = 0  #: streams that this step still has to serve
        self.beside: StepShape | None = None  #: streams and the chunks beside them; None until streams are known
        self._num_streams = 0

    def begin(self) -> None:
        """Begin a step."""
        self.left = self._most
        self._num_waiting = self._num_streams = 0
        self.beside = None

    def set_streams(self, served: StepShape, pending: StepShape) -> None:
        """Record the streams that the step computes already and still has to serve, before its first chunk."""
        self.beside = served.plus(pending)
        self._num_waiting = pending.num_tokens
        self._num_streams = self.beside.num_tokens

    def grant(self, start: int, num_missing: int, num_kept: int = 0) -> int:
        """How many of a sequence's `num_missing` known tokens the step may compute, beside `num_kept` of other tenants'
        prompts; maybe 0. For a chunk, the step's streams must be known."""
        if num_missing <= 1:
            return min(num_missing, self.left)
        assert self.beside is not None, "a chunk depends on the streams beside it"
        is_first = self.beside.num_tokens == self._num_streams
        room = self.left - self._num_waiting
        if self._num_streams:
            room = min(room, self.most_beside_streams - self.beside.num_tokens)
            if self._target_s is not None:
                room = self._within_target(self.beside, start, min(room, num_missing))
                room = max(room, min(LEAST_CHUNK, self.left - self._num_waiting)) if is_first else room
        room -= num_kept
        if is_first:
            room = max(1, room)  # the oldest progresses in every step
        return max(0, min(num_missing, room, self.left))

    def charge(self, start: int, num_tokens: int, *, is_stream: bool) -> None:
        """Charge a sequence's next tokens; `is_stream` if it decodes: it had one token to compute."""
        self.left -= num_tokens
        if is_stream and self._num_waiting:
            self._num_waiting -= 1
        elif self.beside is not None:
            self.beside = self.beside.plus_chunk(start, num_tokens)

    def count_spare(self, step: StepShape, start: int, most: int) -> int:
        """How many of `most` tokens from `start` on of a waiting request the step can compute beside its streams."""
        most = max(0, min(most, self.left, self.most_beside_streams - step.num_tokens))
        return most if self._target_s is None else self._within_target(step, start, most)

    @property
    def max_decodes(self) -> int:
        """How many sequences may decode now (`charge_decodes`)."""
        return self.left if self.beside is None else min(self.left, self._num_waiting)

    def charge_decodes(self, count: int) -> None:
        """The step computes one token each of `count` decoding sequences."""
        self.left -= count
        if self.beside is not None:
            self._num_waiting -= count

    def chunk_beside(self, streams: StepShape | None) -> int:
        """Predict how many tokens of a prompt a step computes beside these streams: at least one."""
        if streams is None or streams.num_tokens == 0:
            return self._most
        room = self.most_beside_streams - streams.num_tokens
        if self._target_s is not None:
            room = max(self._within_target(streams, 0, room), LEAST_CHUNK)
        return max(1, room)

    def _within_target(self, beside: StepShape, start: int, most: int) -> int:
        """How many of `most` tokens from `start` on keep the step within its target."""
        assert self._costs is not None
        assert self._target_s is not None
        low, high = 0, max(0, most)
        while low < high:
            middle = (low + high + 1) // 2
            if self._costs.step(beside.plus_chunk(start, middle)) <= self._target_s:
                low = middle
            else:
                high = middle - 1
        return low if low >= most or low < LEAST_CHUNK else low - low % LEAST_CHUNK
