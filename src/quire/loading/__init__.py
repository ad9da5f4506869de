"""Find a model's files, check them, and load them into memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quire.loading.errors import ModelLoadError
from quire.loading.source import ModelSource, find_model, resolve_model

if TYPE_CHECKING:
    from quire.loading.layer_loader import load_model

__all__ = ["ModelLoadError", "ModelSource", "find_model", "load_model", "resolve_model"]


def __getattr__(name: str) -> Any:
    if name == "load_model":  # imports the models, which finding one does not need
        from quire.loading.layer_loader import load_model

        return load_model
    raise AttributeError(f"module 'quire.loading' has no attribute {name!r}")
