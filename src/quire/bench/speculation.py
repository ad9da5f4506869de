"""Measure what draft tokens gain: `quire bench speculation`.

Prompts are answered greedily, one at a time, without drafts and with different ones in turns. Scripted drafts know the
answers: each token is right at a given rate, so the curve of speed against acceptance does not depend on the text. With
`verify`, all are wrong and all are verified: the ratio is the cost of such a step. `own` are the engine's own drafts.
With a draft model, scripted drafts come after its passes, whose time they cost.
"""

from __future__ import annotations

import json as json_format
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from quire.assembly import start_engine
from quire.bench.bench_settings import SpeculationSettings
from quire.bench.progress import progress
from quire.bench.report import Column, Report, summarise
from quire.bench.workload import read_text, token_range
from quire.config import EngineConfig
from quire.core.request import Sequence
from quire.core.speculation.acceptance import Acceptance
from quire.core.speculation.drafts import Draft
from quire.engine.engine import Engine
from quire.kernels.loaded import load_kernels
from quire.ops.arrays import Array
from quire.prompt import Prompt
from quire.sampling_params import SamplingParams, StructuredOutputsParams


@dataclass(frozen=True)
class Question:
    prompt: Prompt
    params: SamplingParams


class Scripted:
    """Drafts of known answers, each token of which is right at a rate; as a source, or in place of what a draft model
    chooses."""

    def __init__(self, name: str, rate: float, most: int) -> None:
        self._name, self._rate, self._most, self._draw = name, rate, most, random.Random(1)
        self.answer: list[int] = []

    def propose(self, seq: Sequence, most: int) -> Draft | None:
        at = seq.num_output_tokens
        right = self.answer[at : at + min(most, self._most)]
        tokens = [token if self._draw.random() < self._rate else token ^ 1 for token in right]
        return Draft(tokens, self._name) if tokens else None

    def choose(self, logits: Array, states: list[Any], number: int) -> np.ndarray:
        """See `Drafter.choose`."""
        at = [0 if state is None else state.num_output_tokens + number for state in states]
        right = [self.answer[each] if each < len(self.answer) else 0 for each in at]
        return np.array([token if self._draw.random() < self._rate else token ^ 1 for token in right])


@dataclass
class _Way:
    """One way to draft, and what it took."""

    name: str
    drafts: Scripted | None = None  #: None: the engine's own, or none
    is_off: bool = False
    always: bool = False  #: verify all, whatever the cost
    from_model: bool = False  #: `drafts` replace what the draft model chooses
    acceptance: Acceptance = field(default_factory=Acceptance)
    tpot_s: list[float] = field(default_factory=list)  #: by turn
    steps: int = 0
    tokens: int = 0
    verified: int = 0
    accepted: int = 0


