"""Models that compute on numpy arrays and on tensors in main memory call the same kernels: the same bits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from checkpoints import CACHES
from engine import test_random_schedules as random_schedules
from engine.harness import PROMPTS, Job, assert_all_greedy, drive, greedy_params, make_llm, random_ids
from engine.thread_ranks import MultiRankLLM
from parameters import in_turns, quick
from quire import SamplingParams
from quire.kernels.loaded import load_kernels
from quire.ops.arrays import is_numpy
from quire.outputs import Logprobs

pytestmark = pytest.mark.skipif(load_kernels().functions is None, reason="models compute on tensors without kernels")

FORMATS = {
    f"{dtype}-{quantization}": {"dtype": dtype, "quantization": quantization}
    for dtype in ("float32", "bfloat16")
    for quantization in ("none", "int8", "int4")
}


@pytest.mark.parametrize(("name", "format"), in_turns(["llama", "qwen3", "gpt2", "opt"], list(FORMATS)))
def test_tokens_and_logprobs_are_equal_bit_for_bit(name: str, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = [*PROMPTS[1:5], random_ids(64, 1), random_ids(65, 2), random_ids(150, 3)]
    params = [greedy_params(8, logprobs=3, prompt_logprobs=2)] * 6
    params += [SamplingParams(seed=1, temperature=0.9, max_tokens=8, ignore_eos=True, logprobs=3)]

    def run() -> list[Any]:
        llm = make_llm(name, max_model_len=300, **FORMATS[format])
        assert is_numpy(llm.engine.runner.model.dtype) != is_on_torch
        outputs = llm.generate([{"prompt_token_ids": list(each)} for each in prompts], params, use_tqdm=False)
        alone = llm.generate([{"prompt_token_ids": list(prompts[-1])}], params[-1], use_tqdm=False)
        found = [(each.outputs[0], each.prompt_logprobs) for each in (*outputs, *alone)]
        assert all(isinstance(output.logprobs, Logprobs) for output, _ in found), "they compare all bits"
        return [(output.token_ids, output.logprobs, of_prompt) for output, of_prompt in found]

    is_on_torch = False
    expected = run()
    monkeypatch.setenv("QUIRE_BACKEND", "torch")
    is_on_torch = True
    assert run() == expected


@pytest.mark.parametrize("name", quick(CACHES, random_schedules.FAMILIES))
def test_tensors_give_the_references_tokens(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIRE_BACKEND", "torch")
    llm = make_llm(name, block_size=4, num_kv_blocks=17, max_num_batched_tokens=24, watermark=0)
    assert not is_numpy(llm.engine.runner.model.dtype)
    assert_all_greedy(name, drive(llm, [Job(prompt, arrival=i) for i, prompt in enumerate(PROMPTS)]))


@settings(max_examples=2, derandomize=True, **random_schedules.BASICS)
@given(plan=random_schedules.plans)
def test_whatever_comes_tensors_give_the_same_bits(plan: random_schedules.Plan) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUIRE_BACKEND", "torch")
        random_schedules.run("llama", plan)


def test_ranks_of_tensors_give_the_references_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIRE_BACKEND", "torch")
    llm = MultiRankLLM("llama", 2, block_size=4)
    assert not is_numpy(llm.workers[0].loaded.model.dtype)
    assert_all_greedy("llama", drive(llm, [Job(prompt, greedy_params(8)) for prompt in PROMPTS]))
