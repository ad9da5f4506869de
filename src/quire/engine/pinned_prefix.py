"""Compute a prefix at start, and again at every stage of the model, and keep its blocks for good."""

from __future__ import annotations

import logging
from dataclasses import replace

from quire.engine.engine import Engine
from quire.engine.request_state import RequestState
from quire.outputs import Stats
from quire.prompt import Prompt, PromptLike
from quire.sampling_params import SamplingParams

logger = logging.getLogger("quire")


def pin_prefix(engine: Engine, prompt: PromptLike) -> int:
    """Compute a prefix and keep its full blocks for good, over promotions; return their tokens. ValueError if it does
    not fit or prefix caching is off; RuntimeError if computing it failed."""
    return _PinnedPrefix(engine, prompt).compute()


class _PinnedPrefix:
    def __init__(self, engine: Engine, prompt: PromptLike) -> None:
        if not engine.scheduler.config.enable_prefix_caching:
            raise ValueError("a pinned prefix is found by prefix caching; leave enable_prefix_caching on")
        params = SamplingParams(max_tokens=2, temperature=0, detokenize=False, ignore_eos=True)
        accepted = engine.input_processor.accept(prompt, params)
        whole: Prompt = replace(accepted.prompt, documents=(len(accepted.prompt.token_ids),))
        self._engine = engine
        self._processed = replace(accepted, prompt=whole)
        self._state: RequestState | None = None  #: the request that computes it
        self._num_blocks = 0
        self._is_started = False  #: the first computation is over

    def compute(self) -> int:
        engine = self._engine
        engine.on_stats.append(self._after_step)
        if engine.promoter is not None:
            engine.promoter.on_promotion.append(self._restart)  # one may come before the first computation is over
        try:
            self._restart()
            while (state := self._state) is not None:
                engine.step()
                if state.is_finished:  # a failed step has no stats
                    self._keep_if_computed()
        except BaseException:
            self._stop()
            engine.on_stats.remove(self._after_step)
            if engine.promoter is not None:
                engine.promoter.on_promotion.remove(self._restart)
            raise
        self._is_started = True
        return self._num_blocks * engine.scheduler.config.block_size

    def _restart(self, stage: int = 0) -> None:
        self._stop()
        self._engine.scheduler.kv.unpin()
        self._state = self._engine.add(self._processed)

    def _after_step(self, stats: Stats) -> None:
        if self._state is None:
            return
        try:
            self._keep_if_computed()
        except (ValueError, RuntimeError) as error:
            if not self._is_started:
                raise
            logger.error("the pinned prefix is not kept at stage %d: %s", self._engine.stage, error)

    def _keep_if_computed(self) -> None:
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
            self._num_blocks = self._engine.scheduler.pin_prefix(request.request_id)
        finally:
            self._stop()

    def _stop(self) -> None:
        if self._state is not None:
            self._engine.abort(self._state.request.request_id)
            self._state = None
