"""Cost of the block size on the real engine: steps, whole requests, the swap tier and the disk, by model and dtype.

Engines that differ only in their block size share one model's weights and take turns. Times are CPU seconds of this
process, which other processes lengthen least; with one thread they are the engine's own.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.document_kv import DocumentBench, DocumentKvSettings
from benchmarks.script import start
from quire.bench.report import Column, Report, summarise
from quire.cli.options import Json, options
from quire.config import EngineConfig
from quire.sampling_params import SamplingParams
from quire.settings import Settings, integers, names, setting

_DECODE_STEPS = 16
_OUTPUT = 32  #: tokens of whole requests


@dataclass(frozen=True)
class BlockSizeSettings(Settings):
    """Options of the block size benchmark. The first block size is the one to compare with."""

    sizes: tuple[int, ...] = setting("16,8,32", "Block sizes.", read=integers, at_least=1)
    models: tuple[str, ...] = setting("quire-mini,random:qwen2.5-0.5b", "Models.", read=names)
    dtypes: tuple[str, ...] = setting("float32,bfloat16", "Data types.", read=names)
    tokens: int = setting(512, "Tokens of context, prompt, swapped sequence and document.", at_least=64)
    running: int = setting(8, "Decoding sequences.", at_least=1)
    num_threads: int = setting(1, "CPU threads.", at_least=1)
    runs: int = setting(7, "Turns of each engine.", at_least=1)


class _Engine:
    """One engine with all tiers, and what is measured on it."""

    def __init__(self, config: EngineConfig, loaded: Any, settings: BlockSizeSettings, folder: Path) -> None:
        from quire.assembly import make_engine
        from quire.calibration.microbenchmark import Microbenchmark

        self.engine = make_engine(replace(config, kv_dir=str(folder)), loaded)
        self._bench, self._settings = Microbenchmark(self.engine), settings
        of_documents = DocumentKvSettings(document_tokens=settings.tokens // 32 * 32, question_tokens=8)
        self._documents = DocumentBench(self.engine, of_documents, folder)

    def measure(self) -> dict[str, float]:
        """CPU seconds by kind of work; a step, or all tokens."""
        settings, found = self._settings, {}
        with self._bench as bench:
            bench.scatter()
            bench.decode(settings.running, settings.tokens, 1)  # takes the sequences in
            found["decode step"] = _time(lambda: bench.decode(settings.running, settings.tokens, _DECODE_STEPS))
            found["decode step"] /= _DECODE_STEPS
            seq = bench.compute(settings.tokens)[0]
            bench.forget(seq)
            computed = []
            found["prefill"] = _time(lambda: computed.append(bench.compute(settings.tokens)[0]))
            found["swap out"] = _time(lambda: bench.swap_out(computed[0]))
            found["swap in"] = _time(lambda: bench.swap_in(computed[0]))
            bench.forget(computed[0])
        found["whole requests"] = _time(self._serve)
        document = self._documents.document()
        self._documents.ask(document)
        found["document from disk"] = _time(lambda: self._documents.ask_disk(document, "load"))
        return found

    def _serve(self) -> None:
        """Serve `running` requests at once, each with half of the tokens as its prompt."""
        for _ in range(self._settings.running):
            params = SamplingParams(temperature=0.0, max_tokens=_OUTPUT, ignore_eos=True, detokenize=False)
            self.engine.add_request(self._documents.document()[: self._settings.tokens // 2], params)
        while self.engine.has_unfinished():
            self.engine.step()

    def close(self) -> None:
        self._documents.close()
        self.engine.close()


def _time(work: Callable[[], Any]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def measure(config: EngineConfig, settings: BlockSizeSettings) -> list[dict[str, Any]]:
    """One figure a kind of work and block size, with ratios to the first block size in the same turn."""
    from quire.assembly import load

    loaded = load(config)
    num_slots = (settings.running + 2) * (settings.tokens + 2 * max(settings.sizes))
    turns: dict[int, list[dict[str, float]]] = {size: [] for size in settings.sizes}
    with ExitStack() as stack:
        engines = {}
        for size in settings.sizes:
            sized = replace(config, block_size=size, num_kv_blocks=-(-num_slots // size))
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            engines[size] = _Engine(sized, loaded, settings, folder)
            stack.callback(engines[size].close)
        for turn in range(settings.runs + 1):
            order = settings.sizes if turn % 2 else settings.sizes[::-1]
            for size in order:
                found = engines[size].measure()
                if turn:  # the first one warms up
                    turns[size].append(found)
    figures = []
    for kind in turns[settings.sizes[0]][0]:
        for size, measured in turns.items():
            base = turns[settings.sizes[0]]
            figures.append(
                {
                    "model": config.model,
                    "dtype": config.dtype,
                    "kind": kind,
                    "block_size": size,
                    "cpu_s": summarise(each[kind] for each in measured),
                    "ratio": summarise(one[kind] / other[kind] for one, other in zip(measured, base, strict=True)),
                }
            )
    return figures


@options()
def main(settings: BlockSizeSettings, json: Json = None) -> None:
    """CPU time of decoding, prefill, swapping and loading documents, by block size, in turns."""
    report = Report(
        "block_size",
        f"Block sizes in turns: {settings.running} sequences, {settings.tokens} tokens",
        (
            Column("model", "model"),
            Column("dtype", "dtype"),
            Column("kind", "work"),
            Column("block_size", "block size", digits=0),
            Column("cpu_s", "CPU ms", scale=1e3, digits=1),
            Column("ratio", f"against {settings.sizes[0]}", digits=3),
        ),
        settings=settings.as_json(),
    )
    for model in settings.models:
        for dtype in settings.dtypes:
            config = EngineConfig(
                model,
                dtype=dtype,
                device="cpu",
                num_threads=settings.num_threads,
                skip_tokenizer_init=True,
                max_model_len=settings.tokens + 64,
                max_num_seqs=max(settings.running, 2),
                swap_space=2**28,
                use_tqdm=False,
            )
            report.figures += measure(config, settings)
            gc.collect()
    report.publish(json)


if __name__ == "__main__":
    start(main)
