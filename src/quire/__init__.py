"""Quire, an LLM serving engine. What a user imports is here; `LLM` brings torch, so it is fetched when it is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quire.config import EngineConfig
from quire.sampling_params import BeamSearchParams, SamplingParams, StructuredOutputsParams
from quire.system.threads import spin_briefly

if TYPE_CHECKING:
    from quire.llm import LLM

spin_briefly()

__version__ = "0.1.0"
__all__ = ["LLM", "BeamSearchParams", "EngineConfig", "SamplingParams", "StructuredOutputsParams", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "LLM":
        from quire.llm import LLM

        return LLM
    raise AttributeError(f"module 'quire' has no attribute {name!r}")
