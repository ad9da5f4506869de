"""Byte-level BPE tokenizers, trained on what the models will read."""

from __future__ import annotations

from random import Random

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from train.recipes import Recipe


def train_tokenizer(recipe: Recipe, *, seed: int) -> Tokenizer:
    """A byte-level BPE tokenizer over the texts of samples. The special tokens take the first ids, in their order."""
    rng = Random(f"tokenizer/{seed}")
    texts = (text for _ in range(recipe.tokenizer_samples) for text in recipe.source(rng, 1.0).texts())
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=recipe.config["vocab_size"],
        special_tokens=list(recipe.special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
