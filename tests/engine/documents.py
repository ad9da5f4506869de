"""Engines with a KV directory over tiny real models, and requests about documents."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from engine.harness import Job, checkpoint, greedy_params, random_ids
from quire import LLM, BeamSearchParams, SamplingParams
from quire.assembly import LoadedModel, load, make_engine
from quire.config import EngineConfig
from quire.core.block_keys import PUBLIC_ONLY, DomainSpans
from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.costs import StepShape
from quire.outputs import Stats
from quire.tiers.store.block_store import BlockStore

BLOCK_SIZE = 4
DOCUMENT = tuple(random_ids(37, 900))  # nine full blocks and one token
NUM_FULL = 36  # tokens
QUESTIONS = tuple(tuple(random_ids(3 + i, 910 + i)) for i in range(10))


class ChosenCosts(CostModel):
    """Predicts fixed costs: `token_s` per computed token, `byte_s` per loaded byte."""

    def __init__(self, token_s: float, byte_s: float) -> None:
        super().__init__()
        self._token_s, self._byte_s = token_s, byte_s

    def recompute(self, num_tokens: int, *, start: int = 0, chunk: int = 512, beside: StepShape | None = None) -> float:
        return num_tokens * self._token_s

    def load(self, num_bytes: int, tier: str = "host") -> float:
        return num_bytes * self._byte_s


class SpareCosts(ChosenCosts):
    """Predicts steps that take the same time whatever they compute."""

    def step(self, shape: StepShape) -> float:
        return 1.0


@cache
def _load(config: EngineConfig) -> LoadedModel:
    return load(config)


class DocumentLLM(LLM):
    """An engine that loads everything it finds in its KV directory, unless it has other costs.

    `num_computed` counts tokens over all steps, `moved` blocks to disk ("save") or from it ("load"), and `ways` the
    uses of prefixes in other tiers.
    """

    def __init__(
        self,
        model: str | Path,
        kv_dir: Path,
        *,
        token_s: float = 1.0,
        byte_s: float = 0.0,
        loaded: LoadedModel | None = None,
        **options: Any,
    ) -> None:
        directory = checkpoint(model) if isinstance(model, str) else model
        base = {"skip_tokenizer_init": True, "use_tqdm": False, "device": "cpu"}
        weights = {name: options.pop(name) for name in ("dtype",) if name in options}
        if loaded is None:
            loaded = _load(EngineConfig(str(directory), **base, **weights))
        options = {"num_kv_blocks": 64, "block_size": BLOCK_SIZE, "watermark": 0} | options
        self.config = EngineConfig(str(directory), kv_dir=str(kv_dir), **base, **weights, **options)
        self.engine = make_engine(self.config, loaded, cost_model=ChosenCosts(token_s, byte_s))
        self.num_computed = 0
        self.moved: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.ways: Counter[str] = Counter()
        self.engine.on_stats.append(self._note)

    def _note(self, stats: Stats) -> None:
        self.num_computed += stats.num_scheduled_tokens
        self.moved += stats.disk_moved
        self.failed += stats.disk_failed
        self.ways += stats.prefix_ways

    @property
    def store(self) -> BlockStore:
        link = self.engine.runner.disk  # type: ignore[attr-defined]
        assert link is not None
        return link.store

    @property
    def on_disk(self) -> set[bytes]:
        """Return the keys of blocks known to be on disk."""
        return set(self.engine.scheduler.swap.on_disk)

    def close(self) -> None:
        """Close as at a process's end."""
        self.engine.runner.disk.worker.close()  # type: ignore[attr-defined]
        self.store.close()

    def vanish(self) -> None:
        """Drop the engine without closing it."""
        del self.engine
        gc.collect()


def ask(
    question: int | Sequence[int] = 0,
    params: SamplingParams | BeamSearchParams | None = None,
    *,
    document: Sequence[int] = DOCUMENT,
    domains: DomainSpans = PUBLIC_ONLY,
    **more: Any,
) -> Job:
    """Add a request about a document."""
    asked = QUESTIONS[question] if isinstance(question, int) else question
    prompt = (*document, *asked)
    params = params or greedy_params(8)
    return Job(prompt, params, documents=(len(document),), domains=domains, **more)


def cached(job: Job) -> dict[str, int]:
    """Return a request's cached tokens by tier."""
    assert job.answer is not None
    return job.answer.request.cached_tokens
