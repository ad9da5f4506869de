"""KV memory wasted by each way of reserving it: arithmetic over the lengths of a trace (PagedAttention, Figure 2).

A request with P prompt tokens and G generated ones lives for G steps. At the end of step k it uses

    used(k) = P + k - 1        tokens of KV, up to P + G - 1 (the last token's KV is never needed)

and holds what its policy reserves:

    max_model_len     M at every step                     without paging and with unknown lengths
    power of two      the least power of two >= P + G     a buddy allocator with known lengths
    output's power    P + the least power of two >= G     "Orca (Pow2)" of the PagedAttention paper (SOSP '23)
    oracle            P + G                               "Orca (Oracle)" of the paper
    blocks of b       ceil(used(k) / b) * b at step k     paging

The wasted share is 1 - (sum of used) / (sum of reserved), over all steps of all requests (time-weighted), or over the
last steps (at completion). Sums are linear in the requests, so their concurrency does not matter. External
fragmentation is left out (`benchmarks.paged_attention` has it). The engine's own waste is measured over real steps:
slots of used blocks without a token, at most `block_size - 1` a sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.null_runner import NullRunner
from benchmarks.paged_attention.lengths import draw_lengths
from benchmarks.script import start
from quire.bench.report import Column, Report
from quire.bench.workload import Lengths, make_workload, read_trace
from quire.cli.options import Json, Plot, options
from quire.config import SchedulerConfig
from quire.engine.engine import Engine, ModelFacts
from quire.runner.batch import InputBatch
from quire.sampling_params import SamplingParams
from quire.settings import Settings, integers, setting

MAX_MODEL_LEN = 2048  #: the OPT models' of the PagedAttention paper
ENGINE_REQUESTS = 500  #: run on the real scheduler and pool
NUM_DRAWN = 20_000
PUBLISHED = (
    "For comparison, the PagedAttention paper (SOSP '23, Figure 2) has 79.6 % for max_model_len, 73.2 % for output's "
    "power, 61.8 % for oracle and 3.7 % for blocks of 16."
)

Tokens = npt.NDArray[np.int64]


@dataclass(frozen=True)
class MemorySettings(Settings):
    """Options of the memory benchmark."""

    trace: Path | None = setting(None, "CSV with TIMESTAMP,ContextTokens,GeneratedTokens.")
    lengths: str | None = setting(None, "Drawn lengths instead of a trace: sharegpt or alpaca.")
    max_model_len: tuple[int, ...] | None = setting(
        None, "Limits to reserve; by default 2048 and one that cuts no request.", read=integers, at_least=2
    )
    block_size: tuple[int, ...] = setting("1,2,4,8,16,32,64,128,256", "Tokens a block.", read=integers, at_least=1)
    num_requests: int | None = setting(None, "Only the first requests of the trace.", at_least=1)


@dataclass(frozen=True)
class Waste:
    """Wasted shares of one policy."""

    policy: str
    time_weighted: float
    at_completion: float


@dataclass(frozen=True)
class WasteStudy:
    """All policies over one trace with one max_model_len."""

    max_model_len: int
    num_requests: int
    num_clipped: int  #: longer than max_model_len: they end when they reach it
    wastes: list[Waste]


def clip(prompt: Tokens, output: Tokens, max_model_len: int) -> tuple[Tokens, Tokens, int]:
    """Shorten lengths to a limit. Returns prompts, outputs and the number of shortened requests."""
    clipped_prompt = np.minimum(prompt, max_model_len - 1)
    clipped_output = np.minimum(output, max_model_len - clipped_prompt)
    return clipped_prompt, clipped_output, int(np.count_nonzero(prompt + output > max_model_len))


def waste_of_reservation(prompt: Tokens, output: Tokens, reserved: Tokens) -> tuple[float, float]:
    """Wasted shares (time-weighted, at completion) if each request holds `reserved` tokens at every step."""
    return (
        _share(_used_over_life(prompt, output).sum(), (output * reserved).sum()),
        _share((prompt + output - 1).sum(), reserved.sum()),
    )


def waste_of_blocks(prompt: Tokens, output: Tokens, block_size: int) -> tuple[float, float]:
    """Wasted shares (time-weighted, at completion) if each request holds the blocks of its tokens."""
    last = prompt + output - 1
    blocks_over_life = _blocks_up_to(last, block_size) - _blocks_up_to(prompt - 1, block_size)
    return (
        _share(_used_over_life(prompt, output).sum(), blocks_over_life.sum() * block_size),
        _share(last.sum(), (-(-last // block_size)).sum() * block_size),
    )


def study(lengths: Lengths, max_model_len: int, block_sizes: Sequence[int]) -> WasteStudy:
    """Waste of every policy over these lengths."""
    prompt, output, num_clipped = clip(
        np.asarray(lengths.prompt, dtype=np.int64), np.asarray(lengths.output, dtype=np.int64), max_model_len
    )
    reservations = {
        "max_model_len": np.full_like(prompt, max_model_len),
        "power of two": next_power_of_two(prompt + output),
        "output's power": prompt + next_power_of_two(output),
        "oracle": prompt + output,
    }
    wastes = [Waste(name, *waste_of_reservation(prompt, output, held)) for name, held in reservations.items()]
    wastes += [Waste(f"blocks of {size}", *waste_of_blocks(prompt, output, size)) for size in block_sizes]
    return WasteStudy(max_model_len, len(lengths), num_clipped, wastes)


def next_power_of_two(values: Tokens) -> Tokens:
    """The least power of two that is not smaller, exact from 1 to 2**52."""
    mantissa, exponent = np.frexp(values.astype(np.float64))
    return np.int64(1) << (exponent - (mantissa == 0.5)).astype(np.int64)


def make_report(trace: str, studies: Sequence[WasteStudy]) -> Report:
    """A figure per policy and limit; a table row per policy."""
    columns = [Column("policy", "memory held")]
    for s in studies:
        limit = s.max_model_len
        columns.append(Column(f"{limit}.time_weighted", f"wasted, limit {limit:,}", scale=100, unit=" %"))
        columns.append(Column(f"{limit}.at_completion", "at completion", scale=100, unit=" %"))
    figures = [{"max_model_len": s.max_model_len, **asdict(waste)} for s in studies for waste in s.wastes]
    rows: dict[str, dict[str, Any]] = {}
    for figure in figures:
        rows.setdefault(figure["policy"], {"policy": figure["policy"]})[str(figure["max_model_len"])] = figure
    return Report(
        "memory",
        f"KV memory wasted over {studies[0].num_requests:,} requests of {trace}",
        columns,
        figures,
        rows=list(rows.values()),
        notes=[
            f"At a limit of {s.max_model_len:,} tokens, {s.num_clipped:,} requests were longer and are cut there."
            for s in studies
        ]
        + [PUBLISHED],
        settings={
            "trace": trace,
            "requests": studies[0].num_requests,
            "clipped": {str(s.max_model_len): s.num_clipped for s in studies},
        },
    )


def draw(figure: Any, studies: Sequence[WasteStudy], trace: str) -> None:
    """Bars of the time-weighted waste, a group per policy."""
    axes = figure.subplots()
    policies = [waste.policy for waste in studies[0].wastes]
    height = 0.8 / len(studies)
    for i, s in enumerate(studies):
        at = np.arange(len(policies)) + (i - (len(studies) - 1) / 2) * height
        percent = [100 * waste.time_weighted for waste in s.wastes]
        bars = axes.barh(at, percent, height * 0.9, label=f"max_model_len {s.max_model_len:,}")
        axes.bar_label(bars, [f"{value:.1f}" for value in percent], fontsize=8, padding=2)
    axes.set_yticks(np.arange(len(policies)), policies)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("KV memory wasted, % (time-weighted)")
    load = f"{trace}, {studies[0].num_requests:,} requests"
    axes.set_title(f"KV memory wasted by how it is reserved: less is better\n{load}")


def run(settings: MemorySettings, json_path: Path | None = None, plot_path: Path | None = None) -> None:
    """Measure and publish. The default limits are the paper's, and the least power of two that cuts no request."""
    limits = settings.max_model_len
    if settings.trace is not None and settings.lengths is None:
        trace, lengths = settings.trace.name, read_trace(settings.trace)
    elif settings.trace is None and settings.lengths is not None:
        trace, lengths = f"{settings.lengths} lengths", draw_lengths(settings.lengths, NUM_DRAWN)
    else:
        raise ValueError("give either --trace FILE or --lengths NAME")
    lengths = lengths.first(settings.num_requests)
    if limits is None:
        longest = max(p + o for p, o in zip(lengths.prompt, lengths.output, strict=True))
        enough = int(next_power_of_two(np.asarray([longest], dtype=np.int64))[0])
        limits = (MAX_MODEL_LEN,) if enough <= MAX_MODEL_LEN else (MAX_MODEL_LEN, enough)
    studies = [study(lengths, limit, settings.block_size) for limit in limits]
    report = make_report(trace, studies)
    _add_engine(report, lengths.first(ENGINE_REQUESTS))
    report.publish(json_path, plot_path, lambda figure: draw(figure, studies, trace))


