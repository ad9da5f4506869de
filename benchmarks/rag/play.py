"""Run one way over one load: start engines as a server does, send questions at their due times, time the answers.

Search, routing and prompts are part of a question's latency; waiting questions are embedded together.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.rag.corpus import Corpus, Found
from quire.async_engine.async_engine import AsyncEngine
from quire.async_engine.event_stream import EventStream
from quire.async_engine.messages import Finished
from quire.async_engine.process import ProcessHost
from quire.bench.workload import fixed_lengths, make_workload, token_range
from quire.config import EngineConfig
from quire.core.block_keys import TENANT, Domain
from quire.outputs import RequestOutput
from quire.prompt import Prompt
from quire.rag.prompt_template import join_question, share
from quire.routing.router import Router
from quire.sampling_params import SamplingParams
from quire.system.child_process import running_children
from quire.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from quire.engine.engine import Engine

_WARM_UP_OUTPUT = 3  # tokens


@dataclass(frozen=True)
class Served:
    """A model's engine, and its decisions on prefixes on disk."""

    engine: AsyncEngine
    ways: Counter[str]


Engines = Mapping[str, Served]


@dataclass(frozen=True)
class Load:
    """Questions and their interval."""

    name: str
    questions: Sequence[str]
    interval_s: float


@dataclass(frozen=True)
class Answer:
    """One answered question; seconds count from its due time."""

    model: str
    role: str
    tokens: list[int]
    ttft_s: float
    latency_s: float
    retrieval_s: float  #: until it was sent to its engine
    route_s: float  #: of that, choosing the model
    num_prompt_tokens: int
    num_document_tokens: int
    cached: dict[str, int]  #: tokens by tier


@dataclass
class Played:
    """A load after one way."""

    wall_s: float
    answers: list[Answer]
    block_bytes: dict[str, int] = field(default_factory=dict)  #: by model
    block_size: int = 1  #: tokens
    ways: dict[str, Counter[str]] = field(default_factory=dict)  #: by model, prefixes on disk: load, compute, both
    cpu_s: float = 0.0  #: of the engines' processes
    read_bytes_s: float | None = None  #: what plain reads of the KV directory gave, just before
    resident: float | None = None  #: share of these pages that were in memory

    @property
    def latency_s(self) -> float:
        return sum(answer.latency_s for answer in self.answers) / len(self.answers)

    @property
    def ttft_s(self) -> float:
        return sum(answer.ttft_s for answer in self.answers) / len(self.answers)

    @property
    def queries_s(self) -> float:
        return len(self.answers) / self.wall_s


@dataclass(frozen=True)
class Joiner:
    """Makes the prompts of one way."""

    tokenizers: Mapping[str, Tokenizer]
    collection_id: str
    has_documents: bool = True

    def join(self, found: Found, question: str) -> Prompt:
        """The prompt for the chosen model. The question's blocks have their own domain, so only documents are found."""
        tokenizer = self.tokenizers[found.model]
        asker = ((0, Domain(TENANT, secrets.token_bytes(8))),)
        if self.has_documents:
            return share(join_question(tokenizer, [found.passage], question), self.collection_id, asker)
        return Prompt(token_ids=tokenizer.encode(f"Question: {question}\nAnswer:"), domains=asker)


@contextlib.asynccontextmanager
async def running(configs: Mapping[str, EngineConfig], warm_up_len: int) -> AsyncIterator[Engines]:
    """Engines in their own processes, ready and warmed up.

    Raises:
        EngineUnavailable: a model cannot be served.
    """
    served = {name: _serve(name, config, 1 / len(configs)) for name, config in configs.items()}
    engines = [each.engine for each in served.values()]
    try:
        for engine in engines:
            engine.start()
        await asyncio.gather(*(engine.wait_ready() for engine in engines))
        await asyncio.gather(*(_warm_up(engine, warm_up_len) for engine in engines))
        yield served
    finally:
        await asyncio.gather(*(asyncio.to_thread(engine.shutdown) for engine in engines))


def _serve(name: str, config: EngineConfig, memory_share: float) -> Served:
    ways: Counter[str] = Counter()
    start = partial(_start_engine, config, memory_share=memory_share)
    return Served(AsyncEngine(ProcessHost(name, start), on_stats=lambda stats: ways.update(stats.prefix_ways)), ways)


