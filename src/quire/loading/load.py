"""From a ModelSource to a model that is ready to run."""

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
    """Build the model and fill it: from its files, or with random weights (a preset, or load_format="random").

    The model is in eval mode, without gradients, packed for this CPU where that helps. Peak memory: the weights, plus
    one layer while it is filled and packed, plus what is read ahead of it.

    Args:
        dtype: float32, bfloat16, float16, or auto: the config's, else the files'.
        quantization: none, int8 or int4, of linear layers.
        seed: of random weights.
        group: of the ranks that hold the model together; all of them call this at the same time.

    Raises:
        UnsupportedModelError, ModelConfigError: from the config.
        ModelLoadError: the files are not what the config describes.
    """
    with LayerLoader(
        source,
        dtype=dtype,
        device=device,
        quantization=quantization,
        load_format=load_format,
        seed=seed,
        group=group,
    ) as loader:
        wait_with_progress(loader, loader.last_stage, use_tqdm)
    return loader.model


def wait_with_progress(loader: LayerLoader, stage: int, use_tqdm: bool) -> None:
    """Start a loader, and return when a stage can be served; raises as `LayerLoader.wait_stage`."""
    what = "Making random weights" if loader.is_random else "Loading weights"
    with bytes_progress(what, loader.bytes_until(stage), use_tqdm) as advance:
        loader.on_bytes = advance
        loader.start()
        try:
            loader.wait_stage(stage)
        finally:
            loader.on_bytes = None
