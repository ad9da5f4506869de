"""Quire, an LLM serving engine. What a user imports is here; each name is fetched when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from quire.system.threads import spin_briefly

if TYPE_CHECKING:
    from quire.config import EngineConfig
    from quire.llm import LLM
    from quire.sampling_params import BeamSearchParams, SamplingParams, StructuredOutputsParams

spin_briefly()

__version__ = "0.1.0"
__all__ = ["LLM", "BeamSearchParams", "EngineConfig", "SamplingParams", "StructuredOutputsParams", "__version__"]
_MODULES = {"EngineConfig": "config", "LLM": "llm"}  #: of the names that are not in `sampling_params`


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'quire' has no attribute {name!r}")
    return getattr(import_module(f"quire.{_MODULES.get(name, 'sampling_params')}"), name)
