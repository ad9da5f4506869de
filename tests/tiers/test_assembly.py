"""From options to a swap tier, or to the reason against one."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from quire import assembly, memory_plan
from quire.assembly import runner as assembly_runner
from quire.config import EngineConfig
from quire.engine.engine import Engine
from quire.memory_plan import PoolPlan, plan_swap_slots
from quire.runner.model_runner import ModelRunner
from quire.tiers.disk_space import DiskSpace
from quire.tiers.swap_space import HostSpace

GIB = 1 << 30
MIB = 1 << 20


def slots(monkeypatch: pytest.MonkeyPatch, *, device: str = "cpu", free: int = 64 * GIB, **options: object) -> int:
    """Compute slots for blocks of 1 MiB, a pool of 2 GiB, and sequences of up to 256 blocks."""
    monkeypatch.setattr(memory_plan, "free_memory", lambda device: free)
    plan = PoolPlan(2048, 16, MIB, 4096)
    return plan_swap_slots(EngineConfig("m", **options), plan, device=device)  # type: ignore[arg-type]


def test_there_is_no_tier_on_a_cpu_unless_a_place_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert slots(monkeypatch) == 0
    assert slots(monkeypatch, swap_dir="/swap") == 4096
    assert slots(monkeypatch, swap_space="1GiB") == 1024
    assert slots(monkeypatch, swap_space="1GiB", swap_dir="/swap") == 1024
    assert slots(monkeypatch, swap_space=5 * MIB + 3) == 5
    assert slots(monkeypatch, swap_space=0) == 0


def test_a_gpu_swaps_to_its_host_unless_told_not_to(monkeypatch: pytest.MonkeyPatch) -> None:
    assert slots(monkeypatch, device="cuda") == 4096
    assert slots(monkeypatch, device="cuda", free=GIB) == 512
    assert slots(monkeypatch, device="cuda", swap_space=0) == 0


def test_the_default_is_no_more_than_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert slots(monkeypatch, swap_dir="/swap", max_num_seqs=2) == 2 * 256


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"swap_space": "4KiB"}, r"swap_space=4.0 KiB holds no block: one takes 1.0 MiB"),
        ({"swap_space": "63GiB"}, r"swap_space=63.00 GiB does not fit: 62.00 GiB of host memory are free"),
        ({"swap_space": "4"}, "swap_space=4 is 4 bytes; write its unit, too, such as 4GiB"),
        ({"kv_cache_memory": 16}, "kv_cache_memory=16 is 16 bytes; write its unit, too, such as 16GiB"),
        ({"swap_space": -1}, "swap_space=-1 must be at least 0"),
        ({"swap_space": "much"}, "'much' is not a size"),
        ({"swap_bandwidth": "100MB"}, "swap_bandwidth needs a swap tier; give swap_dir"),
        ({"swap_bandwidth": "100MB", "swap_space": 0}, "swap_bandwidth needs a swap tier"),
        ({"swap_bandwidth": 0, "swap_dir": "/swap"}, "swap_bandwidth=0 must be at least 1"),
        ({"swap_dir": "/swap", "swap_space": 0}, "leave one of them out"),
        ({"swap_dir": ""}, "swap_dir is empty"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        slots(monkeypatch, **options)  # type: ignore[arg-type]
    if "holds" not in message and "fit" not in message:
        with pytest.raises(ValueError, match=message):
            EngineConfig("m", device="cpu", **options)  # type: ignore[arg-type]


def test_every_option_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "RECOVERY_POLICY": "swap", "SWAP_SPACE": "2GiB", "SWAP_DIR": "/swap", "SWAP_BANDWIDTH": "200MB",
    }.items():  # fmt: skip
        monkeypatch.setenv(f"QUIRE_{name}", value)
    config = EngineConfig.from_env(model="m")
    assert (config.recovery_policy, config.swap_space, config.swap_dir) == ("swap", 2 * GIB, "/swap")
    assert config.swap_bandwidth == 200_000_000


def start(**options: object) -> Engine:
    return assembly.start_engine(
        EngineConfig("random:tiny", device="cpu", num_kv_blocks=32, use_tqdm=False, **options)  # type: ignore[arg-type]
    )


def test_an_engine_swaps_to_a_file_in_its_directory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="quire"):
        engine = start(swap_dir=str(tmp_path / "swap"), swap_space="1MiB", swap_bandwidth="50MiB")
    assert isinstance(engine.runner, ModelRunner)
    link = engine.runner.transfer_worker
    assert link is not None
    assert link.bandwidth == 50 * MIB
    assert isinstance(link._space, DiskSpace)
    assert engine.scheduler.config.num_swap_slots == link._space.num_slots == MIB // link._space.block_bytes
    assert str(tmp_path) in os.readlink(f"/proc/self/fd/{link._space._file.fd}")
    assert f"swap: up to {link._space.num_slots} blocks (1.0 MiB) in a file in {tmp_path}" in caplog.text
    assert "at most 50.0 MiB a second" in caplog.text


def test_an_engine_swaps_to_memory_or_not_at_all() -> None:
    engine = start(swap_space="1MiB")
    assert isinstance(engine.runner, ModelRunner)
    assert engine.runner.transfer_worker is not None
    assert isinstance(engine.runner.transfer_worker._space, HostSpace)
    assert engine.scheduler.config.block_bytes == engine.runner.transfer_worker._space.block_bytes
    engine = start()
    assert isinstance(engine.runner, ModelRunner)
    assert engine.runner.transfer_worker is None
    assert engine.scheduler.config.num_swap_slots == 0


def test_a_directory_that_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"swap_dir=.* cannot be used"):
        start(swap_dir=str(tmp_path / "file"), swap_space="1MiB")


def test_memory_that_the_host_does_not_give_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> HostSpace:
        raise OSError("can't allocate memory")

    monkeypatch.setattr(assembly_runner, "HostSpace", refuse)
    with pytest.raises(ValueError, match=r"1.0 MiB of host memory to swap to: can't allocate memory; lower swap_space"):
        start(swap_space="1MiB")


def test_the_pool_and_the_swap_tier_agree_on_what_a_block_is() -> None:
    engine = start(swap_space="1MiB")
    assert isinstance(engine.runner, ModelRunner)
    assert engine.scheduler.config.block_bytes == engine.runner.cache.blocks[0].nbytes
