"""From a model's name to a model in memory: where its files are, whether they are sound, and their bytes."""

from quire.loading.errors import ModelLoadError
from quire.loading.load import load_model
from quire.loading.source import ModelSource, resolve_model

__all__ = ["ModelLoadError", "ModelSource", "load_model", "resolve_model"]
