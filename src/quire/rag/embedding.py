"""The embedder interface: texts in, unit vectors out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class EmbedderFacts:
    """The properties of an embedder that a collection records."""

    name: str  #: as requested
    dimension: int
    max_tokens: int  #: longest text, special tokens included; the rest is ignored
    fingerprint: str  #: digest of weights, tokenizer and limit; vectors are comparable if it is equal


@dataclass(frozen=True)
class Embeddings:
    """The vectors of some texts."""

    vectors: np.ndarray  #: float32 [n, dimension], each of length 1
    num_tokens: list[int]  #: per text, special and truncated tokens included
    is_truncated: list[bool]


#: A text, or its token ids with the special tokens that the embedder's tokenizer adds.
EmbedderInput = str | Sequence[int]


class Embedder(Protocol):
    """Texts to vectors whose inner product is their cosine."""

    @property
    def facts(self) -> EmbedderFacts: ...

    def embed(self, texts: Sequence[EmbedderInput], max_tokens: int | None = None) -> Embeddings:
        """Embed texts in order; each is cut to `max_tokens`, by default to the embedder's limit. Raises ValueError for
        invalid Unicode and for token ids of another tokenizer, WorkerError if the process ends."""
        ...
