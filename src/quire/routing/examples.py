"""The policies `query` and `domain`: the role whose examples a question resembles most, in meaning and form."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from quire.routing.classifier import Classifier, QueryEmbedder, embed_all, learn, read_weights
from quire.routing.forms import shorten
from quire.routing.policy import NO_CONTEXT, Choice, RoutingContext, RoutingError

if TYPE_CHECKING:
    import numpy as np

QUERY, DOMAIN = "query", "domain"
SMALL, LARGE = "small", "large"  #: roles of `query`
_NUM_REASONS = 3  #: in the explanation


class ExamplesPolicy:
    """Choose the role with the highest log odds, learned from the `examples` file (YAML, texts by role) or shipped.
    `threshold` raises the odds that the role `large` needs. RoutingError for roles without examples."""

    def __init__(
        self,
        name: str,
        models: Mapping[str, str],
        embedder: QueryEmbedder | None,
        examples: Path | None = None,
        threshold: float = 0.0,
    ) -> None:
        if name == QUERY and set(models) != {SMALL, LARGE}:
            raise RoutingError(
                f"the policy query takes two models, by their roles: small=NAME,large=NAME; got {', '.join(models)}"
            )
        if embedder is None:
            raise RoutingError(f"the policy {name} needs an embedder; name one")
        self.name = name
        self._models = dict(models)
        self._embedder = embedder
        self._threshold = threshold
        self._classifier = self._find_classifier(examples)

    def _find_classifier(self, examples: Path | None) -> Classifier:
        if examples is not None:
            return learn(examples, self._models, self._embedder)
        found = read_weights(Path(__file__).parent / "weights" / f"{self.name}.json", self._embedder)
        if unknown := [role for role in self._models if role not in found.roles]:
            raise RoutingError(
                f"the policy {self.name} has no examples for {unknown[0]!r}, only for {', '.join(found.roles)}; give a "
                f"file of example texts by role: {self.name}: {{examples: FILE}}"
            )
        return found

    def choose(self, question: str, context: RoutingContext = NO_CONTEXT) -> Choice:
        return self.choose_by_vector(question, embed_all(self._embedder, [shorten(question)])[0])

    def choose_by_vector(self, question: str, vector: np.ndarray) -> Choice:
        """Choose by a question and its vector, float32 [dimension], which retrieval may have computed already."""
        terms = self._classifier.terms(question, vector)
        scores = {role: sum(terms[role].values()) for role in self._models}
        if self._threshold:
            scores = {role: score - self._threshold * (1 if role == LARGE else -1) for role, score in scores.items()}
        role = max(scores, key=lambda each: scores[each])  # ties go to the first
        reasons = sorted(terms[role].items(), key=lambda item: -abs(item[1]))
        named = [f"{name!r} {value:+.2f}" for name, value in reasons if name != "bias" and value > 0]
        why = f"{role}, by {', '.join(named[:_NUM_REASONS]) or 'its bias'}"
        numbers = {f"log odds of {each}": score for each, score in scores.items()} | dict(reasons)
        return Choice(self._models[role], self.name, why, numbers, role)
