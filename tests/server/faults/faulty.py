"""Engines that fail at chosen places and times."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from quire.assembly import start_engine
from quire.config import EngineConfig
from quire.engine.engine import Engine


class Injected(Exception):
    pass


class Fault:
    """Makes engines that raise once, after `arm`, at one stage: schedule, execute, update, abort or figures.

    With `lasts` they raise at every later step, in later engines too.
    """

    def __init__(self, stage: str, *, lasts: bool = False) -> None:
        self.num_made = 0
        self._stage = stage
        self._lasts = lasts
        self._is_armed = threading.Event()

    def arm(self) -> None:
        self._is_armed.set()

    def disarm(self) -> None:
        self._is_armed.clear()

    def __call__(self, config: EngineConfig) -> Engine:
        self.num_made += 1
        engine = start_engine(config)
        owner, name = {
            "schedule": (engine.scheduler, "schedule"),
            "execute": (engine.runner, "execute"),
            "update": (engine.scheduler, "update"),
            "figures": (engine.step_stats, "describe_state"),
            "abort": (engine, "abort"),
        }[self._stage]
        setattr(owner, name, self._breaking(getattr(owner, name)))
        return engine

    def _breaking(self, usual: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            if self._is_armed.is_set():
                if not self._lasts:
                    self._is_armed.clear()
                raise Injected("on purpose")
            return usual(*args, **more)

        return call


def corrupt_logits(engine: Engine, prompt_token: int) -> None:
    """Turn the logits into NaN for requests whose prompt begins with this token."""
    usual = engine.runner.sampler.sample  # type: ignore[attr-defined]

    def sample(logits: np.ndarray, states: Any) -> Any:
        rows = [i for i, state in enumerate(states) if state.info.token_ids[0] == prompt_token]
        logits = logits.copy()
        logits[rows] = np.nan
        return usual(logits, states)

    engine.runner.sampler.sample = sample  # type: ignore[attr-defined]


def raise_in_answer(engine: Engine, prompt_token: int) -> None:
    """Make detokenization fail for requests whose prompt begins with this token."""
    for answer in engine._states.values():
        if answer.request.prompt_token_ids[0] == prompt_token:
            answer.add = _raise  # type: ignore[method-assign]


def _raise(*_: Any, **__: Any) -> Any:
    raise Injected("on purpose")
