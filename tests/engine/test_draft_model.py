"""A draft model: no output changes, and the KV that it keeps beside the served model's is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.drafting import share_right
from engine.harness import (
    PROMPTS,
    Job,
    assert_all_greedy,
    checkpoint,
    drive,
    greedy_params,
    make_llm,
    num_preemptions,
    outputs,
)
from engine.thread_ranks import MultiRankLLM
from kernel_levels import needs_kernels
from quire import LLM, SamplingParams
from quire.config import DraftFacts
from quire.core.decisions.costs import StepShape
from quire.core.speculation.draft_costs import DraftCosts
from quire.outputs import Drafting, RequestOutput


def make(name: str, draft: str, **options: Any) -> LLM:
    """Make an engine that verifies all that its draft model proposes, up to 4 tokens a step."""
    return verify_all(make_llm(name, speculation="lookup", speculative_model=draft, speculative_tokens=4, **options))


def verify_all(llm: LLM) -> LLM:
    llm.engine.scheduler.speculator.costs = None
    llm.engine.scheduler.speculator.make_sources = lambda seq: ()
    return llm


@needs_kernels
@pytest.mark.parametrize("is_eager", [False, True])
def test_enforce_eager_records_no_pass_of_either_model(is_eager: bool) -> None:
    llm = make("llama", str(checkpoint("llama")), enforce_eager=is_eager)
    drive(llm, [Job(PROMPTS[0], greedy_params(16))])
    runner: Any = llm.engine.runner
    models = (runner.model, runner.drafter.model)
    assert [bool(model.recorded_passes.values()) for model in models] == [not is_eager] * 2


@pytest.mark.parametrize(
    "options",
    [
        {"max_num_batched_tokens": 12},
        {"num_kv_blocks": 18, "watermark": 0},
        {"num_kv_blocks": 18, "watermark": 0, "swap_space": "8MiB", "recovery_policy": "swap"},
        {"kv_dir": True, "kv_dir_keep_prompts": True},
    ],
    ids=["chunks", "recompute", "swap", "disk"],
)
def test_the_served_model_as_its_own_draft_model_is_always_right(options: dict[str, Any], tmp_path: Path) -> None:
    """So every token's KV in the draft model's own cache is right, wherever the served model's came from."""
    if "kv_dir" in options:
        options = options | {"kv_dir": str(tmp_path)}
    for _ in range(2 if "kv_dir" in options else 1):
        jobs = [Job(prompt, greedy_params(16), arrival=at) for at, prompt in enumerate(PROMPTS * 2)]
        llm = make("llama", str(checkpoint("llama")), block_size=4, **options)
        assert_all_greedy("llama", drive(llm, jobs))
        assert share_right(llm) == 1.0
        assert llm.engine.scheduler.num_steps < 16 * len(jobs) / 3
    assert num_preemptions(jobs) or "watermark" not in options


@needs_kernels
@pytest.mark.parametrize("draft", ["int8", "int4"])
def test_the_served_model_drafts_with_fewer_bits_on_its_own_kv(draft: str) -> None:
    llm = make("qwen2", draft, block_size=4, num_kv_blocks=18, watermark=0)
    jobs = [Job(prompt, greedy_params(16)) for prompt in PROMPTS]
    assert_all_greedy("qwen2", drive(llm, jobs))
    share = share_right(llm)
    assert share is not None
    assert share > {"int8": 0.6, "int4": 0.2}[draft]
    assert llm.engine.runner.drafter._own is None


@needs_kernels  # else a sampled token's bits depend on the batch
def test_sampled_drafts_use_the_random_numbers_of_the_answer() -> None:
    params = SamplingParams(temperature=1.5, top_p=0.9, max_tokens=24, ignore_eos=True, seed=5, logprobs=2)

    def ask(llm: LLM) -> list[Any]:
        outputs: list[RequestOutput] = llm.generate([{"prompt_token_ids": list(PROMPTS[4])}], params, use_tqdm=False)
        return [(each.token_ids, each.logprobs and each.logprobs[:]) for each in outputs[0].outputs]

    llm = make("llama", str(checkpoint("llama")))
    assert ask(llm) == ask(make_llm("llama"))
    assert share_right(llm) == 1.0


