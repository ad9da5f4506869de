"""A logistic regression over the forms of `query_policy.yaml`: Newton's method, since it has some eighty weights."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.routing_accuracy import LabelledQuestion
from quire.routing.query import MEASURES, QueryScoring

#: How strongly weights are held to zero. Measures more: length and names tell one set of questions from another
#: rather than simple from complex.
FORM_PENALTY, MEASURE_PENALTY = 0.2, 0.8


def read_own(path: Path) -> list[LabelledQuestion]:
    """Questions as lines of label, tab, question."""
    lines = (line.partition("\t") for line in path.read_text().splitlines() if line)
    return [LabelledQuestion(question, label) for label, _, question in lines]


def set_aside(questions: Sequence[LabelledQuestion]) -> tuple[list[LabelledQuestion], list[LabelledQuestion]]:
    """What is worked with, and a quarter of each label that is looked at once; by a hash, so always the same."""
    by_label = defaultdict(list)
    for each in questions:
        by_label[each.label].append(each)
    kept, aside = [], []
    for group in by_label.values():
        group.sort(key=lambda each: hashlib.sha256(each.question.encode()).hexdigest())
        aside += group[: len(group) // 4]
        kept += group[len(group) // 4 :]
    return kept, aside


class Table:
    """Questions as rows of features.

    Args:
        scoring: its forms and measures are the features.
        questions: n of them.
    """

    def __init__(self, scoring: QueryScoring, questions: Sequence[LabelledQuestion]) -> None:
        self.names = [form.name for form in scoring.forms] + list(MEASURES)
        rows = [scoring.values(each.question) for each in questions]
        # [n, features + 1], the last column is the bias's
        self.features = np.array([[row[name] for name in self.names] + [1.0] for row in rows])
        self.is_complex = np.array([each.label == "complex" for each in questions], float)  # [n]


def fit(features: np.ndarray, is_complex: np.ndarray, form_penalty: float = FORM_PENALTY) -> np.ndarray:
    """Weights and bias [features + 1] of the penalised maximum likelihood, both classes counting the same."""
    share = is_complex.mean()
    counts = np.where(is_complex == 1, 0.5 / share, 0.5 / (1 - share))
    penalty = np.full(features.shape[1], form_penalty)
    penalty[-1 - len(MEASURES) : -1] = form_penalty * MEASURE_PENALTY / FORM_PENALTY
    penalty[-1] = 1e-3
    weights = np.zeros(features.shape[1])
    for _ in range(50):
        chance = 1 / (1 + np.exp(-features @ weights))
        slope = features.T @ (counts * (chance - is_complex)) + penalty * weights
        curvature = (features * (counts * chance * (1 - chance))[:, None]).T @ features + np.diag(penalty)
        step = np.linalg.solve(curvature, slope)
        weights -= step
        if np.abs(step).max() < 1e-9:
            break
    return weights


def cross_validate(data: Table, always: Table, form_penalty: float, repeats: int = 5, folds: int = 5) -> np.ndarray:
    """Scores [repeats, n] of each question by weights that were fitted without it; `always` is in every fit."""
    random = np.random.default_rng(0)
    scores = np.zeros((repeats, len(data.is_complex)))
    for row in scores:
        fold = random.permutation(len(row)) % folds
        for each in range(folds):
            used = fold != each
            weights = fit(
                np.vstack([data.features[used], always.features]),
                np.concatenate([data.is_complex[used], always.is_complex]),
                form_penalty,
            )
            row[~used] = data.features[~used] @ weights
    return scores


def write_weights(path: Path, names: Sequence[str], weights: np.ndarray) -> None:
    """Put weights and bias into the file, whose other lines stay as they are."""
    text = path.read_text()
    for name, weight in zip([*names, "bias"], weights, strict=True):
        if name in MEASURES or name == "bias":
            pattern = rf"(?m)^((?:  )?{re.escape(name)}: )-?[\d.]+$"
        else:
            pattern = rf'(?m)^(- name: "?{re.escape(name)}"?\n  weight: )-?[\d.]+$'
        text, count = re.subn(pattern, lambda found, value=weight: f"{found[1]}{round(value, 2) + 0.0}", text)
        if count != 1:
            raise ValueError(f"{path}: the weight of {name!r} stands there {count} times")
    path.write_text(text)
