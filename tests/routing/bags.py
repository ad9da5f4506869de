"""A test embedder that counts words: questions that share words are near each other."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

import numpy as np


class BagOfWords:
    """Hashed word counts; `num_texts` counts the embedded texts."""

    def __init__(self) -> None:
        self.num_texts = 0

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        self.num_texts += len(texts)
        vectors = np.zeros((len(texts), 512), np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            for word in re.findall(r"\w+", text.lower()):
                vector[zlib.crc32(word.encode()) % 512] += 1
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