class SpeculationBench:
    def __init__(self, config: EngineConfig, settings: SpeculationSettings) -> None:
        config = replace(config, use_tqdm=False, enable_prefix_caching=False, speculation="lookup")
        self.engine: Engine = start_engine(config)
        self.drafter: Any = getattr(self.engine.runner, "drafter", None)
        self.settings = settings
        self.questions = self._read() if settings.prompts is not None else self._draw()
        self.answers = [self._run(_Way("off", is_off=True), question)[0] for question in self.questions]

    def _draw(self) -> list[Question]:
        settings, draw, ids = self.settings, random.Random(1), token_range(self.engine.vocab_size)
        params = SamplingParams(temperature=0.0, max_tokens=settings.output_len, ignore_eos=True, detokenize=False)
        prompts = [draw.choices(ids, k=settings.prompt_len) for _ in range(settings.num_prompts)]
        return [Question(Prompt(token_ids=prompt), params) for prompt in prompts]

    def _read(self) -> list[Question]:
        assert self.settings.prompts is not None
        questions = []
        for number, line in enumerate(read_text(self.settings.prompts).splitlines(), start=1):
            try:
                given = json_format.loads(line)
                schema = given.get("schema")
                structure = None if schema is None else StructuredOutputsParams(json=schema)
                params = SamplingParams(
                    temperature=0.0, max_tokens=self.settings.output_len, structured_outputs=structure
                )
                questions.append(Question(Prompt(given["prompt"]), params))
            except (ValueError, KeyError, AttributeError) as error:
                expected = '{"prompt": "...", "schema": {...}}, without schema for free text'
                raise ValueError(f"{self.settings.prompts}, line {number}: {error!r}; expected {expected}") from error
        if not questions:
            raise ValueError(f"{self.settings.prompts} has no prompts")
        return questions[: self.settings.num_prompts]

    def ways(self) -> list[_Way]:
        scripted = [_scripted(f"verify {count}", 0.0, count, always=True) for count in self.settings.verify]
        scripted += [_scripted(f"scripted {rate:g}", rate, 1_000) for rate in self.settings.acceptance]
        if self.drafter is not None:
            scripted += [
                _Way(f"model, {rate:g} right", Scripted("", rate, 0), from_model=True)
                for rate in self.settings.acceptance
            ]
        return [_Way("off", is_off=True), *([] if self.settings.prompts else scripted), _Way("own")]

    def measure(self, ways: list[_Way], show: Callable[[int, str], None]) -> None:
        for turn in range(self.settings.runs):
            for number, way in enumerate(ways):
                show(turn * len(ways) + number, way.name)
                took = 0.0
                for question, answer in zip(self.questions, self.answers, strict=True):
                    if way.drafts is not None:
                        way.drafts.answer = answer
                    took += self._play(way, question, answer)
                way.tpot_s.append(took / sum(max(1, len(answer) - 1) for answer in self.answers))

    def _play(self, way: _Way, question: Question, answer: list[int]) -> float:
        """Return the seconds from the first token to the last."""
        counts = self.engine.scheduler.speculator.counts
        verified, accepted, steps = counts.draft_tokens, counts.accepted.total(), self.engine.scheduler.num_steps
        found, seconds = self._run(way, question)
        if found != answer:
            raise RuntimeError(f"drafts ({way.name}) have changed an answer: please report it")
        way.tokens += len(answer)
        way.steps += self.engine.scheduler.num_steps - steps
        way.verified += counts.draft_tokens - verified
        way.accepted += counts.accepted.total() - accepted
        return seconds

    def _run(self, way: _Way, question: Question) -> tuple[list[int], float]:
        speculator, drafter = self.engine.scheduler.speculator, self.drafter
        changed: list[tuple[Any, str, Any]] = [(speculator, "acceptance", way.acceptance)]
        if way.is_off:
            changed.append((speculator, "most", 0))
        if way.always:
            changed.append((speculator, "costs", None))
        if (drafts := way.drafts) is not None:
            changed.append((speculator, "make_sources", lambda seq: () if way.from_model else (drafts,)))
            if way.from_model:
                changed.append((drafter, "choose", drafts.choose))
            else:
                changed.append((speculator, "draft_costs", None))
        with ExitStack() as stack:
            for owner, name, value in changed:
                stack.enter_context(_replaced(owner, name, value))
            state = self.engine.add_request(question.prompt, question.params)
            while self.engine.has_unfinished():
                self.engine.step()
        output = state.to_output()
        if output.error is not None or output.metrics is None:
            raise RuntimeError(f"a request failed: {output.error}")
        first, last = output.metrics.first_token_time, output.metrics.last_token_time
        return list(output.outputs[0].token_ids), (last or 0.0) - (first or 0.0)


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Give an object another attribute for a while."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _scripted(name: str, rate: float, most: int, *, always: bool = False) -> _Way:
    return _Way(name, Scripted(name, rate, most), always=always)


COLUMNS = (
    Column("drafts", "drafts"),
    Column("accepted_share", "accepted", 100, 0, " %"),
    Column("tokens_per_step", "tokens a step"),
    Column("tpot_s", "TPOT ms", 1e3),
    Column("ratio", "to none"),
)


def run(config: EngineConfig, settings: SpeculationSettings, json: Path | None) -> None:
    """Measure all ways and publish the table. ValueError for a wrong option or file."""
    bench = SpeculationBench(config, settings)
    try:
        ways = bench.ways()
        with progress(settings.runs * len(ways), "turns") as show:
            bench.measure(ways, show)
    finally:
        bench.engine.close()
    report = Report("speculation", f"Draft tokens of {config.model}, one stream", COLUMNS, make_figures(ways))
    report.settings = {**settings.as_json(), "engine": config.as_json()}
    report.notes = [
        f"Kernels: {load_kernels()}. Every answer is that without drafts. Ratios are paired by turns.",
    ]
    report.publish(json, None)


def make_figures(ways: list[_Way]) -> list[dict[str, Any]]:
    base = ways[0].tpot_s
    return [
        {
            "drafts": way.name,
            "accepted_share": way.accepted / way.verified if way.verified else None,
            "tokens_per_step": way.tokens / way.steps,
            "tpot_s": summarise(way.tpot_s),
            "ratio": summarise(one / other for one, other in zip(way.tpot_s, base, strict=True)),
        }
        for way in ways
    ]
