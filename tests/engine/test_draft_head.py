"""Draft heads of checkpoints: they guess as a reference does, and no output changes."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from draft_heads import FAMILIES_WITH_HEADS, AssistantReference, HeadReference, assistant_checkpoint, head_checkpoint
from engine.drafting import share_right
from engine.harness import (
    PROMPTS,
    Job,
    Preemptor,
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
from parameters import quick
from quire import LLM
from quire.loading import resolve_model
from quire.loading.modules.draft_head import draft_head_bytes
from quire.progressive.packs.pack import pack
from quire.progressive.stage_plan import StagePlan

reference = cache(HeadReference)

OPTIONS = {"speculation": "lookup", "speculative_model": "mtp", "speculative_tokens": 3, "block_size": 4}


def make(name: str, path: Path | None = None, **options: Any) -> LLM:
    """Make an engine that verifies all that the head proposes, up to 3 tokens a step."""
    if name.startswith("gemma4"):
        path, options = checkpoint(name), options | {"speculative_model": str(assistant_checkpoint(name))}
    llm = make_llm(name, path or head_checkpoint(name), **OPTIONS | options)
    verify_all(llm)
    return llm


def verify_all(llm: LLM) -> None:
    llm.engine.scheduler.speculator.costs = None
    llm.engine.scheduler.speculator.make_sources = lambda seq: ()


def watch(llm: LLM) -> list[tuple[list[int], int, np.ndarray]]:
    """Return a list that gets all guesses: the tokens before, how many of them were guesses, the logits."""
    runner, guesses = llm.engine.runner, []
    drafter = getattr(runner, "first", runner).drafter
    choose, compute = drafter.choose, drafter._compute

    def note_rows(inputs: Any, rows: np.ndarray, starts: np.ndarray, ends: np.ndarray, number: int = -1) -> Any:
        nonlocal texts
        texts = [inputs.token_ids[row, : end + 1].tolist() for row, end in zip(rows, ends, strict=True)]
        return compute(inputs, rows, starts, ends, number)

    def note_logits(logits: np.ndarray, states: Any, number: int) -> np.ndarray:
        guesses.extend((text, number, row.copy()) for text, row in zip(texts, logits, strict=True))
        return choose(logits, states, number)

    texts: list[list[int]] = []
    drafter._compute, drafter.choose = note_rows, note_logits
    return guesses


def check(
    of: HeadReference | AssistantReference, guesses: list[tuple[list[int], int, np.ndarray]], most: int = 60
) -> None:
    assert {number for _, number, _ in guesses} == {0, 1, 2}
    for tokens, number, logits in guesses[:: max(1, len(guesses) // 40)]:
        expected = of.logits(tokens, number)
        np.testing.assert_allclose(logits, expected, atol=1e-3 * np.ptp(expected), rtol=0)


@pytest.mark.parametrize("events", ["none", "chunks", "preemptions"])
@pytest.mark.parametrize("name", quick(["qwen3_5", "deepseek3"], FAMILIES_WITH_HEADS))
def test_the_head_guesses_as_the_reference_does(name: str, events: str) -> None:
    """The last prompt is found in the cache, and answered alone."""
    jobs = [Job(prompt, greedy_params(16), arrival=at) for at, prompt in enumerate(PROMPTS[1:5])]
    jobs.append(Job(PROMPTS[4], greedy_params(16), arrival=60))
    llm = make(name, **{"max_num_batched_tokens": 12} if events == "chunks" else {})
    guesses, preemptor = watch(llm), Preemptor(llm, seed=1)

    def before_step(step: int) -> None:
        if events == "preemptions" and step % 6 == 5:
            preemptor.preempt_someone()

    assert_all_greedy(name, drive(llm, jobs, before_step))
    check(reference(name), guesses)
    assert bool(num_preemptions(jobs)) == (events == "preemptions")
    assert jobs[-1].output.num_cached_tokens


@pytest.mark.parametrize("name", quick(["qwen3_5-moe", "deepseek3", "gemma4"], (*FAMILIES_WITH_HEADS, "gemma4")))
def test_two_ranks_have_halves_of_the_head(name: str) -> None:
    is_assistant = name.startswith("gemma4")
    draft = str(assistant_checkpoint(name)) if is_assistant else "mtp"
    model = checkpoint(name) if is_assistant else head_checkpoint(name)
    llm = MultiRankLLM(model, 2, **OPTIONS | {"speculative_model": draft})
    verify_all(llm)
    guesses = watch(llm)
    assert_all_greedy(name, drive(llm, [Job(PROMPTS[4], greedy_params(12))]))
    check(AssistantReference(name) if is_assistant else reference(name), guesses)


@pytest.mark.parametrize("name", quick(["gemma4-shared", "gemma4"], ["gemma4-shared", "gemma4", "gemma4-moe"]))
def test_an_assistant_of_gemma_4_guesses_as_the_reference_does(name: str) -> None:
    jobs = [Job(prompt, greedy_params(16), arrival=at) for at, prompt in enumerate(PROMPTS[1:5])]
    llm = make(name, max_num_batched_tokens=12)
    guesses, preemptor = watch(llm), Preemptor(llm, seed=1)
    assert_all_greedy(name, drive(llm, jobs, lambda step: preemptor.preempt_someone() if step % 6 == 5 else None))
    check(AssistantReference(name), guesses)
    assert num_preemptions(jobs)


@pytest.mark.parametrize(
    "options",
    [
        {"swap_space": "8MiB", "recovery_policy": "swap", "num_kv_blocks": 14, "watermark": 0},
        {"kv_dir": True, "kv_dir_keep_prompts": True},
        pytest.param({"quantization": "int8", "kv_cache_dtype": "int8"}, marks=needs_kernels),
        {"dtype": "float16"},
        {"enable_prefix_caching": False},
    ],
    ids=["swap", "disk", "int8", "float16", "no cache"],
)
@pytest.mark.parametrize("name", ["qwen3_5", "deepseek3", "gemma4-shared"])
def test_no_output_changes(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    """Whatever the head knows: of blocks from other tiers it has no hidden states."""
    if name == "gemma4-shared" and "dtype" in options:
        pytest.skip("bits of float16 depend on the batch")
    prompts = list(PROMPTS) * 2
    plain = {each: options[each] for each in ("quantization", "kv_cache_dtype", "dtype") if each in options}
    jobs = [Job(prompt, greedy_params(12)) for prompt in prompts]
    expected = [outputs(job) for job in drive(make_llm(name, **plain), jobs)]
    if "kv_dir" in options:
        options = options | {"kv_dir": str(tmp_path)}
    for _ in range(2 if "kv_dir" in options else 1):
        jobs = [Job(prompt, greedy_params(12)) for prompt in prompts]
        llm = make(name, **options)
        assert [outputs(job) for job in drive(llm, jobs)] == expected
        assert share_right(llm) is not None
    assert num_preemptions(jobs) or "watermark" not in options
    assert any(job.output.num_cached_tokens for job in jobs) or "kv_dir" not in options


@pytest.mark.parametrize("bits", [None, 1])
@pytest.mark.parametrize("name", ["qwen3_5", "deepseek3"])
def test_a_pack_has_the_head_too(name: str, bits: int | None, tmp_path: Path) -> None:
    num_layers = 4 if name == "qwen3_5" else 3
    plan = StagePlan(num_layers, (tuple(range(num_layers)),), bits)
    pack(str(head_checkpoint(name)), plan, tmp_path / "pack", use_tqdm=False)
    guesses = []
    for path in (head_checkpoint(name), tmp_path / "pack"):
        llm = make(name, path)
        guesses.append(watch(llm))
        drive(llm, [Job(PROMPTS[2], greedy_params(8))])
    for (tokens, number, logits), other in zip(*guesses, strict=True):
        assert (tokens, number) == other[:2]
        np.testing.assert_array_equal(logits, other[2])


@pytest.mark.parametrize("name", FAMILIES_WITH_HEADS)
def test_a_head_that_is_not_asked_for_is_not_loaded(name: str) -> None:
    llm, plain = make_llm(name, head_checkpoint(name)), make_llm(name)
    assert llm.engine.runner.model.weight_bytes() == plain.engine.runner.model.weight_bytes()
    assert llm.engine.runner.drafter is None
    need = draft_head_bytes(resolve_model(str(checkpoint(name))), llm.engine.runner.model)
    assert 0 < need < plain.engine.runner.model.weight_bytes()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (checkpoint("qwen3_5"), r"has no draft head, of mtp\.fc\.weight and 14 more tensors; take the original"),
        (checkpoint("glm4_moe_lite"), r"has no draft head, of model\.layers\.3\.eh_proj\.weight and 41 more tensors"),
        (head_checkpoint("qwen3_5", "q_norm"), r"1 of 15 tensors are missing: mtp\.layers\.0\.self_attn\.q_norm"),
        (head_checkpoint("deepseek3", "enorm"), r"1 of 66 tensors are missing: model\.layers\.3\.enorm"),
        (checkpoint("llama"), "LlamaForCausalLM has no draft head that can be served; name a smaller model"),
        ("random:gpt2", "GPT2LMHeadModel has no draft head"),
    ],
)
def test_checkpoints_without_a_head(path: Path, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_llm("", path, speculation="auto", speculative_model="mtp")


def test_an_assistant_serves_its_model_only() -> None:
    path = assistant_checkpoint("gemma4")
    with pytest.raises(ValueError, match="this assistant drafts for another Gemma 4; name that of the served model"):
        make_llm("qwen3_5", speculation="auto", speculative_model=str(path))
    with pytest.raises(ValueError, match="Gemma4AssistantForCausalLM is not supported"):
        make_llm("", path)


def test_a_preset_drafts_with_a_random_head() -> None:
    llm = make("", Path("random:qwen3.5-0.8b"), dtype="bfloat16", num_kv_blocks=16)
    drive(llm, [Job(PROMPTS[1], greedy_params(6))])
    assert share_right(llm) is not None