def _start_engine(config: EngineConfig, *, memory_share: float) -> Engine:
    """`start_engine`, imported only in the engine's process, since it imports torch."""
    from quire.assembly import start_engine

    return start_engine(config, memory_share=memory_share)


async def _warm_up(engine: AsyncEngine, length: int) -> None:
    length = min(length, engine.engine.max_model_len - _WARM_UP_OUTPUT)
    load = make_workload("warm-up", fixed_lengths(1, length, 1), seed=3, ids=token_range(engine.engine.vocab_size))
    prompt = Prompt(token_ids=load.requests[0].prompt_token_ids, domains=((0, Domain(2, secrets.token_bytes(8))),))
    await _ask(engine, prompt, _WARM_UP_OUTPUT, "warm-up")


async def play(
    engines: Engines,
    load: Load,
    corpus: Corpus,
    router: Router,
    joiner: Joiner,
    output_len: int,
    on_answer: Callable[[int], None],
) -> Played:
    """Send all questions at their due times, and wait for the answers.

    Args:
        on_answer: callback with the number of answers.

    Raises:
        ValueError: a prompt is too long for its model.
        RuntimeError: a request failed.
    """
    cpu_before = engine_seconds()
    began = time.monotonic()
    due = [began + at * load.interval_s for at in range(len(load.questions))]
    answers: list[Answer | None] = [None] * len(due)
    num_done = 0

    async def answer(at: int, found: Found, prompt: Prompt) -> None:
        nonlocal num_done
        sent = time.monotonic()
        output = await _ask(engines[found.model].engine, prompt, output_len, f"query-{at}")
        assert output.metrics is not None
        assert output.metrics.first_token_time is not None
        assert output.metrics.finished_time is not None
        answers[at] = Answer(
            found.model,
            found.role,
            output.outputs[0].token_ids,
            output.metrics.first_token_time - due[at],
            output.metrics.finished_time - due[at],
            sent - due[at],
            found.route_s,
            len(output.prompt_token_ids),
            prompt.documents[-1] if prompt.documents else 0,
            dict(output.cached_tokens),
        )
        num_done += 1
        on_answer(num_done)

    def prepare(first: int, end: int) -> list[tuple[int, Found, Prompt]]:
        questions = load.questions[first:end]
        found = corpus.find(questions, router)
        prompts = [joiner.join(each, question) for each, question in zip(found, questions, strict=True)]
        return list(zip(range(first, end), found, prompts, strict=True))

    try:
        async with asyncio.TaskGroup() as tasks:
            first = 0
            while first < len(due):
                await asyncio.sleep(max(0.0, due[first] - time.monotonic()))
                now = time.monotonic()
                end = next((at for at in range(first + 1, len(due)) if due[at] > now), len(due))
                for at, found, prompt in await asyncio.to_thread(prepare, first, end):
                    tasks.create_task(answer(at, found, prompt))
                first = end
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    done = [each for each in answers if each is not None]
    wall_s = max(at + each.latency_s for at, each in zip(due, done, strict=True)) - began
    limits = {name: served.engine.limits for name, served in engines.items()}
    return Played(
        wall_s,
        done,
        {name: each.block_bytes for name, each in limits.items()},
        next(iter(limits.values())).block_size,
        {name: served.ways for name, served in engines.items()},
        engine_seconds() - cpu_before,
    )


def engine_seconds() -> float:
    """Processor seconds of the engines' processes; 0 if the system does not tell."""
    ticks = 0
    for child in running_children():
        if child.name == "engine":
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])  # utime and stime: proc(5)
    return ticks / os.sysconf("SC_CLK_TCK")


async def _ask(engine: AsyncEngine, prompt: Prompt, output_len: int, request_id: str) -> RequestOutput:
    params = SamplingParams(temperature=0.0, max_tokens=output_len, ignore_eos=True, detokenize=False)
    stream = EventStream()
    try:
        await engine.submit(stream, prompt, params, request_id=request_id, wants_progress=False)
        while True:
            for _, event in await stream.read():
                if isinstance(event, Finished):
                    return event.output
    finally:
        engine.leave(stream)
