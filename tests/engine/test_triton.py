"""Greedy float32 tokens equal those of `transformers` with attention by Triton: on a GPU, or by its interpreter."""

from __future__ import annotations

import pytest
import torch

from engine.harness import PROMPTS, Job, Preemptor, assert_all_greedy, drive, greedy_params, make_llm, num_preemptions
from quire.assembly import runner as assembly_runner
from quire.attention.interface import AttentionBackend, KVLayout
from quire.ops.arrays import Array, as_tensor

pytest.importorskip("triton", reason="Triton is not installed; there are packages for Linux on x86-64")

from quire.attention.triton_attention import TritonAttention

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def make_attention(blocks: Array, layout: KVLayout) -> AttentionBackend:
    return TritonAttention(as_tensor(blocks), layout)


MORE = ("deepseek2", "gemma2", "gpt-oss-window", "mistral-window")


@pytest.mark.parametrize("name", ["llama", *(pytest.param(each, marks=pytest.mark.slow) for each in MORE)])
def test_preempted_requests_that_share_a_prefix_give_the_references_tokens(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUIRE_BACKEND", "torch")
    monkeypatch.setattr(assembly_runner, "make_attention", make_attention)
    llm = make_llm(name, device=DEVICE, block_size=4, max_num_batched_tokens=24)
    assert isinstance(llm.engine.runner.attention, TritonAttention)
    preemptor = Preemptor(llm, 0)

    def before_step(step: int) -> None:
        if step in (3, 5):
            preemptor.preempt_someone()

    jobs = drive(llm, [Job(prompt, greedy_params(5), arrival=i) for i, prompt in enumerate(PROMPTS[5:8])], before_step)
    assert num_preemptions(jobs) == 2
    assert [job.output.num_cached_tokens for job in jobs] == [0, 16, 20]
    assert_all_greedy(name, jobs)
