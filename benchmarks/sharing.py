"""Blocks saved by sharing them between the samples or beams of a request (PagedAttention, section 6.3).

Saved blocks: at every step, the entries of all block tables less the used blocks, over the entries; summed over the
run. In the baseline, a fork copies its parent's blocks, so fewer sequences fit in the pool.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.script import start
from quire.bench.bench_settings import runs
from quire.bench.plots import COLOURS
from quire.bench.report import Column, Report, summarise
from quire.bench.workload import Workload, make_workload, token_range, uniform_lengths
from quire.cli.options import Json, Plot, options
from quire.config import EngineConfig
from quire.core.kv_cache_manager import KVCacheManager
from quire.core.request import Sequence as BlockSequence
from quire.core.scheduler import Scheduler
from quire.core.swap_manager import SwapManager
from quire.core.transfers import Transfers
from quire.engine.engine import Engine
from quire.outputs import BlockTransfer, Stats
from quire.sampling_params import BeamSearchParams, SamplingParams
from quire.settings import Settings, integers, setting


@dataclass(frozen=True)
class SharingSettings(Settings):
    """Options of the sharing benchmark."""

    widths: tuple[int, ...] = setting("2,4,6", "Samples a request, and beam widths.", read=integers, at_least=1)
    num_requests: int = setting(16, "Requests of each kind.", at_least=1)
    runs: int = runs()


@dataclass(frozen=True)
class Kind:
    """Requests of one shape, with the paper's savings."""

    name: str
    prompt: int  #: mean tokens; drawn evenly from half to one and a half of it
    output: int
    published: dict[str, tuple[int, int]]  #: percent


KINDS = (
    Kind("short (Alpaca-like)", 19, 58, {"parallel": (6, 10), "beam": (38, 55)}),
    Kind("long (ShareGPT-like)", 161, 338, {"parallel": (16, 31), "beam": (44, 66)}),
)
_METHODS = {"parallel": "parallel samples", "beam": "beam search"}
_COLUMNS = (
    Column("kind", "requests"),
    Column("method", "method"),
    Column("width", "width", digits=0),
    Column("saved", "blocks saved", scale=100, digits=1),
    Column("published", "published"),
    Column("shared_tok_s", "tok/s shared", digits=1),
    Column("copied_tok_s", "tok/s copied", digits=1),
    Column("speedup", "ratio", digits=2),
)


