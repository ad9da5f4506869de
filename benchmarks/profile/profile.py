"""Time of a step by part, each against the machine's limit.

Steps with and without timers take turns over the same requests. Contexts are random blocks that are not computed, since
a step's time does not depend on values.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from quire.bench.report import Column, Report, summarise
from quire.config import EngineConfig
from quire.ops.arrays import as_tensor
from quire.sampling_params import SamplingParams
from quire.settings import Settings, integers, setting

if TYPE_CHECKING:
    from benchmarks.profile.limits import Machine, Work
    from quire.engine.engine import Engine

_WARM_UP = 2
_TOTAL = "whole step"


@dataclass(frozen=True)
class ProfileSettings(Settings):
    """Options of the profile."""

    running: tuple[int, ...] = setting("1,8,32", "Sequences a step.", read=integers, at_least=1)
    context: int = setting(512, "Their tokens.", at_least=1)
    prefill: tuple[int, ...] | None = setting(
        None, "Also prompts of so many tokens, one a step.", read=integers, at_least=1
    )
    runs: int = setting(10, "Steps of each, and as many with timers.", at_least=1)


@dataclass
class _Steps:
    """Timings of one shape of step, without timers and by part with them."""

    name: str
    plain: list[float] = field(default_factory=list)
    timed: list[dict[str, float]] = field(default_factory=list)

    def figures(self, work: Work, machine: Machine) -> Iterator[dict[str, Any]]:
        from benchmarks.profile.parts import PARTS

        whole = median(self.plain)
        for part in PARTS:
            seconds = [parts[part] for parts in self.timed]
            if any(seconds):
                shares = median(parts[part] / sum(parts.values()) for parts in self.timed)
                yield self._figure(part, seconds, shares, work.limit(part, machine))
        limits = [work.limit(part, machine) or 0.0 for part in PARTS]
        yield self._figure(_TOTAL, self.plain, 1.0, sum(limits)) | {
            "known_share": median(1 - parts["rest"] / sum(parts.values()) for parts in self.timed),
            "timers_share": median(sum(parts.values()) for parts in self.timed) / whole - 1,
        }

    def _figure(self, part: str, seconds: list[float], share: float, limit: float | None) -> dict[str, Any]:
        reached = None if limit is None else limit / median(seconds)
        summary = summarise(seconds)
        return {
            "step": self.name, "part": part, "part_s": summary, "share": share, "limit_s": limit, "reached": reached,
        }  # fmt: skip


class _Profile:
    """Runs steps on an idle engine with a real model."""

    def __init__(self, engine: Engine, runs: int) -> None:
        from benchmarks.profile.limits import Machine
        from benchmarks.profile.parts import PartClock
        from quire.runner.model_runner import ModelRunner

        assert isinstance(engine.runner, ModelRunner)
        self._engine, self._runner, self._runs = engine, engine.runner, runs
        self._clock = PartClock()
        self._names = itertools.count()
        self.machine = Machine(self._runner.model)

    def decode(self, running: int, context: int) -> list[dict[str, Any]]:
        """Steps of `running` sequences with one token each, at `context` tokens."""
        from benchmarks.null_runner import NullRunner
        from benchmarks.profile.limits import work_of_step
        from quire.calibration.microbenchmark import Microbenchmark

        engine, steps = self._engine, _Steps(f"{running} × {context:,}")
        with Microbenchmark(engine) as bench:
            bench.scatter()
        ids = [self._add(context, 2 * self._runs + _WARM_UP + 1) for _ in range(running)]
        engine.runner = NullRunner(self._runner.batch)
        while any(not request.sequences[0].num_output_tokens for request in engine.scheduler.queue.requests.values()):
            engine.step()
        engine.runner = self._runner
        for _ in range(_WARM_UP):
            engine.step()
        for turn in range(self._runs):
            self.machine.measure()
            self._take_turn(steps, turn, engine.step)
        for request_id in ids:
            engine.abort(request_id)
        work = work_of_step(self._runner.model, running, [(context + self._runs, 1)] * running)
        return list(steps.figures(work, self.machine))

    def prefill(self, num_tokens: int) -> list[dict[str, Any]]:
        """Steps of one prompt."""
        from benchmarks.profile.limits import work_of_step

        engine, steps = self._engine, _Steps(f"prompt of {num_tokens:,}")
        for turn in range(-1, self._runs):
            self.machine.measure()
            self._take_turn(steps, turn, lambda: (self._add(num_tokens, 1), engine.step()))
        del steps.plain[0], steps.timed[0]
        work = work_of_step(self._runner.model, num_tokens, [(num_tokens, num_tokens)])
        return list(steps.figures(work, self.machine))

    def _take_turn(self, steps: _Steps, turn: int, step: Any) -> None:
        from benchmarks.profile.parts import parts_timed

        for is_timed in (True, False) if turn % 2 else (False, True):
            if is_timed:
                with parts_timed(self._engine, self._runner, self._clock):
                    self._clock.reset()
                    step()
                    steps.timed.append(self._clock.seconds)
            else:
                started = time.perf_counter()
                step()
                steps.plain.append(time.perf_counter() - started)

    def _add(self, num_tokens: int, max_tokens: int) -> str:
        name, size = next(self._names), self._engine.vocab_size
        prompt = [(name + 7 * at) % size for at in range(num_tokens)]
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
        return self._engine.add_request(prompt, params).request.request_id


def measure(config: EngineConfig, settings: ProfileSettings) -> tuple[list[dict[str, Any]], Machine]:
    """A figure per part and shape of step, and the rates of the limits."""
    from quire.assembly import load, make_engine
    from quire.runner.model_runner import ModelRunner

    most, longest = max(settings.running), max(settings.prefill or (1,))
    length = max(settings.context + 2 * settings.runs + _WARM_UP + 1, longest + 1)
    config = replace(
        config,
        device="cpu",
        max_num_seqs=most,
        # All contexts in one step: who waits for others' would meanwhile decode.
        max_num_batched_tokens=max(most * settings.context, longest, config.max_num_batched_tokens or 0),
        max_model_len=length,
        num_kv_blocks=int(1.1 * most * -(-length // config.block_size)) + 8,
        enable_prefix_caching=False,
    )
    engine = make_engine(config, load(config))
    assert isinstance(engine.runner, ModelRunner)
    as_tensor(engine.runner.cache.blocks).normal_()  # memory that was never written would be one page of zeros
    profile = _Profile(engine, settings.runs)
    figures = []
    for running in settings.running:
        figures += profile.decode(running, settings.context)
    for num_tokens in settings.prefill or ():
        figures += profile.prefill(num_tokens)
    return figures, profile.machine


def run(config: EngineConfig, settings: ProfileSettings, json: Path | None) -> None:
    figures, machine = measure(config, settings)
    totals = [figure for figure in figures if figure["part"] == _TOTAL]
    report = Report(
        "profile",
        f"Parts of a step: {config.model}",
        (
            Column("step", "step"),
            Column("part", "part"),
            Column("part_s", "ms", scale=1e3),
            Column("share", "share, %", scale=100, digits=1),
            Column("limit_s", "limit, ms", scale=1e3),
            Column("reached", "limit / ms, %", scale=100, digits=0),
        ),
        figures=figures,
        notes=[
            f"Limits: {machine.read_bytes_s / 1e9:.1f} GB/s read, {machine.operations_s / 1e9:,.0f} GFLOP/s in "
            "products, the best of this run.",
            *(
                f"{total['step']}: the parts without the rest are {total['known_share']:.1%} of a step with timers; "
                f"with them a step takes {total['timers_share']:+.1%}."
                for total in totals
            ),
        ],
        settings={**asdict(config), **settings.as_json()},
        more={"read_bytes_s": machine.read_bytes_s, "operations_s": machine.operations_s},
    )
    report.publish(json)
