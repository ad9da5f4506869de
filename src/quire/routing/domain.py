"""The policy `domain`: the model with the nearest few example queries, by cosine similarity (benchmarks/RESULTS.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from quire.routing.files import read_yaml, strings_of
from quire.routing.policy import NO_CONTEXT, Choice, RoutingContext, RoutingError

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
    """Read example queries by role, in the file's order. Raises RoutingError for an invalid file."""
    data = read_yaml(path)
    return {str(role): strings_of(examples, f"{path}: the examples of {role!r}") for role, examples in data.items()}


class DomainPolicy:
    """The `top_k` nearest examples count, or fewer. RoutingError without examples, or for a wrong shape."""

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

    def choose(self, question: str, context: RoutingContext = NO_CONTEXT) -> Choice:
        return self.choose_by_vector(self._embed([question])[0])

    def choose_by_vector(self, vector: np.ndarray) -> Choice:
        """Choose by a question's vector, float32 [dimension], which retrieval may have computed already."""
        scores: dict[str, float] = {}
        nearest: dict[str, str] = {}
        for role, vectors in self._vectors.items():
            cosines = vectors @ vector
            order = cosines.argsort()[::-1]
            scores[role] = float(cosines[order[: self._top_k]].mean())
            nearest[role] = self._examples[role][order[0]]
        role = max(scores, key=lambda each: scores[each])  # ties go to the first
        why = f"nearest to {role}'s examples, such as {nearest[role]!r}"
        return Choice(self._models[role], self.name, why, scores, role)

    def _embed(self, texts: Sequence[str]) -> np.ndarray:
        vectors = self._embedder.embed(texts)
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise RoutingError(f"the embedder returned an array of shape {vectors.shape} for {len(texts)} texts")
        return vectors
