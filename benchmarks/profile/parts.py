"""Seconds of a step by part, from timers around an engine's methods and modules.

Every moment belongs to one part: a nested part is subtracted from the outer one.
"""

from __future__ import annotations

import ctypes
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from quire.models.architectures import llama
from quire.models.layers import Embedding, LayerNorm, RMSNorm
from quire.models.linear.layer import Linear
from quire.ops.module import Module, ModuleList

if TYPE_CHECKING:
    from quire.engine.engine import Engine
    from quire.models.base import CausalLM
    from quire.runner.model_runner import ModelRunner

QKV, ATTENTION_OUT, GATE_UP, DOWN, HEAD = "qkv", "o", "gate, up", "down", "head"
ATTENTION, PLAN, NORMS, ROTARY = "attention", "attention's plan", "norms", "rotary"
ELEMENTWISE, EMBEDDING, SAMPLING = "residual, activation", "embedding", "sampling"
BATCH, ENGINE, REST = "batch", "scheduler, outputs", "rest"
LINEAR = (QKV, ATTENTION_OUT, GATE_UP, DOWN, HEAD)
#: In the order in which a table has them.
PARTS = (*LINEAR, ATTENTION, PLAN, NORMS, ROTARY, ELEMENTWISE, EMBEDDING, SAMPLING, BATCH, ENGINE, REST)

_LINEAR_NAMES = {
    "qkv_proj": QKV, "attn.c_attn": QKV, "o_proj": ATTENTION_OUT, "out_proj": ATTENTION_OUT,
    "attn.c_proj": ATTENTION_OUT, "gate_proj": GATE_UP, "up_proj": GATE_UP, "gate_up_proj": GATE_UP, "fc1": GATE_UP,
    "c_fc": GATE_UP, "down_proj": DOWN, "fc2": DOWN, "mlp.c_proj": DOWN, "lm_head": HEAD,
}  # fmt: skip


class PartClock:
    """Seconds by part since `reset`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._open = [REST]
        self._since = time.perf_counter()

    def reset(self) -> None:
        self.seconds = defaultdict(float)
        self._since = time.perf_counter()

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function so that its time counts for a part."""

        @wraps(function)  # and what is recorded of a method of attention still is
        def call(*args: Any, **more: Any) -> Any:
            self._pass_to(part)
            try:
                return function(*args, **more)
            finally:
                self._pass_to(None)

        call.__self__ = getattr(function, "__self__", None)  # type: ignore[attr-defined]
        return call

    def move(self, seconds: float, to: str) -> None:
        """Move seconds from the forward pass to another part."""
        self.seconds[ELEMENTWISE] -= seconds
        self.seconds[to] += seconds

    def _pass_to(self, part: str | None) -> None:
        now = time.perf_counter()
        parts = self._open
        self.seconds[parts[-1]] += now - self._since
        if part is None:
            parts.pop()
        else:
            parts.append(part)
        self._since = now


def linear_layers(model: Module) -> Iterator[tuple[str, Linear]]:
    """The linear layers with a part of their own, and its name."""
    for path, module in model.named_modules("model"):
        if isinstance(module, Linear):
            names = path.split(".")
            part = _LINEAR_NAMES.get(names[-1]) or _LINEAR_NAMES.get(".".join(names[-2:]))
            if part is not None:
                yield part, module


_PART_OF_KERNEL = {"norm": NORMS, "rotate": ROTARY, "attend": ATTENTION}


@contextmanager
def _recorded_timed(model: CausalLM, clock: PartClock) -> Iterator[None]:
    linear = {getattr(module.packed, "address", None): part for part, module in linear_layers(model)}
    passes = model.recorded_passes.values()
    for each in passes:
        each.seconds = (ctypes.c_double * len(each.calls))()
    yield
    for each in passes:
        assert each.seconds is not None
        for call, seconds in zip(each.calls, each.seconds, strict=True):
            part = _PART_OF_KERNEL.get(call.function.__name__.split("_")[1])
            clock.move(seconds, part or linear.get(call.arguments.weight, REST))
        each.seconds = None


@contextmanager
def parts_timed(engine: Engine, runner: ModelRunner, clock: PartClock) -> Iterator[None]:
    """Install the timers around all parts of an engine's steps."""
    model = runner.model
    with ExitStack() as undo:

        def time_call(owner: Any, name: str, part: str) -> None:
            had, before = name in vars(owner), getattr(owner, name)
            setattr(owner, name, clock.timed(part, before))
            undo.callback(lambda: setattr(owner, name, before) if had else delattr(owner, name))

        def time_parts(kind: type[Module], parts: dict[int, str]) -> None:
            before = kind.__call__

            def call(module: Module, *args: Any, **more: Any) -> Any:
                return clock.timed(parts.get(id(module), REST), partial(before, module))(*args, **more)

            kind.__call__ = call  # type: ignore[method-assign]
            undo.callback(setattr, kind, "__call__", before)

        for name in ("_step", "_update"):
            time_call(engine, name, ENGINE)
        time_call(runner, "execute", REST)
        time_call(runner, "_sample", SAMPLING)
        for name in ("apply", "build"):
            time_call(runner.batch, name, BATCH)
        time_call(runner.cache, "clear", BATCH)
        time_call(runner.attention, "plan", PLAN)
        time_call(runner.attention, "attend", ATTENTION)
        if hasattr(model, "rotary"):
            time_call(model, "rotary", ROTARY)
        time_call(llama, "rotate_heads", ROTARY)
        linear = {id(module): part for part, module in linear_layers(model)}
        parts: dict[int, str] = {}
        for module in model.modules():
            if isinstance(module, Linear):
                part = linear.get(id(module), REST)
                time_call(module, "gated", part)
            elif isinstance(module, RMSNorm | LayerNorm):
                part = NORMS
                if isinstance(module, RMSNorm):
                    time_call(module, "add_and_norm", NORMS)
            elif isinstance(module, Embedding):
                part = EMBEDDING
            else:
                part = ELEMENTWISE  # what a block does between its layers
            parts[id(module)] = part
        for kind in {type(module) for module in model.modules()} - {ModuleList, type(model)}:
            time_parts(kind, parts)
        undo.enter_context(_recorded_timed(model, clock))
        yield
