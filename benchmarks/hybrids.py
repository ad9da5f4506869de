"""A model with states beside a dense one of its size: the speed of prompts, in turns; prompt tokens that a conversation
computes twice, and the bytes of its checkpoints against the dense model's KV. Conversations run without a model, since
neither depends on values."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from benchmarks.experts import state_bytes
from benchmarks.null_runner import NullRunner
from benchmarks.script import start
from quire.bench.report import Column, Report, summarise
from quire.cli.options import Json, options
from quire.config import EngineConfig
from quire.sampling_params import SamplingParams
from quire.settings import Settings, integers, setting

if TYPE_CHECKING:
    from quire.assembly import LoadedModel
    from quire.engine.engine import Engine


@dataclass(frozen=True)
class HybridsSettings(Settings):
    """Options of the benchmark."""

    dense: str = setting("random:qwen3-0.6b-32-layers", "The dense model, of the same size.", metavar="MODEL")
    prompt: int = setting(2048, "Tokens of a prompt.", at_least=2)
    runs: int = setting(5, "Prompts of each model.", at_least=0)
    processor_time: bool = setting(False, "Count seconds on the processor, where others use it too.")
    turns: int = setting(30, "Turns of the conversation.", at_least=2)
    start: int = setting(600, "Its tokens before the first turn.", at_least=1)
    question: int = setting(150, "New tokens of a turn's prompt.", at_least=1)
    answer: int = setting(80, "Tokens of an answer.", at_least=1)
    pools: tuple[int, ...] = setting("4096,512,192", "Its pools, MiB.", read=integers, metavar="N[,...]")


def compute_prompts(engines: dict[str, Engine], settings: HybridsSettings) -> Iterator[dict[str, Any]]:
    """Yield each model's rate, and its ratio to the last model's by turn."""
    rates: dict[str, list[float]] = {name: [] for name in engines}
    clock = time.process_time if settings.processor_time else time.perf_counter
    for turn in range(-1, settings.runs):
        for name, engine in engines.items():
            prompt = [(turn + 2 + 7 * at) % engine.vocab_size for at in range(settings.prompt)]
            started = clock()
            _answer(engine, prompt, 1)
            if turn >= 0:
                rates[name].append(settings.prompt / (clock() - started))
    *_, dense = rates.values()
    for name, found in rates.items():
        ratios = [each / other for each, other in zip(found, dense, strict=True)]
        yield {"model": name, "tok_s": summarise(found), "ratio": summarise(ratios)}


def _answer(engine: Engine, prompt: list[int], max_tokens: int) -> tuple[int, list[int]]:
    """Return the number of cached prompt tokens, and the answer."""
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True, detokenize=False)
    state = engine.add_request(prompt, params)
    while engine.has_unfinished():
        engine.step()
    return state.request.num_cached_tokens, list(state.to_output().outputs[0].token_ids)


def converse(engine: Engine, settings: HybridsSettings, state_bytes: int, dense_bytes: int) -> dict[str, Any]:
    """Return what a conversation computes twice, and the bytes of the checkpoints that it keeps.

    Args:
        state_bytes: the size of a checkpoint.
        dense_bytes: a dense model's KV of a token.
    """
    pool, total, repeated, kept = engine.scheduler.kv.pool, 0, 0, 0
    context = list(range(settings.start))
    for turn in range(settings.turns):
        context += [(total + 7 * at) % engine.vocab_size for at in range(settings.question)]
        cached, answer = _answer(engine, context, settings.answer)
        repeated += len(context) - cached - settings.question if turn else 0
        total, context = total + len(context), context + answer
        thin: set[int] = getattr(pool, "thin", set())
        held = (block for block in range(len(pool.ref_counts)) if pool.key_of(block) is not None)
        kept = max(kept, sum(block not in thin for block in held))
    dense = len(context) * dense_bytes
    return {
        "tokens": len(context), "recomputed": repeated, "of_prompts": repeated / total,
        "of_new": repeated / (settings.question * (settings.turns - 1)), "checkpoints": kept,
        "checkpoint_bytes": kept * state_bytes, "dense_bytes": dense, "of_dense": kept * state_bytes / dense,
    }  # fmt: skip


def measure(config: EngineConfig, settings: HybridsSettings) -> list[dict[str, Any]]:
    """Return a figure per model, and one per pool."""
    from quire.assembly import load

    config = replace(config, device="cpu", skip_tokenizer_init=True, use_tqdm=False, kv_audit_rate=0.0)
    dense = load(replace(config, model=settings.dense))
    figures: list[dict[str, Any]] = []
    loaded = load(config)
    if settings.runs:
        prompts = replace(config, enable_prefix_caching=False, max_num_batched_tokens=settings.prompt)
        models = {config.model: loaded, settings.dense: dense}
        figures += compute_prompts({name: _make(prompts, each) for name, each in models.items()}, settings)
    dense_bytes = dense.source.config.kv_bytes(dense.model.dtype.name)
    for size in settings.pools:
        engine = _make(replace(config, kv_cache_memory=size << 20), loaded)
        engine.runner = NullRunner(engine.runner.batch)  # type: ignore[attr-defined]
        figures.append({"pool": size, **converse(engine, settings, state_bytes(loaded.model), dense_bytes)})
    return figures


def _make(config: EngineConfig, loaded: LoadedModel) -> Engine:
    from quire.assembly import make_engine
    from quire.core.decisions.cost_model import CostModel

    return make_engine(config, loaded, cost_model=CostModel())


@options(without=("device",))
def main(settings: HybridsSettings, engine: EngineConfig, json: Json = None) -> None:
    """Prompts and a conversation of a model with states, beside a dense model of its size."""
    columns = (
        Column("model", "model"),
        Column("tok_s", "prompt tok/s", digits=0),
        Column("ratio", "of dense", digits=2),
        Column("pool", "pool, MiB", digits=0),
        Column("tokens", "tokens", digits=0),
        Column("recomputed", "recomputed", digits=0),
        Column("of_prompts", "of prompts, %", scale=100, digits=2),
        Column("of_new", "of new, %", scale=100, digits=1),
        Column("checkpoints", "checkpoints", digits=0),
        Column("checkpoint_bytes", "their MB", scale=1e-6, digits=0),
        Column("dense_bytes", "dense KV, MB", scale=1e-6, digits=0),
        Column("of_dense", "of it, %", scale=100, digits=0),
    )
    report = Report("hybrids", f"{engine.model} beside {settings.dense}", columns)
    report.settings = {**settings.as_json(), "engine": asdict(engine)}
    report.figures = measure(engine, settings)
    report.publish(json)


if __name__ == "__main__":
    start(main)
