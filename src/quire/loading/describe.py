"""A model's shape and whether it is supported, before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from quire.loading.source import ModelSource
from quire.models.model_config import ModelConfig, ModelConfigError


@dataclass(frozen=True)
class ModelInfo:
    """A model's shape, or the reason why it is not supported."""

    name: str
    architecture: str
    config: ModelConfig | None
    unsupported_because: str | None = None


def describe_model(source: ModelSource) -> ModelInfo:
    """The shape that the source's config describes; an unsupported or broken config is told, not raised."""
    try:
        return ModelInfo(source.name, source.config.architecture, source.config)
    except ModelConfigError as error:
        names = source.hf_config.get("architectures") or [str(source.hf_config.get("model_type"))]
        return ModelInfo(source.name, ", ".join(map(str, names)), None, str(error))