def _add_engine(report: Report, lengths: Lengths) -> None:
    measured = measure_engine_waste(lengths)
    report.settings["engine"] = asdict(measured)
    report.notes.append(
        f"The engine's own statistics over the first {measured.num_requests:,} requests, on a runner that computes "
        f"nothing ({measured.num_steps:,} steps), blocks of {measured.block_size}: {100 * measured.wasted:.2f} % of "
        f"the slots in used blocks held no token; at most {100 * measured.peak_usage:.0f} % of the pool was used, "
        f"{measured.preemptions} preemptions."
    )


@dataclass(frozen=True)
class EngineWaste:
    """Shares over all steps of a run."""

    block_size: int
    num_requests: int
    num_steps: int
    wasted: float  #: slots of used blocks that hold no token
    peak_usage: float  #: the most of the pool that was in use
    preemptions: int


def measure_engine_waste(
    lengths: Lengths, *, block_size: int = 16, pool_tokens: int = 131072, max_num_seqs: int = 256
) -> EngineWaste:
    """Run requests of these lengths on a runner that computes nothing, and count the tokens in their blocks."""
    longest = max(p + o for p, o in zip(lengths.prompt, lengths.output, strict=True))
    num_blocks = -(-max(pool_tokens, longest) // block_size)
    config = SchedulerConfig(
        num_blocks=num_blocks,
        block_size=block_size,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=2048,
        max_model_len=longest,
        watermark_blocks=num_blocks // 100,
    )
    engine = Engine(config, NullRunner(InputBatch(max_num_seqs, longest, block_size)), ModelFacts(32000))
    for request in make_workload("trace", lengths).requests:
        engine.add_request(request.prompt_token_ids, SamplingParams(max_tokens=request.max_tokens, ignore_eos=True))
    num_steps = held = allocated = preemptions = peak = 0
    while engine.has_unfinished():
        engine.step()
        stats = engine.last_stats
        assert stats is not None
        num_steps += 1
        held += stats.num_kv_tokens
        allocated += stats.num_used_blocks * block_size
        preemptions += stats.preemptions
        peak = max(peak, stats.num_used_blocks)
    return EngineWaste(block_size, len(lengths), num_steps, 1 - held / allocated, peak / num_blocks, preemptions)


def _used_over_life(prompt: Tokens, output: Tokens) -> Tokens:
    return output * prompt + output * (output - 1) // 2


def _blocks_up_to(tokens: Tokens, block_size: int) -> Tokens:
    """ceil(1 / b) + ceil(2 / b) + ... + ceil(tokens / b), in closed form."""
    full, rest = np.divmod(tokens, block_size)
    return block_size * full * (full + 1) // 2 + rest * (full + 1)


def _share(used: Any, reserved: Any) -> float:
    return 1.0 - float(used) / float(reserved) if reserved else 0.0


@options()
def main(settings: MemorySettings, json: Json = None, plot: Plot = None) -> None:
    """Share of KV memory wasted over a trace's lengths, for each way of reserving it. Runs no model."""
    run(settings, json, plot)


if __name__ == "__main__":
    start(main)
