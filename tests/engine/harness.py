"""Engines over tiny real models, driven step by step, and `transformers` on the same checkpoints.

Engines are made the public way (`LLM` from a directory), and every step checks the state.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch

from checkpoints import make_checkpoint, make_reference
from quire import LLM, BeamSearchParams, SamplingParams
from quire.core.block_keys import PUBLIC_ONLY, DomainSpans
from quire.core.decisions.load_or_compute import LoadOrCompute, RecoveryMode, RecoveryPlan, Victim
from quire.core.decisions.recovery_policy import RecoveryPolicy
from quire.core.request import Request
from quire.engine.engine import Engine
from quire.engine.request_state import RequestState
from quire.outputs import RequestOutput
from quire.prompt import Prompt

NUM_TOKENS = 20  # length of reference outputs; shorter requests use their beginning
CLOSE = 1e-5  # fraction of the logits' range below which the two best logits may swap

_directories: list[tempfile.TemporaryDirectory[str]] = []  # alive until the tests end


@cache
def checkpoint(name: str, seed: int = 0) -> Path:
    """Return a directory with the variant's checkpoint."""
    return make_checkpoint(name, temporary_directory(name), seed)


def temporary_directory(name: str) -> Path:
    """Return a directory that lasts until the tests end."""
    _directories.append(tempfile.TemporaryDirectory(prefix=f"quire-{name}-"))
    return Path(_directories[-1].name)


def make_llm(name: str, path: Path | None = None, **options: Any) -> LLM:
    """Make an engine over the variant, or the checkpoint at `path`, by default with a pool of 64 blocks and without
    drafts, whose number depends on the machine's speed."""
    options = {"num_kv_blocks": 64, "skip_tokenizer_init": True, "use_tqdm": False, "device": "cpu"} | options
    options.setdefault("speculation", "off")
    return LLM(str(path or checkpoint(name)), **options)


# -- prompts ---------------------------------------------------------------------------------------------------------


def random_ids(length: int, seed: int, vocab_size: int = 256) -> list[int]:
    return [random.Random(f"{seed}/{i}").randrange(vocab_size) for i in range(length)]


_SHARED = random_ids(24, 100)
#: various lengths around block boundaries; the last four have a common start
PROMPTS: tuple[tuple[int, ...], ...] = tuple(
    tuple(ids)
    for ids in (
        *(random_ids(length, seed) for seed, length in enumerate((1, 5, 16, 17, 33))),
        _SHARED[:20],
        _SHARED[:16] + random_ids(9, 6),
        _SHARED + random_ids(3, 7),
        _SHARED + random_ids(15, 8),
    )
)


# -- the reference ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Greedy:
    """Generate with the reference, ignoring end tokens."""

    token_ids: tuple[int, ...]
    gaps: tuple[float, ...]  #: difference of the two best logits at each position, as a fraction of the logits' range


@cache
def reference(name: str) -> Any:
    return make_reference(name)


def greedy(name: str, prompt: tuple[int, ...], num_tokens: int = NUM_TOKENS) -> Greedy:
    if prompt in PROMPTS and num_tokens == NUM_TOKENS:
        return greedy_together(name, PROMPTS, num_tokens)[PROMPTS.index(prompt)]
    return greedy_together(name, (prompt,), num_tokens)[0]


@cache
def greedy_together(name: str, prompts: tuple[tuple[int, ...], ...], num_tokens: int) -> list[Greedy]:
    if name == "lfm2-biases":  # transformers' padding has biases
        return [generate_greedy(reference(name), (prompt,), num_tokens)[0] for prompt in prompts]
    return generate_greedy(reference(name), prompts, num_tokens)


