"""What a model is and costs, for people and programs, before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from quire.loading.source import ModelSource
from quire.models.model_config import DTYPE_BYTES, ModelConfigError


@dataclass(frozen=True)
class ModelInfo:
    """A model in numbers. Where it is not supported, only name, architecture and the reason are set."""

    name: str
    architecture: str
    unsupported_because: str | None = None  #: None: it is served
    num_parameters: int = 0
    dtype: str | None = None  #: that the config names
    weight_bytes: dict[str, int] | None = None  #: by dtype
    packed_head_bytes: dict[str, int] | None = None  #: by dtype: more on CPU, where the head is tied
    kv_bytes_per_token: dict[str, int] | None = None  #: by dtype
    context_length: int = 0
    num_layers: int = 0
    hidden_size: int = 0
    num_heads: int = 0
    num_kv_heads: int = 0
    head_dim: int = 0
    vocab_size: int = 0
    rope_type: str | None = None

    @property
    def is_supported(self) -> bool:
        return self.unsupported_because is None


def describe_model(source: ModelSource) -> ModelInfo:
    """What the source's config says; an unsupported or broken config is described, not raised."""
    names = source.hf_config.get("architectures") or [str(source.hf_config.get("model_type"))]
    try:
        config = source.config
    except ModelConfigError as error:
        return ModelInfo(source.name, ", ".join(map(str, names)), unsupported_because=str(error))
    return ModelInfo(
        name=source.name,
        architecture=config.architecture,
        num_parameters=config.num_parameters,
        dtype=config.dtype,
        weight_bytes={dtype: config.weight_bytes(dtype) for dtype in DTYPE_BYTES},
        packed_head_bytes={dtype: config.packed_head_bytes(dtype) for dtype in DTYPE_BYTES},
        kv_bytes_per_token={dtype: config.kv_bytes_per_token(dtype) for dtype in DTYPE_BYTES},
        context_length=config.context_length,
        num_layers=config.num_layers,
        hidden_size=config.hidden_size,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        vocab_size=config.vocab_size,
        rope_type=config.rope.rope_type if config.rope else None,
    )
