"""Greedy float32 tokens equal those of `transformers` with our Triton kernels: on a GPU, or by the interpreter."""

from __future__ import annotations

import pytest
import torch

from engine.harness import PROMPTS, Job, Preemptor, assert_all_greedy, drive, greedy_params, make_llm, num_preemptions
from quire.assembly import runner as assembly_runner
from quire.attention.interface import AttentionBackend, KVLayout
from quire.ops import functions
from quire.ops.arrays import Array, as_tensor

pytest.importorskip("triton", reason="Triton is not installed; there are packages for Linux on x86-64")

from quire.attention.triton_attention import TritonAttention
from quire.ops import on_torch, on_triton

MORE = ("deepseek2", "gemma2", "gpt-oss-window", "llama", "mistral-window", "olmo2", "phi3")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def _compute_by_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the path of a GPU, with tensors in main memory if there is none."""
    monkeypatch.setenv("QUIRE_BACKEND", "torch")
    monkeypatch.setattr(assembly_runner, "make_attention", make_attention)
    monkeypatch.setattr(functions, "is_on_host", lambda x: False)
    monkeypatch.setattr(functions, "_of_tensors", lambda name, _: getattr(on_triton, name, getattr(on_torch, name)))


def make_attention(blocks: Array, layout: KVLayout, dtype: object = None) -> AttentionBackend:
    return TritonAttention(as_tensor(blocks), layout)


@pytest.mark.parametrize("name", ["qwen3", *(pytest.param(each, marks=pytest.mark.slow) for each in MORE)])
def test_preempted_requests_that_share_a_prefix_give_the_references_tokens(name: str) -> None:
    llm = make_llm(name, device=DEVICE, block_size=4, max_num_batched_tokens=24)
    assert isinstance(llm.engine.runner.attention, TritonAttention)
    preemptor = Preemptor(llm, 0)

    def before_step(step: int) -> None:
        if step == 3:
            preemptor.preempt_someone()

    jobs = drive(llm, [Job(prompt, greedy_params(5), arrival=i) for i, prompt in enumerate(PROMPTS[5:7])], before_step)
    assert num_preemptions(jobs) == 1
    assert [job.output.num_cached_tokens for job in jobs] == [0, 16]
    assert_all_greedy(name, jobs)
