"""What passes between an embedder and whoever asks it: texts, vectors, and facts about both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True)
class EmbedderFacts:
    """What a collection must know of the embedder that made its vectors."""

    name: str  #: as it was asked for
    dimension: int
    max_tokens: int  #: of a text, with the special ones; what is beyond them is not seen
    fingerprint: str  #: of weights, tokenizer and limit: vectors of equal ones can be compared


@dataclass(frozen=True)
class Embeddings:
    """The vectors of some texts."""

    vectors: np.ndarray  #: float32 [n, dimension], each of length 1
    num_tokens: list[int]  #: of each text, the special ones and those that were cut off with it
    is_truncated: list[bool]


class Embedder(Protocol):
    """Texts to vectors whose inner product is their cosine."""

    @property
    def facts(self) -> EmbedderFacts: ...

    def embed(self, texts: Sequence[str]) -> Embeddings:
        """The vectors, in the order of the texts.

        Raises:
            ValueError: a text is not valid Unicode.
            ChildError: the embedder's process ended; it is started again by the next call.
        """
        ...
