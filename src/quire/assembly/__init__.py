"""From an `EngineConfig` to a running engine: model, tokenizer, KV pool, runner, and the ranks that share them."""

from quire.assembly.engine import make_engine
from quire.assembly.model import LoadedModel, load, load_tokenizer
from quire.assembly.runner import make_namespace
from quire.assembly.start import start_engine, start_on_ranks

__all__ = ["LoadedModel", "load", "load_tokenizer", "make_engine", "make_namespace", "start_engine", "start_on_ranks"]
