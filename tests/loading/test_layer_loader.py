"""A model arrives layer by layer: the first stage is served before the rest is there, and the last is the original."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import xxhash
from safetensors.torch import load_file, save_file

from checkpoints import make_checkpoint
from quire.loading import load_model, resolve_model
from quire.loading.layer_loader import LayerLoader
from quire.loading.stage_manifest import LayerGroup, PackedFile, Stage, StageManifest
from quire.models.base import CausalLM
from quire.models.stages import PassLayer

GROUPS = ((0, 2), (1,))


def pack(directory: Path, groups: tuple[tuple[int, ...], ...] = GROUPS) -> StageManifest:
    """Cut a checkpoint of one file into one a group."""
    tensors = load_file(directory / "model.safetensors")
    (directory / "model.safetensors").unlink()
    index, files, layer_groups = {}, {}, []
    for number, group in enumerate(groups):
        name = f"model-{number + 1:05}-of-{len(groups):05}.safetensors"
        of_group = tuple(f".{layer}." for layer in group)
        mine = {
            key: tensor
            for key, tensor in tensors.items()
            if any(part in key for part in of_group) or (not number and ".layers." not in key)
        }
        save_file(mine, directory / name, metadata={"format": "pt"})
        data = (directory / name).read_bytes()
        files[name] = PackedFile(name, len(data), "", xxhash.xxh3_128_hexdigest(data))
        layer_groups.append(LayerGroup(name, group))
        index |= dict.fromkeys(mine, name)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    stages = [
        Stage(number, tuple(sorted(layer for group in groups[:number] for layer in group)))
        for number in range(1, len(groups) + 1)
    ]
    config = json.loads((directory / "config.json").read_text())
    return StageManifest(
        directory, config["architectures"][0], 3, "float32", "sha256:0", tuple(layer_groups), tuple(stages), files
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return make_checkpoint("llama", tmp_path)


def loader_of(directory: Path, **options: Any) -> LayerLoader:
    return LayerLoader(resolve_model(str(directory)), **options)


@torch.inference_mode()
def logits(model: CausalLM) -> torch.Tensor:
    """Of three tokens that attend to themselves alone."""
    ids = torch.tensor([5, 6, 7])

    def attend(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)

    return model.compute_logits(model(ids, torch.arange(3), attend))


def test_stages_arrive_one_after_the_other_and_the_last_is_the_original(directory: Path) -> None:
    expected = logits(load_model(resolve_model(str(directory)), use_tqdm=False))
    manifest = pack(directory)
    ready: list[int] = []
    with loader_of(directory, manifest=manifest) as loader:
        loader.on_stage = ready.append
        loader.start()
        loader.wait_stage(2)
        first, last = loader.stage(1), loader.stage(2)
        assert ready == [1, 2]
        assert isinstance(first.layers[1], PassLayer)
        assert first.layers[0] is last.layers[0] is loader.layer(0)
        loader.model.switch_to(first)
        assert not torch.equal(logits(loader.model), expected)
        loader.model.switch_to(last)
        assert torch.equal(logits(loader.model), expected)
        progress = loader.progress()
        assert progress.bytes_loaded == progress.bytes_total == manifest.stage_bytes(2)