class CopyingKVCacheManager(KVCacheManager):
    """The baseline: a fork copies its parent's blocks, and prefixes are never found."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        super().__init__(num_blocks, block_size, enable_prefix_caching=False)
        self._copies: list[BlockTransfer] = []  # of forks since the last step began
        # Of forks of the step that is being made; their sources are held until it is over.
        self._sent: list[BlockTransfer] = []

    def begin_step(self) -> None:
        super().begin_step()
        for copy in self._sent:
            self.pool.release(copy.src)
        self._sent, self._copies = self._copies, []

    def take_copies(self) -> list[BlockTransfer]:
        """Copies to send with the current step."""
        return self._sent

    def find_prefix(self, seq: BlockSequence, limit: int | None = None) -> list[int]:
        return []

    def fork(self, parent: BlockSequence, child: BlockSequence) -> None:
        if self.pool.num_available < len(parent.block_table):
            return  # no room: the child is computed again
        for block in parent.block_table:
            own = self.pool.allocate()
            child.block_table.append(own)
            self.pool.acquire(block)
            self._copies.append(BlockTransfer(0, "copy", block, own))
        child.num_computed_tokens = parent.num_computed_tokens
        child.num_registered = len(child.block_table)
        self.num_logical_blocks += len(child.block_table)
        self.num_kv_tokens += child.num_computed_tokens

    def free(self, seq: BlockSequence) -> int:
        given_up = set(seq.block_table)
        for copy in [copy for copy in self._copies if copy.dst in given_up]:  # dropped before it was copied
            self._copies.remove(copy)
            self.pool.release(copy.src)
        return super().free(seq)


class _Copies(Transfers):
    """Sends the copies of forks with each step."""

    def __init__(self, kv: CopyingKVCacheManager) -> None:
        super().__init__()
        self._kv = kv

    def pop_new(self) -> list[BlockTransfer]:
        return self._kv.take_copies()


def copy_on_fork(scheduler: Scheduler) -> None:
    """Turn a fresh scheduler into the baseline."""
    config = scheduler.config
    kv = CopyingKVCacheManager(config.num_blocks, config.block_size)
    swap = SwapManager(kv)
    swap.transfers = _Copies(kv)
    Scheduler.__init__(
        scheduler, config, scheduler.recovery.policy, scheduler.decider.costs, swap=swap
    )  # it has nothing yet


def run(config: EngineConfig, settings: SharingSettings, json: Path | None, plot: Path | None) -> None:
    """Measure every kind, method and width with and without sharing, in turns."""
    from quire.assembly import load, make_engine

    config = replace(config, skip_tokenizer_init=True, enable_prefix_caching=False)
    loaded = load(config)
    shared, copied = make_engine(config, loaded), make_engine(config, loaded)
    limits = copied.scheduler.config
    copy_on_fork(copied.scheduler)
    report = Report(
        "sharing",
        f"Sharing: {config.model}, {limits.num_blocks} blocks of {limits.block_size} tokens, "
        f"{settings.num_requests} requests",
        _COLUMNS,
        notes=[
            "blocks saved: % of the blocks that the sequences would hold without sharing (Figure 15 of the paper).",
            "Lengths are drawn evenly from half to one and a half of the mean; the beams of a random model "
            "are not those of a trained one.",
        ],
        settings={**asdict(config), **settings.as_json()},
    )
    report.figures = [
        _measure(shared, copied, kind, method, width, settings)
        for kind in KINDS
        for method in _METHODS
        for width in settings.widths
    ]
    report.publish(json, plot, lambda figure: _draw(figure, report))


def _measure(
    shared: Engine, copied: Engine, kind: Kind, method: str, width: int, settings: SharingSettings
) -> dict[str, Any]:
    lengths = uniform_lengths(
        settings.num_requests, (-(-kind.prompt // 2), kind.prompt * 3 // 2), (kind.output // 2, kind.output * 3 // 2)
    )
    workload = make_workload(kind.name, lengths)
    saved: list[float] = []
    rates: dict[bool, list[float]] = {True: [], False: []}
    for repetition in range(settings.runs):
        shifted = workload.shifted(repetition, token_range(shared.vocab_size))
        for engine in (shared, copied):
            share, rate = run_once(engine, shifted, method, width)
            rates[engine is shared].append(rate)
            if engine is shared:
                saved.append(share)
    return {
        "kind": kind.name,
        "method": method,
        "width": width,
        "requests": settings.num_requests,
        "saved": summarise(saved),
        "published": "{}–{} %".format(*kind.published[method]),
        "shared_tok_s": summarise(rates[True]),
        "copied_tok_s": summarise(rates[False]),
        "speedup": summarise(a / b for a, b in zip(rates[True], rates[False], strict=True)),
    }


def run_once(engine: Engine, workload: Workload, method: str, width: int) -> tuple[float, float]:
    """Run a workload. Returns the share of saved blocks, and tokens per second of all samples or beams."""
    steps: list[Stats] = []
    engine.on_stats.append(steps.append)
    started = engine.clock()
    try:
        for at, request in enumerate(workload.requests):
            params: SamplingParams | BeamSearchParams
            if method == "parallel":
                params = SamplingParams(
                    n=width, max_tokens=request.max_tokens, ignore_eos=True, detokenize=False, seed=at
                )
            else:
                params = BeamSearchParams(width, request.max_tokens, ignore_eos=True)
            engine.add_request(request.prompt_token_ids, params)
        while engine.has_unfinished():
            for answer in engine.step():
                if answer.request.error is not None:
                    raise RuntimeError(f"a request failed: {answer.request.error}")
    finally:
        engine.on_stats.remove(steps.append)
    logical, used = (sum(getattr(stats, name) for stats in steps) for name in ("num_logical_blocks", "num_used_blocks"))
    return 1 - used / logical if logical else 0.0, workload.num_output_tokens * width / (engine.clock() - started)


def _draw(figure: Any, report: Report) -> None:
    figure.suptitle("KV blocks saved by sharing them between a request's samples or beams: more is better")
    for axes, kind in zip(figure.subplots(1, len(KINDS), sharey=True), KINDS, strict=True):
        for (method, label), colour in zip(_METHODS.items(), COLOURS, strict=False):
            rows = [f for f in report.figures if f["kind"] == kind.name and f["method"] == method]
            widths, saved = [f["width"] for f in rows], [100 * f["saved"]["median"] for f in rows]
            axes.plot(widths, saved, marker="o", color=colour, label=label)
            axes.axhspan(*kind.published[method], color=colour, alpha=0.12, lw=0, label=f"{label}, published")
        axes.set(title=kind.name, xlabel="samples or beams", ylim=(0, 100), xticks=sorted({*widths}))
        axes.set_ylabel("blocks saved, %")
        axes.label_outer()


@options()
def main(engine: EngineConfig, settings: SharingSettings, json: Json = None, plot: Plot = None) -> None:
    """Blocks saved, and throughput, when the samples or beams of a request share blocks."""
    run(engine, settings, json, plot)


if __name__ == "__main__":
    start(main)
