"""Whether answers keep their bits however requests are served: `quire bench exact`.

Random prompts are answered greedily, each alone and whole. Then they are answered in other ways: in batches, in chunks,
over KV found in each tier, after preemptions, by other engines. Tokens and log-probabilities are compared bit by bit.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quire.assembly import LoadedModel, load, make_engine, start_engine
from quire.bench.bench_settings import ExactSettings
from quire.bench.progress import progress
from quire.bench.report import Column, Report
from quire.bench.workload import token_range
from quire.config import EngineConfig
from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.costs import StepShape
from quire.core.decisions.recovery_policy import make_policy
from quire.engine.engine import Engine
from quire.engine.request_state import RequestState
from quire.kernels.loaded import load_kernels
from quire.ops.arrays import name_of
from quire.outputs import Logprobs, OutputSoFar, Resumption
from quire.prompt import Prompt, PromptLike
from quire.sampling_params import SamplingParams
from quire.system.threads import num_threads, set_num_threads

_SHARED = 3  #: different beginnings of the prompts
_CHUNK = 40  #: tokens; no multiple of a block
_SWAP_SPACE = 2**28  #: bytes


class _LoadingIsFree(CostModel):
    """Costs by which every block found in another tier is loaded."""

    def recompute(self, num_tokens: int, *, start: int = 0, chunk: int = 512, beside: StepShape | None = None) -> float:
        return float(num_tokens)

    def load(self, num_bytes: int, tier: str = "host") -> float:
        return 0.0


@dataclass(frozen=True)
class Answer:
    """Tokens and log-probabilities of one request."""

    token_ids: list[int]
    logprobs: bytes  #: of the tokens, as doubles

    @classmethod
    def of(cls, state: RequestState) -> Answer:
        output = state.to_output()
        if output.error is not None:
            raise RuntimeError(f"request {output.request_id} failed: {output.error}")
        found = output.outputs[0]
        assert isinstance(found.logprobs, Logprobs)
        return cls(list(found.token_ids), found.logprobs.logprobs.tobytes())

    def first_difference(self, other: Answer) -> int:
        """Index of the first token whose id or log-probability differs."""
        for at, pair in enumerate(zip(self.token_ids, other.token_ids, strict=True)):
            if pair[0] != pair[1] or self.logprobs[8 * at : 8 * at + 8] != other.logprobs[8 * at : 8 * at + 8]:
                return at
        return len(self.token_ids)


@dataclass(frozen=True)
class Outcome:
    answers: list[Answer]
    happened: str  #: for readers
    count: int = 1  #: 0: what the way is about did not happen


class ExactBench:
    """One model in memory, and engines over it."""

    def __init__(self, config: EngineConfig, settings: ExactSettings) -> None:
        self._config = replace(config, use_tqdm=False, skip_tokenizer_init=True)
        self.settings = settings
        self.loaded: LoadedModel = load(self._config)
        longest = settings.prompt_len[1] + settings.output_len
        limit = self.loaded.model.config.context_length
        if longest > limit:
            raise ValueError(
                f"prompt_len and output_len make {longest} tokens, and {config.model} takes {limit}: lower one"
            )
        self._seq_blocks = -(-longest // config.block_size) + 1
        self.prompts = make_prompts(settings, config.seed, token_range(self.loaded.model.config.vocab_size))
        self._params = SamplingParams(
            temperature=0.0, max_tokens=settings.output_len, ignore_eos=True, logprobs=0, detokenize=False
        )

    @property
    def ways(self) -> dict[str, Callable[[], Outcome]]:
        chunks = {"max_num_batched_tokens": _CHUNK, "max_num_seqs": 8}
        ways = {
            "batch": lambda: self._fresh(self._together, f"{len(self.prompts)} at once"),
            "chunks": lambda: self._fresh(self._one_by_one, f"{_CHUNK} tokens a step", **chunks),
            "mixed": lambda: self._fresh(self._together, f"{_CHUNK} tokens a step, up to 8 sequences", **chunks),
            "device": self._found_on_the_device,
            "host": self._found_in_the_host_tier,
            "disk": self._found_on_disk_after_a_restart,
            "swap": lambda: self._preempted("swap"),
            "recompute": lambda: self._preempted("recompute"),
            "resume": self._resumed,
            "drafts": self._with_drafts,
            "threads": self._with_other_threads,
            "ranks": self._on_two_ranks,
        }
        if self.settings.pack is not None:
            ways["stages"] = self._at_the_last_stage
        return {name: ways[name] for name in ways if not self.settings.ways or name in self.settings.ways}

    def alone(self) -> list[Answer]:
        """The answers to compare with: each request alone, its prompt in one step, nothing found anywhere."""
        return self._fresh(self._one_by_one, "").answers

    def _fresh(self, answer: Callable[[Engine], list[Answer]], happened: str, **changes: Any) -> Outcome:
        with self._engine(**changes) as engine:
            return Outcome(answer(engine), happened)

    def _found_on_the_device(self) -> Outcome:
        with self._engine(enable_prefix_caching=True) as engine:
            self._one_by_one(engine)
            return self._with_hits(engine, "device")

    def _found_in_the_host_tier(self) -> Outcome:
        # Beside a short request, each prompt is preempted at an end of a block, where recurrent states of others begin.
        few = {"max_num_batched_tokens": 1 + 4 * self._config.block_size, "enable_prefix_caching": True}
        with self._engine("swap", swap_space=_SWAP_SPACE, **few) as engine:
            for prompt in self.prompts:
                self._run(engine, [prompt[:1], prompt], self._params, preempt_every=1)
            engine.reset_prefix_cache()
            return self._with_hits(engine, "host")

    def _found_on_disk_after_a_restart(self) -> Outcome:
        with tempfile.TemporaryDirectory(prefix="quire-exact-") as directory:
            kept: dict[str, Any] = {"enable_prefix_caching": True, "kv_dir": directory, "kv_dir_keep_prompts": True}
            with self._engine(**kept) as engine:
                self._one_by_one(engine)
            with self._engine(**kept) as engine:
                return self._with_hits(engine, "disk")

    def _preempted(self, policy: str) -> Outcome:
        with self._engine(policy, swap_space=_SWAP_SPACE) as engine:
            states = self._run(engine, self.prompts, self._params, preempt_every=3)
            count = sum(record.outcome == policy for record in engine.scheduler.recovery.log.closed)
            return Outcome([Answer.of(state) for state in states], f"{count} preemptions", count)

    def _resumed(self) -> Outcome:
        """The first half by one engine, the rest by another that knows its tokens."""
        half = max(1, self.settings.output_len // 2)
        with self._engine() as engine:
            begun = [self._run(engine, [prompt], replace(self._params, max_tokens=half))[0] for prompt in self.prompts]
        with self._engine() as engine:
            states = []
            for prompt, state in zip(self.prompts, begun, strict=True):
                output = state.to_output().outputs[0]
                assert isinstance(output.logprobs, Logprobs)
                so_far = OutputSoFar(list(output.token_ids), output.logprobs)
                processed = engine.input_processor.accept(prompt, self._params)
                states.append(engine.add(processed, resumption=Resumption(seed=0, outputs=(so_far,))))
            self._run(engine, [], self._params)
            return Outcome([Answer.of(state) for state in states], f"after {half} tokens, all at once")

    def _with_drafts(self) -> Outcome:
        """Each answer, with every fourth token wrong, is its own prediction."""
        with self._engine(speculation="lookup", speculative_model=self._config.speculative_model) as engine:
            speculator = engine.scheduler.speculator
            speculator.costs = None
            states = []
            for prompt, answer in zip(self.prompts, self.alone(), strict=True):
                wrong = [token ^ (at % 4 == 3) for at, token in enumerate(answer.token_ids)]
                states += self._run(engine, [Prompt(token_ids=prompt, prediction=tuple(wrong))], self._params)
            count = speculator.counts.accepted.total()
            happened = f"{count} of {speculator.counts.draft_tokens} right"
            return Outcome([Answer.of(state) for state in states], happened, count)

    def _with_other_threads(self) -> Outcome:
        usual = num_threads()
        set_num_threads(other := 1 if usual > 1 else 2)
        try:
            return self._fresh(self._one_by_one, f"{other} in place of {usual}")
        finally:
            set_num_threads(usual)

    def _on_two_ranks(self) -> Outcome:
        config = replace(self._settled(), tensor_parallel_size=2)
        with closing(start_engine(config)) as engine:
            return Outcome(self._one_by_one(engine), "2 processes")

    def _at_the_last_stage(self) -> Outcome:
        config = replace(self._settled(), model=str(self.settings.pack))
        with closing(start_engine(config, is_progressive=True)) as engine:
            assert engine.promoter is not None
            while engine.stage < engine.promoter.last_stage:
                engine.promote_if_ready()
            return Outcome(self._one_by_one(engine), f"stage {engine.stage}", engine.stage - 1)

    def _with_hits(self, engine: Engine, tier: str) -> Outcome:
        states = [self._run(engine, [prompt], self._params)[0] for prompt in self.prompts]
        found = sum((Counter(state.to_output().cached_tokens) for state in states), Counter[str]())
        return Outcome([Answer.of(state) for state in states], f"{found[tier]:,} tokens found", found[tier])

    def _one_by_one(self, engine: Engine) -> list[Answer]:
        return [Answer.of(self._run(engine, [prompt], self._params)[0]) for prompt in self.prompts]

    def _together(self, engine: Engine) -> list[Answer]:
        return [Answer.of(state) for state in self._run(engine, self.prompts, self._params)]

    def _run(
        self, engine: Engine, prompts: Sequence[PromptLike], params: SamplingParams, *, preempt_every: int = 0
    ) -> list[RequestState]:
        states = [engine.add_request(prompt, params) for prompt in prompts]
        scheduler, steps = engine.scheduler, 0
        while engine.has_unfinished():
            engine.step()
            steps += 1
            if preempt_every and steps % preempt_every == 0 and len(scheduler.queue.running) > 1:
                scheduler.planner.preempt_for(scheduler.queue.running[0])
        return states

    def _settled(self, **changes: Any) -> EngineConfig:
        whole: dict[str, Any] = {
            "num_kv_blocks": self._seq_blocks * len(self.prompts),
            "max_model_len": self._seq_blocks * self._config.block_size,
            "max_num_batched_tokens": sum(map(len, self.prompts)) + len(self.prompts),
            "max_num_seqs": len(self.prompts),
            "enable_prefix_caching": False,
            "watermark": 0.0,
            "speculation": "off",
            "speculative_model": None,
        }
        return replace(self._config, **{**whole, **changes})

    @contextmanager
    def _engine(self, policy: str = "recompute", **changes: Any) -> Iterator[Engine]:
        config = self._settled(**changes)
        engine = make_engine(config, self.loaded, cost_model=_LoadingIsFree(), recovery=make_policy(policy))
        try:
            yield engine
        finally:
            engine.close()
            del engine
            gc.collect()


def make_prompts(settings: ExactSettings, seed: int, ids: range) -> list[list[int]]:
    """Random prompts, each with a part of one of a few common beginnings."""
    draw = random.Random(seed)
    shortest, longest = settings.prompt_len
    beginnings = [draw.choices(ids, k=longest) for _ in range(_SHARED)]
    prompts = []
    for number in range(settings.num_prompts):
        length = draw.randint(shortest, longest)
        shared = draw.randrange(length)
        prompts.append(beginnings[number % _SHARED][:shared] + draw.choices(ids, k=length - shared))
    return prompts


COLUMNS = (
    Column("way", "way"),
    Column("happened", "what happened"),
    Column("requests", "requests", digits=0),
    Column("differ", "differ", digits=0),
    Column("other_tokens", "in tokens", digits=0),
    Column("first", "first difference at token", digits=0),
    Column("verdict", "verdict"),
)


def run(config: EngineConfig, settings: ExactSettings, json: Path | None) -> bool:
    """Compare all ways and publish the table; return whether all bits are equal. ValueError for a wrong option."""
    bench = ExactBench(config, settings)
    logging.getLogger("quire").setLevel(logging.WARNING)  # each way's engine would say the same
    figures = []
    with progress(len(bench.ways) + 1, "ways") as show:
        show(0, "alone")
        expected = bench.alone()
        for done, (name, way) in enumerate(bench.ways.items(), start=1):
            show(done, name)
            figures.append(compare(name, expected, way()))
    model = bench.loaded.model
    title = f"Bits of {config.model} in {name_of(model.dtype)}"
    title += f", {model.quantization}" if model.quantization != "none" else ""
    report = Report("exact", f"{title}: each request alone and whole, and in other ways", COLUMNS, figures)
    report.settings = {**settings.as_json(), "engine": config.as_json()}
    report.notes = [
        f"Kernels: {load_kernels()}. Tokens and log-probabilities of {len(expected)} requests are compared with ==.",
        f"Digest of the answers: {digest(expected)}. Machines and versions with the same digest have the same bits.",
    ]
    if any(figure["way"] == "ranks" for figure in figures):
        report.notes.append("ranks: the sums of several ranks have an order of their own, and so has their KV.")
    report.publish(json, None)
    return all(figure["verdict"] in (EQUAL, OTHER_SUMS) for figure in figures)


EQUAL, DIFFERENT, NOT_TRIED, OTHER_SUMS = "equal", "DIFFERENT", "NOT TRIED", "other sums"


def compare(way: str, expected: Sequence[Answer], outcome: Outcome) -> dict[str, Any]:
    pairs = list(zip(expected, outcome.answers, strict=True))
    differing = [(one, other) for one, other in pairs if one != other]
    first = min((one.first_difference(other) for one, other in differing), default=None)
    if not outcome.count:
        verdict = NOT_TRIED
    elif not differing:
        verdict = EQUAL
    else:
        verdict = OTHER_SUMS if way == "ranks" else DIFFERENT
    return {
        "way": way,
        "happened": outcome.happened,
        "requests": len(pairs),
        "differ": len(differing),
        "other_tokens": sum(one.token_ids != other.token_ids for one, other in differing),
        "first": first,
        "verdict": verdict,
    }


def digest(answers: Sequence[Answer]) -> str:
    """Twelve hexadecimal digits over all bits of answers."""
    bits = b"".join(repr(answer.token_ids).encode() + answer.logprobs for answer in answers)
    return hashlib.sha256(bits).hexdigest()[:12]
