"""Requests with LoRA adapters, several in one batch, give PEFT's tokens, and share nothing with each other."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from adapters import NUM_TOKENS, SETTINGS, adapted, copy_of, greedy_with, lora
from engine.harness import (
    CLOSE,
    PROMPTS,
    Job,
    Preemptor,
    assert_same_greedy,
    checkpoint,
    drive,
    greedy_params,
    make_llm,
    num_preemptions,
    outputs,
    run,
)
from engine.thread_ranks import MultiRankLLM
from kernel_levels import needs_kernels
from parameters import quick
from quire import LLM, SamplingParams
from quire.kernels.loaded import has_exact_kernels
from quire.models.linear.layer import Linear
from quire.prompt import Prompt

NAMES = ("", *SETTINGS)
SMALL = {"block_size": 4, "max_num_batched_tokens": 16, "watermark": 0}


def jobs_of_all(**options: Any) -> list[Job]:
    """Each prompt with one adapter after the other, or none, arriving in turns."""
    return [
        Job(prompt, greedy_params(NUM_TOKENS), arrival=i, adapter=NAMES[(i + at) % len(NAMES)], **options)
        for at in range(2)
        for i, prompt in enumerate(PROMPTS)
    ]


def assert_pefts(name: str, jobs: Sequence[Job]) -> None:
    for job in jobs:
        expected = greedy_with(name, job.adapter)[PROMPTS.index(tuple(job.prompt))]
        (found,) = outputs(job)
        assert len(found) == NUM_TOKENS
        assert_same_greedy(name, job.prompt, expected, found)


@pytest.mark.parametrize("name", quick(["llama", "gpt2"], ["llama", "gpt2", "qwen3-moe", "phi3"]))
def test_three_adapters_and_none_in_one_batch_give_pefts_tokens(name: str) -> None:
    for a, b in pairwise(NAMES):
        changed = [x.token_ids != y.token_ids for x, y in zip(greedy_with(name, a), greedy_with(name, b), strict=True)]
        assert sum(changed) > len(changed) // 2, f"{a} and {b} hardly differ"
        assert min(gap for expected in greedy_with(name, b) for gap in expected.gaps) > CLOSE
    llm = make_llm(name, lora=lora(name), num_kv_blocks=400, **SMALL)
    seen: set[tuple[int, ...]] = set()
    batch = llm.engine.runner.batch  # type: ignore[attr-defined]

    def note(step: int) -> None:
        seen.add(tuple(sorted(set(batch.adapters[list(batch.row_of.values())].tolist()))))

    assert_pefts(name, drive(llm, jobs_of_all(), note))
    assert (0, 1, 2, 3) in seen, "they never ran together"


def test_preempted_and_swapped_requests_keep_their_adapters() -> None:
    options = {**SMALL, "num_kv_blocks": 18, "recovery_policy": "swap", "swap_space": "16MiB"}
    llm = make_llm("llama", lora=lora("llama"), **options)
    preemptor, moments = Preemptor(llm, 3), random.Random(3)
    jobs = jobs_of_all()
    drive(llm, jobs, lambda step: preemptor.preempt_someone() if moments.random() < 0.3 else None)
    assert num_preemptions(jobs) > 2
    assert_pefts("llama", jobs)


def test_two_ranks_have_the_adapters_too() -> None:
    llm = MultiRankLLM("llama", lora=lora("llama"), **SMALL)
    assert_pefts("llama", drive(llm, jobs_of_all()))
    with pytest.raises(ValueError, match=r"has no file adapter_config\.json"):
        llm.engine.adapters.load("fourth", "/nowhere")
    for adapter in SETTINGS:
        llm.engine.adapters.unload(adapter)
    llm.engine.runner.compare_blocks([])  # after the calls of before
    assert not llm.workers[0].built.runner.adapters._loaded


@pytest.mark.parametrize(
    "format",
    [
        {"dtype": "bfloat16"},
        {"dtype": "bfloat16", "quantization": "int8"},
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"dtype": "bfloat16", "quantization": "int4"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
@pytest.mark.skipif(not has_exact_kernels("cpu", "bfloat16"), reason="bits of bfloat16 depend on the batch here")
def test_bits_do_not_depend_on_the_adapters_beside(format: dict[str, str]) -> None:
    def bits(jobs: Sequence[Job]) -> list[tuple[list[int], list[float]]]:
        whole = [job.output.outputs[0] for job in jobs]
        return [(each.token_ids, [each.logprobs[i][t].logprob for i, t in enumerate(each.token_ids)])
                for each in whole if each.logprobs is not None]  # fmt: skip

    def made(seed: int) -> list[Job]:
        draw = random.Random(seed)
        return [
            Job(PROMPTS[draw.randrange(len(PROMPTS))], greedy_params(draw.randint(2, 12), logprobs=0),
                arrival=draw.randrange(8), adapter=draw.choice(NAMES))
            for _ in range(10)
        ]  # fmt: skip

    plain = make_llm("llama", **format)
    alone = make_llm("llama", lora=lora("llama"), enable_prefix_caching=False, **format)
    for seed in range(2):
        llm = make_llm(
            "llama", lora=lora("llama"), num_kv_blocks=random.Random(seed).choice([16, 64]), **format, **SMALL
        )
        jobs, expected = made(seed), made(seed)
        drive(llm, jobs)
        for job in expected:
            drive(alone if job.adapter else plain, [job])
        assert bits(jobs) == bits(expected)


def test_prefixes_are_found_by_the_same_adapter_only(tmp_path: Path) -> None:
    options = {"lora": lora("llama"), "kv_dir": str(tmp_path), "kv_dir_keep_prompts": True, **SMALL}
    llm = make_llm("llama", **options)
    prompt, params = PROMPTS[4], greedy_params(4)
    for adapter in NAMES:
        assert drive(llm, [Job(prompt, params, adapter=adapter)])[0].output.num_cached_tokens == 0
    for adapter in NAMES:
        assert drive(llm, [Job(prompt, params, adapter=adapter)])[0].output.cached_tokens == {"device": 32}
    llm.engine.close()
    other = make_llm("llama", **{**options, "lora": [f"again={adapted('llama')[1]['first']}"]})
    found = drive(other, [Job(prompt, params, adapter="again")])[0].output
    assert found.cached_tokens == {"disk": 32}, "the same adapter, by another name"
    assert_same_greedy("llama", prompt, greedy_with("llama", "first")[4], found.outputs[0].token_ids)


@pytest.mark.parametrize("draft", [pytest.param("int4", marks=needs_kernels), "llama"])
def test_drafts_of_the_model_alone_are_verified_with_the_adapter(draft: str) -> None:
    model = draft if draft == "int4" else str(checkpoint(draft))
    llm = make_llm("llama", lora=lora("llama"), num_kv_blocks=400, speculation="auto", speculative_model=model,
                   speculative_tokens=3)  # fmt: skip
    jobs = drive(llm, jobs_of_all())
    assert_pefts("llama", jobs)
    assert llm.engine.step_stats.snapshot(0, 0.0) is not None


def test_an_unloaded_adapter_serves_the_requests_that_have_it() -> None:
    llm = make_llm("llama", lora=lora("llama"))
    engine = llm.engine
    states = [engine.add_request(Prompt(None, PROMPTS[3], adapter=name), greedy_params(NUM_TOKENS)) for name in NAMES]
    engine.step()
    engine.adapters.unload("first")
    engine.adapters.load("second", adapted("llama")[1]["third"])  # in place
    with pytest.raises(ValueError, match="'first' is not loaded"):
        engine.add_request(Prompt(None, PROMPTS[3], adapter="first"))
    late = engine.add_request(Prompt(None, PROMPTS[3], adapter="second"), greedy_params(NUM_TOKENS))
    found = run(engine, [*states, late])
    for output, name in zip(found, (*NAMES, "third"), strict=True):
        assert_same_greedy("llama", PROMPTS[3], greedy_with("llama", name)[3], output.outputs[0].token_ids)
    engine.adapters.sweep()
    runner = engine.runner
    assert set(runner.adapters._loaded) == {3, 4}  # type: ignore[attr-defined]
    recorded = runner.model.recorded_passes._of.values()  # type: ignore[attr-defined]
    assert {number for of in recorded for key in of.passes for number, _, _ in key[2]} <= {0, 3, 4}
    modules = runner.model.modules()  # type: ignore[attr-defined]
    assert all(module.adapter is None for module in modules if isinstance(module, Linear))


def test_broken_adapters_change_nothing(tmp_path: Path) -> None:
    good = adapted("llama")[1]["first"]
    engine = make_llm("llama", lora=(f"good={good}",)).engine
    config = json.loads((Path(good) / "adapter_config.json").read_text())
    cases = {
        "dora": (config | {"use_dora": True}, "use_dora"),
        "another rank": (config | {"r": 5}, "rank"),
        "another kind": (config | {"peft_type": "IA3"}, "IA3"),
    }
    for name, (changed, message) in cases.items():
        directory = copy_of(good, tmp_path / name)
        (directory / "adapter_config.json").write_text(json.dumps(changed))
        with pytest.raises(ValueError, match=message):
            engine.adapters.load("good", str(directory))
    with pytest.raises(ValueError, match=r"was made for another model|no such linear layer"):
        engine.adapters.load("good", adapted("gpt2")[1]["first"])
    (tmp_path / "dora" / "adapter_model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"no file adapter_model\.safetensors"):
        engine.adapters.load("new", str(tmp_path / "dora"))
    state = engine.add_request(Prompt(None, PROMPTS[3], adapter="good"), greedy_params(NUM_TOKENS))
    (output,) = run(engine, [state])
    assert_same_greedy("llama", PROMPTS[3], greedy_with("llama", "first")[3], output.outputs[0].token_ids)
    with pytest.raises(ValueError, match="no LoRA adapter"):
        make_llm("llama", lora=(f"missing={tmp_path}/missing",))


def test_llm_generates_with_an_adapter_for_each_prompt() -> None:
    llm = make_llm("llama", lora=lora("llama"))
    prompts: list[Any] = [{"prompt_token_ids": list(PROMPTS[3])}] * 3
    params = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True)
    found = llm.generate(prompts, params, False, lora=["third", None, "first"])
    for output, name in zip(found, ("third", "", "first"), strict=True):
        assert output.outputs[0].token_ids == list(greedy_with("llama", name)[3].token_ids)
    (one,) = llm.generate(prompts[:1], params, False, lora="second")
    assert one.outputs[0].token_ids == list(greedy_with("llama", "second")[3].token_ids)
    with pytest.raises(ValueError, match="'fourth' is not loaded"):
        llm.generate(prompts, params, False, lora="fourth")
    with pytest.raises(ValueError, match="2 adapters for 3 prompts"):
        llm.generate(prompts, params, False, lora=["first", "first"])
    for wrong, message in (("first", "not NAME=DIR"), ("=x", "not NAME=DIR")):
        with pytest.raises(ValueError, match=message):
            LLM("random:tiny", lora=(wrong,))
