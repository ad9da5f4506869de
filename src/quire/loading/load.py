"""Load a whole model in one call."""

from __future__ import annotations

from quire.loading.layer_loader import LayerLoader
from quire.loading.progress import bytes_progress
from quire.loading.source import ModelSource
from quire.models.base import CausalLM
from quire.models.parallel import ALONE, ParallelGroup


def load_model(
    source: ModelSource,
    *,
    dtype: str = "auto",
    device: str = "cpu",
    quantization: str = "none",
    load_format: str = "auto",
    seed: int = 0,
    use_tqdm: bool = True,
    group: ParallelGroup = ALONE,
) -> CausalLM:
    """Load a model in eval mode, packed for this CPU where that helps. Arguments and errors: see `LayerLoader`."""
    with LayerLoader(
        source, dtype=dtype, device=device, quantization=quantization, load_format=load_format, seed=seed, group=group
    ) as loader:
        wait_with_progress(loader, loader.last_stage, use_tqdm)
    return loader.model


def wait_with_progress(loader: LayerLoader, stage: int, use_tqdm: bool) -> None:
    """Start a loader and wait for a stage; raises as `LayerLoader.wait_stage`."""
    what = "Making random weights" if loader.is_random else "Loading weights"
    with bytes_progress(what, loader.bytes_until(stage), use_tqdm) as advance:
        loader.on_bytes = advance
        loader.start()
        try:
            loader.wait_stage(stage)
        finally:
            loader.on_bytes = None
