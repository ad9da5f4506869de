"""Tiny models with a tokenizer, for offline work on stages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from checkpoints import make_checkpoint
from quire.text.tokenizer import Tokenizer

VOCAB = 512


def make_model(directory: Path, name: str = "llama", **overrides: Any) -> Path:
    """Make a checkpoint with a byte-level tokenizer."""
    make_checkpoint(name, directory, vocab_size=VOCAB, eos_token_id=256, **overrides)
    Tokenizer.byte_level(VOCAB).backend.save(str(directory / "tokenizer.json"))
    return directory


def random_texts(count: int, *, seed: int = 0, shortest: int = 3, longest: int = 24) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(shortest, longest + 1, (count,), generator=generator).tolist()
    return [torch.randint(3, 250, (length,), generator=generator).tolist() for length in lengths]
