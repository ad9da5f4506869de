"""Greedy float32 tokens equal those of `transformers` with our Triton kernels: on a GPU, or by the interpreter."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from engine.harness import PROMPTS, Job, Preemptor, assert_all_greedy, drive, greedy_params, make_llm, num_preemptions

pytest.importorskip("triton", reason="Triton is not installed; there are packages for Linux on x86-64")

from quire.attention import triton_attention
from quire.attention.triton_attention import TritonAttention
from quire.models.experts import Experts
from quire.ops import cuda_graphs
from simulated_gpu import fake_graphs, simulated_gpu

MODELS = (
    "deepseek2", "gemma2", "gpt-oss-window", "llama", "mistral-window", "mixtral", "olmo2", "phi3", "qwen3",
    "qwen3-moe",
)  # fmt: skip
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with simulated_gpu(monkeypatch):
        yield


@pytest.mark.parametrize("name", MODELS)
def test_preempted_requests_that_share_a_prefix_give_the_references_tokens(name: str) -> None:
    llm = make_llm(name, device="cuda", block_size=4, max_num_batched_tokens=24)
    assert isinstance(llm.engine.runner.attention, TritonAttention)
    preemptor = Preemptor(llm, 0)

    def before_step(step: int) -> None:
        if step == 3:
            preemptor.preempt_someone()

    jobs = drive(llm, [Job(prompt, greedy_params(5), arrival=i) for i, prompt in enumerate(PROMPTS[5:7])], before_step)
    assert num_preemptions(jobs) == 1
    assert [job.output.num_cached_tokens for job in jobs] == [0, 16]
    assert_all_greedy(name, jobs)


@pytest.mark.skipif(torch.cuda.is_available(), reason="records with a stand-in")
@pytest.mark.parametrize("name", MODELS)
def test_recorded_passes_give_the_references_tokens(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches with padding, whose contexts grow into a second part and out of the plan's memory."""
    monkeypatch.setattr(triton_attention, "_SPAN", 64)
    for name_of_size in ("_PLACES", "_PLAN_SIZE"):
        monkeypatch.setattr(triton_attention, name_of_size, 1)
    for module in (cuda_graphs, triton_attention):
        monkeypatch.setattr(module, "recorded_size", lambda num_tokens: -(-num_tokens // 3) * 3)
    with fake_graphs(monkeypatch) as graphs:
        llm = make_llm(name, device="cuda", block_size=4, max_num_batched_tokens=24)
        prompts = [PROMPTS[5] + PROMPTS[8], PROMPTS[2], PROMPTS[1], PROMPTS[0]]
        jobs = [Job(prompt, greedy_params(9), arrival=i) for i, prompt in enumerate(prompts)]
        drive(llm, jobs)
    assert_all_greedy(name, jobs)
    attention = llm.engine.runner.attention
    assert isinstance(attention, TritonAttention)
    assert attention.recording[0] > 1, "no memory grew"
    assert len({graph.num_launches for graph in graphs}) == 2, "no parts were joined"
    assert sum(graph.num_replays for graph in graphs) > 3
    mixtures = [each for each in llm.engine.runner.model.modules() if isinstance(each, Experts)]
    assert all(each._grouped() is not None for each in mixtures)
