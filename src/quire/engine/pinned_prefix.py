"""A prefix that is computed at start, and again at every stage of a model, and whose blocks are kept for good."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from quire.prompt import Prompt, PromptLike
from quire.sampling_params import SamplingParams

if TYPE_CHECKING:
    from quire.engine.engine import Engine
    from quire.engine.request_state import RequestState


class PinnedPrefix:
    """Args:
    engine: whose.
    prompt: text, token ids or a `Prompt`.

    Attributes:
        num_blocks: that are kept; None before they are for the first time.
        error: why they are not, at the stage that it was computed for last.

    Raises:
        ValueError: it does not fit, or nothing would find it.
    """

    def __init__(self, engine: Engine, prompt: PromptLike) -> None:
        if not engine.scheduler.config.enable_prefix_caching:
            raise ValueError("a pinned prefix is found by prefix caching; leave enable_prefix_caching on")
        params = SamplingParams(max_tokens=2, temperature=0, detokenize=False, ignore_eos=True)
        accepted = engine.input_processor.accept(prompt, params)
        whole: Prompt = replace(accepted.prompt, documents=(len(accepted.prompt.token_ids),))
        self.num_blocks: int | None = None
        self.error: Exception | None = None
        self._engine = engine
        self._processed = replace(accepted, prompt=whole)
        self._state: RequestState | None = None  #: computes it

    @property
    def is_pending(self) -> bool:
        """Whether it is being computed."""
        return self._state is not None

    def begin(self) -> None:
        """Compute it (again), beside whatever else there is."""
        self.give_up()
        self._engine.scheduler.kv.unpin()
        self.error = None
        self._state = self._engine.add(self._processed)

    def is_computed_by(self, state: RequestState) -> bool:
        return state is self._state

    def take(self) -> None:
        """After a step: keep its blocks, if they are computed."""
        state = self._state
        if state is None or (state.metrics.first_token_time is None and not state.is_finished):
            return
        request = state.request
        try:
            if request.error is not None:
                raise RuntimeError(f"the prefix could not be computed: {request.error}")
            if state.is_finished:
                raise ValueError(
                    f"the prefix has {len(request.prompt_token_ids)} tokens, and max_model_len="
                    f"{self._engine.max_model_len} leaves no room for a request after it; shorten it or raise "
                    "max_model_len"
                )
            self.num_blocks = self._engine.scheduler.pin_prefix(request.request_id)
        except (ValueError, RuntimeError) as error:
            self.error = error
        finally:
            self.give_up()

    def give_up(self) -> None:
        """Stop computing it."""
        if self._state is not None:
            self._engine.abort(self._state.request.request_id)
            self._state = None
