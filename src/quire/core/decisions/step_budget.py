"""How many tokens a step computes: of prompts as many as pay, and beside streams as many as these can bear.

A stream's next token comes with the end of its step, so that a chunk of a prompt is an interval between two tokens of
every stream. With nobody decoding nothing but the step's memory speaks against large chunks.
"""

from __future__ import annotations

from quire.config import SchedulerConfig
from quire.core.decisions.costs import Costs, StepShape

LEAST_CHUNK = 16  #: that a step computes of a prompt though streams miss their target by it, or it would never end
_MARGIN = 0.9  #: of the target, that a step is predicted to take: beside computing there is deciding and telling


class StepBudget:
    """The tokens of one step after the other.

    Args:
        config: of the scheduler.
        costs: predicts steps, for a target.

    Attributes:
        left: tokens that the step can still compute.

    Raises:
        ValueError: there is a target, and nothing to predict steps by.
    """

    def __init__(self, config: SchedulerConfig, costs: Costs | None) -> None:
        if config.target_itl_s is not None and costs is None:
            raise ValueError("a target for the time between tokens needs costs that predict it")
        self._most = config.max_num_batched_tokens
        self._most_beside_streams = min(self._most, config.max_tokens_beside_streams or self._most)
        self._target_s = None if config.target_itl_s is None else config.target_itl_s * _MARGIN
        self._costs = costs
        self.left = 0
        self._num_waiting = 0  #: streams whose token this step still has to compute
        self._beside: StepShape | None = None  #: the streams, and the chunks beside them; None until they are known
        self._num_streams = 0

    def begin(self) -> None:
        """A step is to be made."""
        self.left = self._most
        self._num_waiting = self._num_streams = 0
        self._beside = None

    @property
    def knows_streams(self) -> bool:
        """Whether `meet_streams` was called for this step."""
        return self._beside is not None

    def meet_streams(self, served: StepShape, to_come: StepShape) -> None:
        """Before the first chunk of a step.

        Args:
            served: what the step computes so far: streams.
            to_come: the other streams, that the step is to serve as well.
        """
        self._beside = served.plus(to_come)
        self._num_waiting = to_come.num_tokens
        self._num_streams = self._beside.num_tokens

    def grant(self, start: int, num_missing: int) -> int:
        """How many of a sequence's tokens the step computes.

        Args:
            start: tokens of it that are computed already.
            num_missing: the others that it knows. More than one are a chunk, before which streams have to be known.

        Returns:
            0 where the step has no room for it; others may have.
        """
        if num_missing <= 1:
            return min(num_missing, self.left)
        assert self._beside is not None, "a chunk depends on the streams beside it"
        is_first = self._beside.num_tokens == self._num_streams
        room = self.left - self._num_waiting
        if self._num_streams:
            room = min(room, self._most_beside_streams - self._beside.num_tokens)
            if self._target_s is not None:
                room = self._within_target(self._beside, start, min(room, num_missing))
                room = max(room, min(LEAST_CHUNK, self.left - self._num_waiting)) if is_first else room
        if is_first:
            room = max(1, room)  # the oldest goes on in every step
        return max(0, min(num_missing, room, self.left))

    def take(self, start: int, num_tokens: int, *, is_stream: bool) -> None:
        """The step computes a sequence's next tokens.

        Args:
            is_stream: it is the one token that the sequence missed.
        """
        self.left -= num_tokens
        if is_stream and self._num_waiting:
            self._num_waiting -= 1
        elif self._beside is not None:
            self._beside = self._beside.plus_chunk(start, num_tokens)

    @property
    def max_decodes(self) -> int:
        """How many sequences may decode now (`take_decodes`)."""
        return self.left if self._beside is None else min(self.left, self._num_waiting)

    def take_decodes(self, count: int) -> None:
        """The step computes one token each of `count` decoding sequences."""
        self.left -= count
        if self._beside is not None:
            self._num_waiting -= count

    def chunk_beside(self, streams: StepShape | None) -> int:
        """How many tokens of a prompt a step is going to compute beside these streams: at least one."""
        if streams is None or streams.num_tokens == 0:
            return self._most
        room = self._most_beside_streams - streams.num_tokens
        if self._target_s is not None:
            room = max(self._within_target(streams, 0, room), LEAST_CHUNK)
        return max(1, room)

    def _within_target(self, beside: StepShape, start: int, most: int) -> int:
        """Of `most` tokens from `start` on, as many as leave the step within its target."""
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