def generate_greedy(model: Any, prompts: Sequence[Sequence[int]], num_tokens: int) -> list[Greedy]:
    """Generate in one batch, since transformers takes as long for one prompt as for all."""
    length = max(map(len, prompts))
    ids = torch.tensor([(0,) * (length - len(prompt)) + tuple(prompt) for prompt in prompts])
    mask = torch.tensor([[0] * (length - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    out = model.generate(
        input_ids=ids, attention_mask=mask, max_new_tokens=num_tokens, do_sample=False, eos_token_id=None,
        pad_token_id=0, return_dict_in_generate=True, output_logits=True,
    )  # fmt: skip
    logits = torch.stack(out.logits, 1)  # [prompts, num_tokens, vocab_size]
    best = logits.topk(2).values
    gaps = (best[..., 0] - best[..., 1]) / (logits.amax(-1) - logits.amin(-1))
    rows = out.sequences[:, length:].tolist()
    return [Greedy(tuple(row), tuple(row_gaps)) for row, row_gaps in zip(rows, gaps.tolist(), strict=True)]


@cache
def logprobs(name: str, ids: tuple[int, ...]) -> torch.Tensor:
    """Return log_softmax of the reference's logits, float32 [len(ids), vocab_size]."""
    with torch.no_grad():
        return reference(name)(torch.tensor([ids])).logits[0].log_softmax(-1)


@dataclass(frozen=True)
class Beams:
    token_ids: tuple[tuple[int, ...], ...]
    scores: tuple[float, ...]


@cache
def beams(name: str, prompt: tuple[int, ...], params: BeamSearchParams, eos_token_ids: tuple[int, ...] = (2,)) -> Beams:
    """Run the reference's beam search."""
    ids = torch.tensor([prompt])
    out = reference(name).generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=params.max_tokens, num_beams=params.beam_width,
        num_return_sequences=params.beam_width, length_penalty=params.length_penalty, do_sample=False,
        early_stopping=params.early_stopping, eos_token_id=None if params.ignore_eos else list(eos_token_ids),
        pad_token_id=-1, return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    rows = out.sequences[:, len(prompt) :].tolist()
    return Beams(
        tuple(tuple(token for token in row if token != -1) for row in rows), tuple(out.sequences_scores.tolist())
    )


def assert_same_tokens(name: str, prompt: Sequence[int], token_ids: Sequence[int]) -> None:
    """Compare output ids with the reference's up to a token at which it is undecided."""
    assert_same_greedy(name, prompt, greedy(name, tuple(prompt), max(NUM_TOKENS, len(token_ids))), token_ids)


def assert_same_greedy(name: str, prompt: Sequence[int], expected: Greedy, token_ids: Sequence[int]) -> None:
    """Compare with a given reference."""
    for at, token in enumerate(token_ids):
        if token != expected.token_ids[at]:
            assert expected.gaps[at] < CLOSE, (
                f"{name}: a prompt of {len(prompt)} tokens differs from output {at} on: "
                f"{list(token_ids)} is not {expected.token_ids[: len(token_ids)]}"
            )
            return


def greedy_params(max_tokens: int = NUM_TOKENS, **more: Any) -> SamplingParams:
    return SamplingParams(**({"temperature": 0, "max_tokens": max_tokens, "ignore_eos": True} | more))


# -- driving an engine -----------------------------------------------------------------------------------------------


@dataclass
class Job:
    """A request and the events of its life."""

    prompt: Sequence[int]
    params: SamplingParams | BeamSearchParams = field(default_factory=greedy_params)
    arrival: int = 0  #: step
    priority: int = 0
    abort_at: int | None = None  #: step
    documents: tuple[int, ...] = ()
    domains: DomainSpans = PUBLIC_ONLY
    adapter: str = ""
    answer: RequestState | None = None

    @property
    def output(self) -> RequestOutput:
        assert self.answer is not None, "it has not come yet"
        return self.answer.to_output()

    def send(self, engine: Engine) -> None:
        prompt = Prompt(None, list(self.prompt), self.domains, self.documents, adapter=self.adapter)
        self.answer = engine.add_request(prompt, self.params, priority=self.priority)


def check_books(llm: LLM) -> None:
    """Check after a step that nothing leaks or is counted twice, and that scheduler and runner agree."""
    scheduler = llm.engine.scheduler
    scheduler.check_integrity()
    assert set(llm.engine._states) == set(scheduler.queue.requests)
    known = set(llm.engine.runner.batch.row_of)
    alive = {seq.seq_id for seq in scheduler.queue.sequences.values() if seq.is_in_runner}
    assert known - set(scheduler._step._removed) == alive, "runner and scheduler know different sequences"


def run(engine: Engine, states: Sequence[RequestState]) -> list[RequestOutput]:
    """Step until these requests have ended, checking the scheduler after each step."""
    while not all(state.is_finished for state in states):
        engine.step()
        engine.scheduler.check_integrity()
    return [state.to_output() for state in states]


def drive(
    llm: LLM, jobs: Iterable[Job], before_step: Callable[[int], None] | None = None, max_steps: int = 20_000
) -> list[Job]:
    """Run jobs to their end, checking the state after every step."""
    jobs = list(jobs)
    engine = llm.engine
    for step in range(max_steps):
        for job in jobs:
            if job.answer is None and job.arrival <= step:
                job.send(engine)
            if job.answer is not None and job.abort_at == step:
                engine.abort(job.answer.request.request_id)
        if before_step is not None:
            before_step(step)
            check_books(llm)
        if not engine.has_unfinished():
            if all(job.answer is not None for job in jobs):
                break
            continue
        changed = engine.step()
        assert len({id(answer) for answer in changed}) == len(changed)
        check_books(llm)
    else:
        raise AssertionError(f"not done after {max_steps} steps")
    assert all(job.answer is not None and job.answer.is_finished for job in jobs)
    assert not engine._states
    assert llm.engine.scheduler.kv.pool.num_used == len(set(llm.engine.scheduler.kv._pinned))
    return jobs


def outputs(job: Job) -> list[list[int]]:
    assert job.output.error is None, job.output.error
    return [completion.token_ids for completion in job.output.outputs]


def num_preemptions(jobs: Iterable[Job]) -> int:
    return sum(job.answer.request.num_preemptions for job in jobs if job.answer is not None)


def assert_all_greedy(name: str, jobs: Iterable[Job]) -> None:
    """Check that every output of each greedy, unaborted job is complete and equals the reference's."""
    for job in jobs:
        assert isinstance(job.params, SamplingParams)
        found = outputs(job)
        assert len(found) == job.params.n
        for token_ids in found:
            assert len(token_ids) == job.answer.request.max_tokens  # type: ignore[union-attr]
            assert_same_tokens(name, job.prompt, token_ids)


class Preemptor(RecoveryPolicy):
    """Preempts any request but the oldest between steps, through the scheduler."""

    def __init__(self, llm: LLM, seed: int) -> None:
        self.scheduler = llm.engine.scheduler
        self.random = random.Random(seed)

    def choose_victim(self, running: Sequence[Request]) -> Request:
        return self.random.choice(running)

    def plan(self, victim: Victim, decider: LoadOrCompute) -> RecoveryPlan:
        num_kept = self.random.randint(0, victim.num_full_blocks)
        return RecoveryPlan(self.random.choice(list(RecoveryMode)), num_kept)

    def preempt_someone(self) -> None:
        scheduler = self.scheduler
        if len(scheduler.queue.running) > 1:
            coordinator = scheduler.recovery
            usual, coordinator.policy = coordinator.policy, self
            scheduler.planner.preempt_for(scheduler.queue.running[0])
            coordinator.policy = usual


@contextmanager
def model_of(llm: LLM, wrap: Callable[[Any], Any]) -> Any:
    """Replace the model."""
    runner = llm.engine.runner
    model = runner.model
    runner.model = wrap(model)
    try:
        yield runner.model
    finally:
        runner.model = model
