"""Limits that the models reading the chunks impose: their tokenizers and context lengths."""

from __future__ import annotations

from collections.abc import Sequence

from quire.loading.source import resolve_model
from quire.models.model_config import ConfigReader
from quire.rag.embedder import EmbedderSource, TokenCounter, token_counter
from quire.text.tokenizer import Tokenizer


def chunk_limit(models: Sequence[str]) -> int | None:
    """Return half of the smallest context, so that question and answer fit beside a chunk; None without models."""
    contexts = []
    for model in models:
        config = ConfigReader(resolve_model(model, load_format="random").hf_config)
        contexts.append(config.integer("max_position_embeddings", config.get("n_positions", config.get("n_ctx"))))
    return min(contexts) // 2 if contexts else None


def counters(embedder: EmbedderSource, models: Sequence[str]) -> list[TokenCounter]:
    """Return the tokenizers that limit a chunk: the embedder's with its special tokens, and each model's without."""
    found = [embedder.token_counter()]
    for model in models:
        source = resolve_model(model, load_format="random")  # reads the config files only
        if source.path is None:
            tokenizer = Tokenizer.byte_level(ConfigReader(source.hf_config).integer("vocab_size"))
        else:
            tokenizer = Tokenizer.from_dir(source.path)
        found.append(TokenCounter(token_counter(tokenizer).spans))
    return found
