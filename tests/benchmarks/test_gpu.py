"""The GPU benchmark measures every part, here in Triton's interpreter."""

from __future__ import annotations

import pytest

pytest.importorskip("triton", reason="Triton is not installed; there are packages for Linux on x86-64")

from benchmarks import gpu
from quire import EngineConfig
from simulated_gpu import fake_graphs, simulated_gpu


@pytest.mark.slow
def test_every_part_is_measured_beside_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_LIMIT_SIZE", 16)
    monkeypatch.setattr(gpu, "_LIMIT_BYTES", 64)
    monkeypatch.setattr(gpu, "_STEPS", 4)
    config = EngineConfig(model="random:tiny", dtype="float32", use_tqdm=False, num_kv_blocks=64)
    settings = gpu.GpuSettings(running=(2,), context=(4,), prefill=(10,), swapped=(16,), runs=1)
    with simulated_gpu(monkeypatch), fake_graphs(monkeypatch) as graphs:
        figures, card = gpu.measure(config, settings)
    assert min(card.read_bytes_s, card.operations_s, card.link_bytes_s) > 0
    assert [(figure["part"], figure["way"]) for figure in figures] == [
        ("decode of 2 × 4", "CUDA graph"),
        ("decode of 2 × 4", "eager"),
        ("attention of 2 × 4", "ours"),
        ("attention of 2 × 4", "torch"),
        ("prompt of 10", "eager"),
        ("attention of a prompt of 10", "ours"),
        ("attention of a prompt of 10", "torch"),
        ("16 tokens again", "computed"),
        ("16 tokens again", "loaded, blocks"),
        ("16 tokens again", "saved, blocks"),
        ("16 tokens again", "loaded, layers"),
    ]
    assert all(figure["part_s"]["median"] > 0 < figure["limit_s"] for figure in figures)
    assert [graph.num_replays > 0 for graph in graphs] == [True] * 3, (
        "the engine's own profile, a decode, attention alone"
    )
