"""Weights of 8 and 4 bits on a GPU in engines: tokens of a reference with the decoded weights, there or by Triton's
interpreter."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator

import pytest
import torch

from checkpoints import make_reference
from engine.harness import (
    PROMPTS,
    Job,
    assert_same_greedy,
    drive,
    generate_greedy,
    greedy,
    greedy_params,
    make_llm,
    outputs,
)

pytest.importorskip("triton", reason="Triton is not installed; there are packages for Linux on x86-64")

from quire.models.linear import triton_weight
from quire.models.linear.triton_weight import TritonWeight
from simulated_gpu import fake_graphs, simulated_gpu
from triton_weights import round_weights


@pytest.fixture(autouse=True)
def _gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(triton_weight, "_SPAN", 128)
    with simulated_gpu(monkeypatch):
        yield


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3-moe"])
@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_quantized_weights_give_the_tokens_of_a_reference_that_has_them(name: str, quantization: str) -> None:
    model = make_reference(name)
    round_weights(model, quantization)
    llm = make_llm(name, device="cuda", quantization=quantization)
    assert isinstance(llm.engine.runner.model.lm_head.packed, TritonWeight)
    prompt = PROMPTS[1]
    (job,) = drive(llm, [Job(prompt, greedy_params(4))])
    (expected,) = generate_greedy(model, (prompt,), 4)
    assert_same_greedy(name, prompt, expected, *outputs(job))
    if quantization == "int4":
        assert expected.token_ids != greedy(name, prompt).token_ids[:4], "other weights give other tokens"


@pytest.mark.skipif(torch.cuda.is_available(), reason="records with a stand-in")
@pytest.mark.slow
def test_recorded_passes_have_quantized_weights_too(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"device": "cuda", "quantization": "int8", "block_size": 4}
    jobs = [Job(prompt, greedy_params(5)) for prompt in PROMPTS[:2]]
    expected = [outputs(job) for job in drive(make_llm("llama", **options), jobs)]
    with fake_graphs(monkeypatch) as graphs:
        again = drive(make_llm("llama", **options), [Job(job.prompt, job.params) for job in jobs])
    assert [outputs(job) for job in again] == expected
    assert sum(graph.num_replays for graph in graphs) > 2


@pytest.mark.slow
@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_adapters_are_added_to_quantized_weights(quantization: str) -> None:
    from adapters import adapted, lora  # these import PEFT

    model = copy.deepcopy(adapted("llama")[0])
    round_weights(model, quantization)
    llm = make_llm("llama", device="cuda", quantization=quantization, lora=lora("llama"))
    names = ("first", "", "second")
    jobs = [Job(prompt, greedy_params(5), adapter=each) for each, prompt in zip(names, PROMPTS[5:], strict=False)]
    for job in drive(llm, jobs):
        with contextlib.nullcontext() if job.adapter else model.disable_adapter():
            if job.adapter:
                model.set_adapter(job.adapter)
            (expected,) = generate_greedy(model, (job.prompt,), 5)
        assert_same_greedy("llama", job.prompt, expected, *outputs(job))
