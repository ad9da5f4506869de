"""The models that read chunks: how each counts their tokens, and how many of them it takes. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence

from quire.loading.source import resolve_model
from quire.models.model_config import ConfigReader
from quire.rag.embedder import EmbedderSource, TokenCounter, token_counter
from quire.text.tokenizer import Tokenizer


def chunk_limit(models: Sequence[str]) -> int | None:
    """The longest chunk that leaves each of these models half of its context for the question and the answer; None
    without models.

    Raises:
        ModelLoadError: there is no such model.
    """
    contexts = []
    for model in models:
        config = ConfigReader(resolve_model(model, load_format="random").hf_config)
        contexts.append(config.integer("max_position_embeddings", config.get("n_positions", config.get("n_ctx"))))
    return min(contexts) // 2 if contexts else None


def counters(embedder: EmbedderSource, models: Sequence[str]) -> list[TokenCounter]:
    """The tokenizers that a chunk has to fit: the embedder's, with its special tokens, and those of the models, which
    join chunks with other text.

    Raises:
        ValueError: a model or its tokenizer cannot be read.
    """
    found = [embedder.token_counter()]
    for model in models:
        source = resolve_model(model, load_format="random")  # its small files alone
        if source.path is None:
            tokenizer = Tokenizer.byte_level(ConfigReader(source.hf_config).integer("vocab_size"))
        else:
            tokenizer = Tokenizer.from_dir(source.path)
        found.append(TokenCounter(token_counter(tokenizer).spans))
    return found
