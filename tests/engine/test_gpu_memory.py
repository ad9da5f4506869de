"""A GPU without free memory: at the start an error with remedies, in a step a second try of each request alone. The
functions of torch.cuda are fakes."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch

from engine.harness import PROMPTS, Job, assert_all_greedy, drive, greedy_params, make_llm
from quire import LLM
from quire.assembly import load, step_memory
from quire.assembly import runner as assembly_runner
from quire.assembly.model import LoadedModel
from quire.attention.interface import KVLayout
from quire.config import EngineConfig
from quire.loading.modules.group_loader import GroupLoader
from quire.outputs import SchedulerOutput, StepOutput
from quire.runner import kv_cache
from quire.runner.kv_cache import KVCache
from quire.runner.model_runner import ModelRunner
from quire.system import memory

MIB = 2**20
FULL = torch.OutOfMemoryError(
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 23.69 GiB of which 12.06 MiB is "
    "free. Including non-PyTorch memory, this process has 23.60 GiB memory in use."
)


@dataclass
class Gpu:
    """A stand-in for torch.cuda with a GPU, on which each step takes `step_bytes`."""

    free: int = 64 * MIB
    total: int = 64 * MIB
    step_bytes: int = 3 * MIB
    calls: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*_: object) -> Any:
            self.calls.append(name)
            return {
                "mem_get_info": (self.free, self.total),
                "memory_allocated": 5 * MIB,
                "max_memory_allocated": 5 * MIB + self.step_bytes,
                "get_device_name": "a GPU",
            }.get(name)

        return call


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    found = Gpu()
    for name in (
        "mem_get_info", "memory_allocated", "max_memory_allocated", "reset_peak_memory_stats", "empty_cache",
        "synchronize", "get_device_name",
    ):  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, getattr(found, name))
    return found


# -- a step ------------------------------------------------------------------------------------------------------------


def fail_steps(llm: LLM, is_full: Callable[[SchedulerOutput], bool]) -> list[list[int]]:
    """Have steps find no memory, after they have computed. Returns the sequences of each step."""
    steps: list[list[int]] = []
    usual = llm.engine.runner.execute

    def execute(out: SchedulerOutput) -> StepOutput:
        steps.append(list(out.seq_ids))
        result = usual(out)
        if is_full(out):
            raise FULL
        return result

    llm.engine.runner.execute = execute  # type: ignore[method-assign]
    return steps


def test_requests_of_a_step_without_memory_run_again_one_by_one_with_the_same_tokens(gpu: Gpu) -> None:
    llm = make_llm("llama", block_size=4)
    steps = fail_steps(llm, lambda out: len(steps) == 3)
    jobs = drive(llm, [Job(prompt, greedy_params(6), arrival=i // 3) for i, prompt in enumerate(PROMPTS[2:6])])
    assert_all_greedy("llama", jobs)
    assert [len(step) for step in steps[2:7]] == [4, 1, 1, 1, 1], "one that arrives meanwhile waits, too"
    assert len(steps[7]) == 4
    assert "empty_cache" in gpu.calls


def test_a_request_for_which_memory_does_not_suffice_fails_alone(gpu: Gpu, caplog: pytest.LogCaptureFixture) -> None:
    llm = make_llm("llama", block_size=4, max_num_batched_tokens=64)
    fail_steps(llm, lambda out: max(out.num_scheduled_tokens, default=0) > 20)
    jobs = [Job(PROMPTS[index], greedy_params(6)) for index in (0, 4, 2)]
    drive(llm, jobs)
    assert_all_greedy("llama", [jobs[0], jobs[2]])
    assert jobs[1].output.error is not None
    assert re.fullmatch(
        "the GPU ran out of memory in a step of 33 tokens; lower max_num_batched_tokens or gpu_memory_utilization",
        jobs[1].output.error,
    )
    assert "the GPU has no memory left; its requests run again one by one: CUDA out of memory" in caplog.text
    assert_all_greedy("llama", drive(llm, [Job(PROMPTS[3], greedy_params(6))]))


def test_requests_that_only_fit_alone_run_one_after_the_other_in_the_end(gpu: Gpu) -> None:
    llm = make_llm("llama", block_size=4)
    steps = fail_steps(llm, lambda out: len(out.seq_ids) > 1)
    assert_all_greedy("llama", drive(llm, [Job(prompt, greedy_params(20)) for prompt in PROMPTS[:2]]))
    assert sum(len(step) > 1 for step in steps) == 3


@pytest.mark.parametrize(
    ("error", "is_full"),
    [
        (FULL, True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("Triton Error [CUDA]: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (ValueError("CUDA out of memory"), False),
    ],
)
def test_errors_of_a_full_gpu_are_known(error: Exception, is_full: bool) -> None:
    assert memory.is_gpu_full(error) == is_full


def test_a_failed_computation_leaves_nothing_behind(gpu: Gpu) -> None:
    freed: list[str] = []

    class Tensor:
        def __del__(self) -> None:
            freed.append("freed")

    def compute() -> None:
        x = Tensor()
        raise RuntimeError(f"CUDA error: out of memory, with {type(x)}")

    try:
        compute()
    except RuntimeError as error:
        memory.release_gpu_memory(error)
        assert freed == ["freed"]


# -- the start ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> LoadedModel:
    """A model of tensors in main memory that is said to be on a GPU."""
    monkeypatch.setenv("QUIRE_BACKEND", "torch")
    monkeypatch.setattr(kv_cache, "KVCache", CacheInMemory)
    return replace(load(config()), device="cuda")


class CacheInMemory(KVCache):
    def __init__(self, num_blocks: int, layout: KVLayout, dtype: Any, device: str, **more: Any) -> None:
        assert device == "cuda"
        super().__init__(num_blocks, layout, dtype, "cpu", **more)
        self.blocks = torch.as_tensor(self.blocks)


def config(**options: Any) -> EngineConfig:
    return EngineConfig("random:tiny", device="cpu", use_tqdm=False, swap_space=0, **options)


def test_the_pool_takes_what_weights_and_the_largest_step_leave(
    gpu: Gpu, on_gpu: LoadedModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    steps: list[SchedulerOutput] = []
    usual = ModelRunner.execute

    def execute(runner: ModelRunner, out: SchedulerOutput) -> StepOutput:
        steps.append(out)
        return usual(runner, out)

    monkeypatch.setattr(ModelRunner, "execute", execute)
    gpu.free = gpu.total = 400 * MIB
    caplog.set_level(logging.INFO, logger="quire")
    built = assembly_runner.make_runner(config(max_num_seqs=1000, gpu_memory_utilization=0.5), on_gpu)
    (step,) = steps
    assert step.num_scheduled_tokens == [2048 - 999] + [1] * 999
    room = 200 * MIB - on_gpu.model.weight_bytes() - (3 * MIB + 3 * MIB // 10 + step_memory._MARGIN)
    assert built.plan.num_blocks == room // built.plan.block_bytes
    assert "a step of 2048 tokens takes 3.0 MiB beside weights and KV" in caplog.text
    assert caplog.text.count("attention: torch") == 1
    gpu.free = 150 * MIB
    less = assembly_runner.make_runner(config(max_num_seqs=1000, gpu_memory_utilization=0.5), on_gpu)
    assert 0 < less.plan.num_blocks < built.plan.num_blocks, "another program uses the GPU"


def test_nothing_is_measured_if_an_option_sizes_the_pool(gpu: Gpu, on_gpu: LoadedModel) -> None:
    assert assembly_runner.make_runner(config(num_kv_blocks=8), on_gpu).plan.num_blocks == 8
    assert "max_memory_allocated" not in gpu.calls
    with pytest.raises(ValueError, match=r"a KV pool of 65\.0 MiB does not fit: 64\.0 MiB are free on cuda; lower"):
        assembly_runner.make_runner(config(kv_cache_memory=65 * MIB), on_gpu)


def test_a_step_that_does_not_fit_ends_the_start(
    gpu: Gpu, on_gpu: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def execute(*_: object) -> None:
        raise FULL

    monkeypatch.setattr(ModelRunner, "execute", execute)
    with pytest.raises(ValueError, match=r"to run a step of 64 tokens \(CUDA out of memory\. Tr") as found:
        assembly_runner.make_runner(config(max_num_batched_tokens=64), on_gpu)
    assert "12.06 MiB is free); use a lower max_num_batched_tokens, " in str(found.value)
    assert "a smaller model, or end other programs on it" in str(found.value)


def test_a_pool_that_cannot_be_allocated_ends_the_start(
    gpu: Gpu, on_gpu: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise FULL

    monkeypatch.setattr(assembly_runner, "make_cache", refuse)
    with pytest.raises(ValueError, match=r"to allocate 8 KV blocks .*; use a lower gpu_memory_utiliza.*smaller KV"):
        assembly_runner.make_runner(config(num_kv_blocks=8), on_gpu)


def test_weights_that_do_not_fit_end_the_start(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fill(*_: object) -> None:
        raise FULL

    monkeypatch.setattr(GroupLoader, "load", fill)
    with pytest.raises(ValueError, match=r"no memory left to load the weights \(CUDA out of memory\."):
        load(config())
    assert "Traceback" not in capfd.readouterr().err
