"""Small handwritten checkpoints for tests of digests."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from quire.loading.modules.fill import fill_random
from quire.loading.presets import preset_config
from quire.models.base import CausalLM
from quire.models.linear.layer import Linear
from quire.models.registry import build_model, read_model_config

_TINY = {"num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 24, "vocab_size": 257}


def pack(model: CausalLM) -> None:
    """Pack all linear layers, as loading does."""
    if model.config.tie_word_embeddings:
        model.embed_tokens.share_with(model.lm_head)
    for module in model.modules():
        if isinstance(module, Linear):
            module.pack()


def some_tensors() -> dict[str, Tensor]:
    """Return five tensors of several shapes and dtypes, two of the same shape."""
    numbers = torch.arange(96, dtype=torch.float32)
    return {
        "a.weight": numbers.view(8, 12) / 7,
        "b.weight": numbers.flip(0).view(8, 12) / 7,
        "b.bias": numbers[:12].bfloat16(),
        "norm": torch.ones(5, dtype=torch.float16),
        "empty": torch.empty(0, 4),
    }


def write_shards(directory: Path, shards: Sequence[Mapping[str, Tensor]], prefix: str = "model") -> Path:
    """Write a checkpoint of one or several files, dated a minute ago."""
    directory.mkdir(parents=True, exist_ok=True)
    if len(shards) == 1:
        save_file(dict(shards[0]), directory / "model.safetensors")
    else:
        names = [f"{prefix}-{i}.safetensors" for i in range(len(shards))]
        for name, tensors in zip(names, shards, strict=True):
            save_file(dict(tensors), directory / name)
        index = {tensor: name for name, tensors in zip(names, shards, strict=True) for tensor in tensors}
        (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    age(directory)
    return directory


def write_model(directory: Path, seed: int = 0, num_layers: int = 1) -> Path:
    """Write a one-layer Llama without a tokenizer, dated a minute ago."""
    values = preset_config("random:tiny") | _TINY | {"num_hidden_layers": num_layers}
    model = build_model(read_model_config(values), torch.float32, "cpu")
    views = model.checkpoint_tensors()
    fill_random(views, std=0.3, seed=seed)
    write_shards(directory, [{name: view.contiguous() for name, view in views.items()}])
    (directory / "config.json").write_text(json.dumps(values))
    return directory


def age(directory: Path, seconds: float = 60.0) -> None:
    """Date the weights back, beyond the age at which an unnoticed change is possible."""
    then = time.time_ns() - int(seconds * 1e9)
    for file in directory.glob("*.safetensors"):
        os.utime(file, ns=(then, then))