@pytest.mark.parametrize("draft", ["the same", pytest.param("int8", marks=needs_kernels)])
def test_two_ranks_draft_together(draft: str) -> None:
    """The first one draws the drafts of sampled answers; the others verify the same."""
    options = {"speculation": "lookup", "speculative_tokens": 4, "block_size": 4, "num_kv_blocks": 18, "watermark": 0}
    model = str(checkpoint("llama")) if draft == "the same" else draft
    llm = verify_all(MultiRankLLM("llama", 2, speculative_model=model, **options))
    jobs = [Job(prompt, greedy_params(16), arrival=at) for at, prompt in enumerate(PROMPTS)]
    assert_all_greedy("llama", drive(llm, jobs))
    assert num_preemptions(jobs)
    sampled = SamplingParams(temperature=1.5, max_tokens=24, ignore_eos=True, seed=5)
    alone, both = (drive(each, [Job(PROMPTS[4], sampled)])[0] for each in (make_llm("llama"), llm))
    assert outputs(alone) == outputs(both)
    share = share_right(llm)
    assert share is not None
    assert share == 1.0 or (draft == "int8" and share > 0.6)


def test_a_smaller_draft_model_of_another_shape() -> None:
    llm = make("llama", str(checkpoint("qwen2")), block_size=4)
    jobs = [Job(prompt, greedy_params(12)) for prompt in PROMPTS]
    assert_all_greedy("llama", drive(llm, jobs))
    assert llm.engine.scheduler.speculator.counts.drafts


class TokenCosts:
    """A step takes a second, and a tenth more for each further token."""

    def step(self, shape: StepShape) -> float:
        return 1.0 + 0.1 * (shape.num_tokens - 1)


def test_drafts_that_do_not_pay_end_and_are_tried_again() -> None:
    llm = make("llama", str(checkpoint("qwen2")), num_kv_blocks=80)
    speculator = llm.engine.scheduler.speculator
    speculator.costs = TokenCosts()  # type: ignore[assignment]
    speculator.draft_costs = costs = DraftCosts(DraftFacts(0.1, has_own_kv=True))
    costs.observe = lambda drafting: None  # type: ignore[method-assign]
    assert_all_greedy("llama", drive(llm, [Job(PROMPTS[2], greedy_params(40))]))
    before = speculator.counts.drafts
    assert 0 < before < 30, "the draft model is another one, and hardly ever right"
    drive(llm, [Job(PROMPTS[2], greedy_params(400))])
    assert 1 <= speculator.counts.drafts - before < 30


def test_costs_of_a_draft_model_are_learnt() -> None:
    costs = DraftCosts(DraftFacts(0.25, has_own_kv=True))
    assert costs.one_pass(2.0) == 0.5
    costs.observe(Drafting(passes=4, seconds=1.0, read_tokens=100, read_s=2.0))
    assert costs.one_pass(2.0) == 0.25
    assert costs.read(10, 2.0) == pytest.approx(0.2)
    assert DraftCosts(DraftFacts(0.25, has_own_kv=False)).read(10, 2.0) == 0


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("llama", {"speculative_model": "int4", "speculation": "off"}, "leave out speculation=off"),
        pytest.param(
            "llama",
            {"speculative_model": "int4", "quantization": "int4"},
            "has int4 weights; name a smaller model",
            marks=needs_kernels,
        ),
        ("llama", {"speculative_model": "quire-mini"}, "has another vocabulary"),
        ("llama", {"speculative_model": "random:tiny"}, "has another vocabulary"),
        ("qwen3_5", {"speculative_model": "int4"}, "has recurrent states"),
        ("llama", {"speculative_model": "nothing-there"}, "nothing-there"),
    ],
)
def test_draft_models_that_cannot_draft(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_llm(name, **{"speculation": "auto"} | options)
