"""The size of the KV pool: as configured, or from free memory."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from quire import memory_plan
from quire.config import BlockWindow, EngineConfig
from quire.memory_plan import PoolPlan, check_room, plan_pool

BLOCK_BYTES = 1 << 20


def plan(monkeypatch: pytest.MonkeyPatch, *, free: int = 8 << 30, pinned: int = 0, **options: object) -> PoolPlan:
    monkeypatch.setattr(memory_plan, "free_memory", lambda device: free)
    config = EngineConfig("m", **options)  # type: ignore[arg-type]
    return plan_pool(
        config,
        block_bytes=BLOCK_BYTES,
        model_max_len=4096,
        weight_bytes=1 << 30,
        device="cpu",
        num_pinned_tokens=pinned,
    )


def test_num_kv_blocks_is_taken_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    assert plan(monkeypatch, num_kv_blocks=7).num_blocks == 7


def test_kv_cache_memory_is_filled_with_whole_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert plan(monkeypatch, kv_cache_memory=BLOCK_BYTES * 5 + 3).num_blocks == 5


def test_max_model_len_is_capped_to_what_the_pool_holds_beside_a_pinned_prefix(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="quire")
    assert plan(monkeypatch, num_kv_blocks=10, max_model_len=100).max_model_len == 100
    assert "capped" not in caplog.text
    assert plan(monkeypatch, num_kv_blocks=10, pinned=33).max_model_len == 8 * 16
    assert "capped" in caplog.text


def test_the_default_pool_takes_half_of_what_is_free_and_no_more_than_can_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert plan(monkeypatch, free=3 << 30).num_blocks * BLOCK_BYTES <= (3 << 30) // 2
    assert plan(monkeypatch, free=1 << 50, max_num_seqs=2, max_model_len=64).num_blocks == 2 * 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"free": 1 << 20}, "no room for a KV pool"),
        ({"kv_cache_memory": 1024}, "holds no block"),
        ({"num_kv_blocks": 1 << 20}, "does not fit"),
        ({"max_model_len": 5000}, "more than the model's 4096 positions"),
        ({"num_kv_blocks": 2, "pinned": 64}, "blocks pinned"),
    ],
)
def test_what_cannot_be_is_refused_with_a_way_out(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        plan(monkeypatch, **options)  # type: ignore[arg-type]


def on_gpu(monkeypatch: pytest.MonkeyPatch, free: int, total: int, **options: Any) -> PoolPlan:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free << 20, total << 20))
    sizes: dict[str, Any] = {"block_bytes": BLOCK_BYTES, "weight_bytes": 1000 << 20, "step_bytes": 100 << 20}
    arguments = {name: options.pop(name) for name in ("memory_share", "bytes_to_come") if name in options}
    config = EngineConfig("m", max_num_seqs=1 << 20, **options)
    return plan_pool(config, model_max_len=4096, device="cuda", **sizes, **arguments)


def test_a_gpus_pool_takes_what_weights_and_a_step_leave_of_the_engines_share(monkeypatch: pytest.MonkeyPatch) -> None:
    assert on_gpu(monkeypatch, 8900, 10_000).num_blocks == 9000 - 1000 - 100
    assert on_gpu(monkeypatch, 8900, 10_000, gpu_memory_utilization=0.4).num_blocks == 4000 - 1000 - 100
    assert on_gpu(monkeypatch, 8900, 10_000, gpu_memory_utilization=1.0).num_blocks == 8900 - 100
    assert on_gpu(monkeypatch, 2100, 10_000).num_blocks == 2000, "another engine has the rest"
    assert on_gpu(monkeypatch, 8900, 10_000, memory_share=0.5).num_blocks == (9000 - 1000 - 100) // 2
    assert on_gpu(monkeypatch, 8900, 10_000, bytes_to_come=8000 << 20).num_blocks == 900 - 100
    assert on_gpu(monkeypatch, 8900, 10_000, gpu_memory_utilization=0.01, num_kv_blocks=50).num_blocks == 50


@pytest.mark.parametrize("share", [0.0, 1.5, -1.0])
def test_a_share_of_a_gpu_is_more_than_none_and_at_most_all(share: float) -> None:
    with pytest.raises(ValueError, match=r"gpu_memory_utilization=.* must be at most 1 and above 0"):
        EngineConfig("m", gpu_memory_utilization=share)


def test_an_engines_share_that_is_too_small_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"allows 50\.0 MiB on cuda beside the weights.*raise gpu_memory_utilization"):
        on_gpu(monkeypatch, 8900, 10_000, gpu_memory_utilization=0.105)
    with pytest.raises(ValueError, match=r"40\.0 MiB are free on cuda beside the weights.*set kv_cache_memory"):
        on_gpu(monkeypatch, 40, 10_000)

    def check(**options: Any) -> None:
        check_room(
            EngineConfig("m", **options), "big", "cuda", dtype="bfloat16", weight_bytes=6 << 30, block_bytes=BLOCK_BYTES
        )

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (9 << 30, 10 << 30))
    check()
    check(gpu_memory_utilization=0.5, num_kv_blocks=8)
    with pytest.raises(ValueError, match=r"utilization allows 5\.00 GiB on cuda;.* a smaller model or free"):
        check(gpu_memory_utilization=0.5)


def test_large_models_take_smaller_steps_on_a_cpu_unless_somebody_says_how_large() -> None:
    plain = EngineConfig("random:tiny")
    assert [plain.tokens_per_step(n * 10**8, "cpu") for n in (5, 20, 30, 70)] == [2048, 2048, 1280, 512]
    assert plain.tokens_per_step(7 * 10**9, "cuda") == 2048
    assert plain.tokens_beside_streams == 512
    said = EngineConfig("random:tiny", max_num_batched_tokens=4096)
    assert (said.tokens_per_step(7 * 10**9, "cpu"), said.tokens_beside_streams) == (4096, None)
    assert EngineConfig("random:tiny", target_itl=50.0).tokens_beside_streams is None


def test_a_model_that_does_not_fit_is_refused_before_loading_with_figures_and_remedies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory_plan, "free_memory", lambda device: 13 << 30)

    def check(device: str = "cpu", **options: object) -> None:
        config = EngineConfig("m", **options)  # type: ignore[arg-type]
        check_room(config, "big", device, dtype="float32", weight_bytes=12 << 30, block_bytes=BLOCK_BYTES)

    check()
    with pytest.raises(ValueError, match=r"in float32 take 12.00 GiB and its KV pool at least 2.00 GiB, and 13.00 GiB"):
        check(kv_cache_memory=2 << 30)
    for device in ("cpu", "cuda"):
        ways = "use dtype bfloat16, quantization int8 or int4, a smaller KV pool, a smaller"
        with pytest.raises(ValueError, match=ways):
            check(device, num_kv_blocks=2 << 10)
    check(kv_cache_memory=2 << 30, check_memory=False)


def test_with_windows_the_pool_allows_longer_sequences_than_it_has_whole_blocks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="quire")
    monkeypatch.setattr(memory_plan, "free_memory", lambda device: 8 << 30)
    window = BlockWindow(tokens=64, thin=BlockWindow.WHOLE // 4, num_whole=9)
    sizes: dict[str, Any] = {"block_bytes": BLOCK_BYTES, "weight_bytes": 1 << 30, "device": "cpu", "window": window}
    planned = plan_pool(EngineConfig("m", num_kv_blocks=20), model_max_len=4096, **sizes)
    assert planned.max_model_len == (9 + 11 * 4) * 16 == planned.longest(0)
    assert window.room(9 + 11 * 4) == 20
    assert planned.num_ids == 80
    assert "16.0 KiB behind the window of 64" in caplog.text
    assert plan_pool(EngineConfig("m"), model_max_len=9 * 16, **sizes).window is None, "no sequence leaves a window"
    room_of_four = plan_pool(EngineConfig("m", max_num_seqs=4), model_max_len=4096, **sizes)
    assert room_of_four.num_blocks == 4 * window.room(4096 // 16)
