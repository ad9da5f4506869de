"""Check the files of adapters with the reader that serves them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from quire.loading.stage_manifest import ADAPTER_FILES, PackedFile
from quire.models.adapter import read_adapter
from quire.models.tensor_file import read_tensors, wrong_file
from quire.progressive.packs.group_file import TensorOrder

_PEFT_PREFIX = "base_model.model."


def check_adapter(directory: Path, order: TensorOrder, layers: Sequence[int]) -> None:
    """Raise ValueError, which names the file, unless a PEFT directory holds a servable adapter for these layers."""
    read_adapter(directory, order.model, dtype=order.model.dtype, device="cpu", digest="")
    weights = directory / ADAPTER_FILES[0]
    for name in read_tensors(weights):
        if (layer := order.layer_of(name.removeprefix(_PEFT_PREFIX))) not in layers:
            raise wrong_file(
                weights, f"is for layer {layer}, which is not in place at this stage; that has {list(layers)}"
            )


def adapter_digest(files: Sequence[PackedFile]) -> str:
    """Digest of an adapter, from those of its files in the order of `ADAPTER_FILES`."""
    return hashlib.sha256("".join(file.sha256 for file in files).encode()).hexdigest()
