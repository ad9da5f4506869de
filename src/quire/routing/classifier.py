"""A classifier of texts by role, learned from examples: a logistic regression over a text's meaning (its embedding) and
form (`forms.py`). `python -m train.routing` writes the weights that ship with Quire."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from quire.routing.files import read_yaml, strings_of
from quire.routing.forms import common_words, forms_of, repeated_forms, shorten
from quire.routing.policy import RoutingError

if TYPE_CHECKING:
    import numpy as np

_PENALTY = 0.1  #: of the squared weights
_MEANING = "meaning"
_PROBE = "How does the tide turn?"  #: its vector tells embedders apart
_PROBE_TOLERANCE = 0.02


#: Texts to vectors whose inner product is their cosine: float32 [len(texts), dimension], each row of length 1.
QueryEmbedder: TypeAlias = "Callable[[Sequence[str]], np.ndarray]"


@dataclass(frozen=True)
class Classifier:
    """Linear models, one per role against all others; of two roles one model, for the second role."""

    roles: tuple[str, ...]
    common: Collection[str]  #: words that are not masked in forms
    forms: Mapping[str, np.ndarray]  #: float [models] by form
    meaning: np.ndarray  #: float [models, dimension]
    bias: np.ndarray  #: float [models]

    def terms(self, text: str, vector: np.ndarray) -> dict[str, dict[str, float]]:
        """Return the contributions to each role's log odds, by form, with `meaning` and `bias`."""
        import numpy as np

        weights = {form: weight for form, weight in forms_of(shorten(text), self.common).items() if form in self.forms}
        norm = max(1e-9, sum(weight * weight for weight in weights.values()) ** 0.5)
        found = {form: self.forms[form] * (weight / norm) for form, weight in weights.items()}
        found |= {_MEANING: self.meaning @ vector, "bias": self.bias}
        if len(self.roles) == 2:
            found = {name: np.concatenate([-value, value]) for name, value in found.items()}
        return {role: {name: float(value[at]) for name, value in found.items()} for at, role in enumerate(self.roles)}


def fit(examples: Mapping[str, Sequence[str]], vectors: np.ndarray, form_weight: float = 1.0) -> Classifier:
    """Fit a classifier to examples by role; all roles count the same. `vectors`, float [number of examples, dimension],
    are in the same order; `form_weight` weighs the form's cosine against the meaning's. RoutingError for fewer than two
    roles."""
    import numpy as np

    roles, texts = tuple(examples), [shorten(text) for group in examples.values() for text in group]
    if len(roles) < 2:
        raise RoutingError(f"a choice needs examples of two roles or more, got {', '.join(roles) or 'none'}")
    common = common_words(texts)
    index = {form: at for at, form in enumerate(repeated_forms(texts, common))}
    rows = np.zeros((len(texts), len(index)))
    for row, text in zip(rows, texts, strict=True):
        for form, weight in forms_of(text, common).items():
            if form in index:
                row[index[form]] = weight
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    similarity = vectors @ vectors.T + form_weight * rows @ rows.T
    labels = np.repeat(np.arange(len(roles)), [len(examples[role]) for role in roles])
    solved = [_solve(similarity, labels == at) for at in ([1] if len(roles) == 2 else range(len(roles)))]
    alphas = np.stack([alpha for alpha, _ in solved])
    weights = form_weight * alphas @ rows
    return Classifier(
        roles,
        common,
        dict(zip(index, weights.T, strict=True)),
        alphas @ vectors,
        np.array([bias for _, bias in solved]),
    )


def _solve(similarity: np.ndarray, is_positive: np.ndarray) -> tuple[np.ndarray, float]:
    """Fit a kernel logistic regression by Newton's method. Returns a weight per example [n], and the bias."""
    import numpy as np

    share = is_positive.mean()
    counts = np.where(is_positive, 0.5 / share, 0.5 / (1 - share))
    alpha, bias = np.zeros(len(is_positive)), 0.0
    for _ in range(50):
        odds = np.clip(similarity @ alpha + bias, -30, 30)
        chance = 1 / (1 + np.exp(-odds))
        curvature = np.maximum(counts * chance * (1 - chance), 1e-6)
        target = odds - counts * (chance - is_positive) / curvature
        solved = np.linalg.solve(
            similarity + np.diag(_PENALTY / curvature), np.stack([target, np.ones(len(target))], axis=1)
        )
        new_bias = float(solved[:, 0].sum() / solved[:, 1].sum())
        new_alpha = solved[:, 0] - new_bias * solved[:, 1]
        step = max(float(np.abs(new_alpha - alpha).max()), abs(new_bias - bias))
        alpha, bias = new_alpha, new_bias
        if step < 1e-6:
            break
    return alpha, bias


def learn(path: Path, roles: Collection[str], embedder: QueryEmbedder) -> Classifier:
    """Fit a classifier to a YAML file of example texts by role. Raises RoutingError."""
    import numpy as np

    data = read_yaml(path)
    if missing := [role for role in roles if role not in data]:
        raise RoutingError(f"{path} has no examples for {missing[0]!r}; it has some for {', '.join(map(str, data))}")
    examples = {role: strings_of(data[role], f"{path}: the examples of {role!r}") for role in roles}
    vectors = [embed_all(embedder, [shorten(text) for text in texts]) for texts in examples.values()]
    return fit(examples, np.concatenate(vectors))


def embed_all(embedder: QueryEmbedder, texts: Sequence[str]) -> np.ndarray:
    vectors = embedder(texts)
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise RoutingError(f"the embedder returned an array of shape {vectors.shape} for {len(texts)} texts")
    return vectors


def write_weights(path: Path, classifier: Classifier, embedder: QueryEmbedder) -> None:
    """Write a classifier as JSON, with a vector that tells its embedder from others."""
    data = {
        "roles": classifier.roles,
        "probe": _rounded(embed_all(embedder, [_PROBE])[0]),
        "bias": _rounded(classifier.bias),
        "meaning": [_rounded(row) for row in classifier.meaning],
        "common": sorted(classifier.common),
        "forms": {form: _rounded(weights) for form, weights in classifier.forms.items()},
    }
    path.write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


def read_weights(path: Path, embedder: QueryEmbedder) -> Classifier:
    """Read a classifier that `write_weights` has written. Raises RoutingError for another embedder."""
    import numpy as np

    data = json.loads(path.read_text(encoding="utf-8"))
    vector, probe = embed_all(embedder, [_PROBE])[0], np.array(data["probe"])
    if vector.shape != probe.shape or float(np.abs(vector - probe).max()) > _PROBE_TOLERANCE:
        raise RoutingError(
            f"the shipped classifier {path.stem} is for the embedder all-MiniLM-L6-v2; with another one name a file of "
            f"example texts by role ({', '.join(data['roles'])}): {path.stem}: {{examples: FILE}}"
        )
    forms = {form: np.array(weights) for form, weights in data["forms"].items()}
    return Classifier(
        tuple(data["roles"]), frozenset(data["common"]), forms, np.array(data["meaning"]), np.array(data["bias"])
    )


def _rounded(values: np.ndarray) -> list[float]:
    return [round(float(value), 3) for value in values]
