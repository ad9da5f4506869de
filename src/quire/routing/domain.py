"""The policy `domain`: a question goes to the model whose example queries it is nearest, by cosine similarity.

Of each model the mean over its nearest examples counts. One example alone is at the mercy of a shared name, and the
mean of all blurs a model that has several kinds of queries (docs say what was measured).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from quire.routing.files import read_yaml, strings_of
from quire.routing.policy import NOTHING_KNOWN, Choice, RoutingContext, RoutingError

if TYPE_CHECKING:
    import numpy as np

DEFAULT_EXAMPLES = Path(__file__).with_name("domain_examples.yaml")
DEFAULT_TOP_K = 8


class QueryEmbedder(Protocol):
    """Texts to vectors whose inner product is their cosine."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """float32 [len(texts), dimension], each row of length 1."""
        ...


def read_examples(path: Path = DEFAULT_EXAMPLES) -> dict[str, list[str]]:
    """Example queries by role, in the file's order.

    Raises:
        RoutingError: the file cannot be read, or a role has no examples.
    """
    data = read_yaml(path)
    return {str(role): strings_of(examples, f"{path}: the examples of {role!r}") for role, examples in data.items()}


class DomainPolicy:
    """Compares a question with the examples of each model.

    Args:
        models: served names by role.
        examples: queries by role; those of roles without a model are left out.
        embedder: makes the vectors; the examples' are made here, once.
        top_k: how many of a model's nearest examples count; fewer where it has fewer, so that none is favoured.

    Raises:
        RoutingError: a model has no examples, or the embedder's vectors do not fit.
    """

    name = "domain"

    def __init__(
        self,
        models: Mapping[str, str],
        examples: Mapping[str, Sequence[str]],
        embedder: QueryEmbedder,
        top_k: int = DEFAULT_TOP_K,
    ) -> None:
        for role in models:
            if not examples.get(role):
                known = ", ".join(examples) or "none"
                raise RoutingError(f"the policy domain has no examples for {role!r}; there are some for {known}")
        if top_k < 1:
            raise RoutingError(f"top_k must be at least 1, got {top_k}")
        self._models = dict(models)
        self._embedder = embedder
        self._top_k = min(top_k, *(len(examples[role]) for role in models))
        self._examples = {role: list(examples[role]) for role in models}
        self._vectors = {role: self._embed(texts) for role, texts in self._examples.items()}

    def choose(self, question: str, context: RoutingContext = NOTHING_KNOWN) -> Choice:
        return self.choose_by_vector(self._embed([question])[0])

    def choose_by_vector(self, vector: np.ndarray) -> Choice:
        """The model for a question whose vector is there already: retrieval has made it. float32 [dimension]"""
        scores: dict[str, float] = {}
        nearest: dict[str, str] = {}
        for role, vectors in self._vectors.items():
            cosines = vectors @ vector
            order = cosines.argsort()[::-1]
            scores[role] = float(cosines[order[: self._top_k]].mean())
            nearest[role] = self._examples[role][order[0]]
        role = max(scores, key=lambda each: scores[each])  # the first named one of equals
        why = f"nearest to {role}'s examples, such as {nearest[role]!r}"
        return Choice(self._models[role], self.name, why, scores, role)

    def _embed(self, texts: Sequence[str]) -> np.ndarray:
        vectors = self._embedder.embed(texts)
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise RoutingError(f"the embedder made an array of shape {vectors.shape} of {len(texts)} texts")
        return vectors
