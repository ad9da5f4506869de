"""From a ModelSource to a model that is ready to run."""

from __future__ import annotations

import logging
from dataclasses import replace

import torch

from quire.loading.checkpoint import (
    TensorEntry,
    are_equal,
    checkpoint_dtype,
    load_tensors,
    match_tensors,
    read_headers,
)
from quire.loading.errors import ModelLoadError
from quire.loading.progress import bytes_progress
from quire.loading.random_weights import fill_random
from quire.loading.source import ModelSource
from quire.models.base import CausalLM
from quire.models.model_config import DTYPE_BYTES, ModelConfig
from quire.models.registry import ARCHITECTURES, build_model

logger = logging.getLogger(__name__)

HEAD_NAME = "lm_head.weight"


def load_model(
    source: ModelSource,
    *,
    dtype: str = "auto",
    device: str = "cpu",
    load_format: str = "auto",
    seed: int = 0,
    use_tqdm: bool = True,
) -> CausalLM:
    """Build the model and fill it: from its files, or with random weights (a preset, or load_format="random").

    The model is in eval mode, without gradients, packed for this CPU where that helps. Peak memory: the weights, plus
    one layer while it is packed, plus some of a file that is being read.

    Args:
        dtype: float32, bfloat16, float16, or auto: the config's, else the files'.
        seed: of random weights.

    Raises:
        UnsupportedModelError, ModelConfigError: from the config.
        ModelLoadError: the files are not what the config describes.
    """
    config = source.config
    if load_format == "random" or source.path is None:
        if load_format == "safetensors":
            raise ModelLoadError(f"{source.name} is a preset without files; load_format must be auto or random")
        model = build_model(config, choose_dtype(dtype, config, None), device)
        with bytes_progress("Making random weights", model.weight_bytes(), use_tqdm) as advance:
            fill_random(model.checkpoint_tensors(), std=config.initializer_range, seed=seed, advance=advance)
    else:
        entries = read_headers(source.path)
        config = _resolve_head(config, entries)
        shapes = build_model(config, torch.float32, "meta")
        matched = match_tensors(
            entries,
            {name: tuple(view.shape) for name, view in shapes.checkpoint_tensors().items()},
            optional_prefix=shapes.optional_prefix,
            ignored=shapes.ignored_tensors,
        )
        model = build_model(config, choose_dtype(dtype, config, checkpoint_dtype(entries)), device)
        total = sum(entry.num_bytes for entry in matched.values())
        with bytes_progress("Loading weights", total, use_tqdm) as advance:
            load_tensors(matched, model.checkpoint_tensors(), advance)
    model.pack()  # frees each plain weight, so nothing may hold views of them any more
    return model


def _resolve_head(config: ModelConfig, entries: dict[str, TensorEntry]) -> ModelConfig:
    """Settle whether the head is tied, by the config and by what the files hold, as transformers 5 does.

    Where the config ties the head and the files hold it all the same, an equal one is dropped from `entries`, and one
    that differs is used.
    """
    head = entries.get(HEAD_NAME)
    if head is None or not config.tie_word_embeddings:
        return config
    model_class = ARCHITECTURES[config.architecture].model_class
    name = model_class.checkpoint_names["embed_tokens"] + ".weight"
    embedding = entries.get(name) or entries.get(name.removeprefix(model_class.optional_prefix))
    if embedding is None:
        entries[name] = head
    elif not are_equal(head, embedding):
        logger.warning(
            "%s: config.json ties the head to the embedding, but the files hold a head of its own, which is used; "
            "set tie_word_embeddings to false in config.json",
            head.file.parent,
        )
        return replace(config, tie_word_embeddings=False)
    del entries[HEAD_NAME]
    return config


def choose_dtype(dtype: str, config: ModelConfig, in_files: str | None) -> torch.dtype:
    """The dtype that a model is loaded in.

    Args:
        dtype: as asked for; auto is the config's, else that of the files, else float32.

    Raises:
        ValueError: Quire does not compute in it.
    """
    if dtype == "auto":
        dtype = config.dtype or in_files or "float32"
        if dtype not in DTYPE_BYTES:
            raise ValueError(
                f"config.json says that the weights are {dtype!r}, which Quire does not compute in; where they are "
                f"ordinary numbers, choose a dtype yourself: {', '.join(DTYPE_BYTES)}"
            )
    if dtype not in DTYPE_BYTES:
        raise ValueError(f"dtype {dtype!r} is not one of auto, {', '.join(DTYPE_BYTES)}")
    return getattr(torch, dtype)
