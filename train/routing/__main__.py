"""`python -m train.routing`: learn the classifiers of the policies `query` and `domain` from the questions beside this
file, print their cross-validated accuracy, and with `--write` write the weights that ship with Quire."""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import quire.routing
from quire.cli.route import load_query_embedder
from quire.rag.embedder import DEFAULT_EMBEDDER
from quire.routing.classifier import embed_all, fit, write_weights
from quire.routing.files import read_yaml
from quire.routing.forms import shorten

FOLDER = Path(__file__).parent
WEIGHTS = Path(quire.routing.__file__).parent / "weights"
#: Of the form relative to the meaning, by cross-validation over 0.5, 1, 2 and 3.
FORM_WEIGHTS = {"query": 2.0, "domain": 1.0}
_FRAMES_PER_TOPIC = 4  #: of each role


def read_examples(policy: str) -> dict[str, list[str]]:
    """Return a policy's examples by role: those of its file, and filled frames, all of which a text may answer."""
    examples = {role: list(texts) for role, texts in read_yaml(FOLDER / f"{policy}.yaml").items()}
    framed = fill_frames()
    if policy == "query":
        return {role: [*texts, *framed[role]] for role, texts in examples.items()}
    examples["reading"] += [text for texts in framed.values() for text in texts[::4]]
    return examples


def fill_frames() -> dict[str, list[str]]:
    """Return questions about each topic for both roles, always the same ones."""
    data = read_yaml(FOLDER / "frames.yaml")
    rng = random.Random("routing")
    filled: dict[str, list[str]] = {"small": [], "large": []}
    for role, texts in filled.items():
        decks: list[str] = []
        for topic in data["topics"]:
            for _ in range(_FRAMES_PER_TOPIC):
                decks = decks or rng.sample(data[role], len(data[role]))  # each frame as often as any other
                text = decks.pop().format(x=topic, y=rng.choice([each for each in data["topics"] if each != topic]))
                texts.append(text if text[0].islower() and "?" not in text else text[0].upper() + text[1:])
    return filled


def cross_validate(
    examples: Mapping[str, Sequence[str]], vectors: np.ndarray, form_weight: float, num_folds: int = 4
) -> list[tuple[str, str]]:
    """Classify each example without learning from it; return the wrong ones with their roles."""
    labelled = [(role, text) for role, texts in examples.items() for text in texts]
    fold = np.random.default_rng(0).permutation(len(labelled)) % num_folds
    wrong = []
    for each in range(num_folds):
        kept: dict[str, list[str]] = {role: [] for role in examples}
        for (role, text), own in zip(labelled, fold, strict=True):
            if own != each:
                kept[role].append(text)
        classifier = fit(kept, vectors[fold != each], form_weight)
        for at in np.flatnonzero(fold == each):
            role, text = labelled[at]
            scores = {name: sum(terms.values()) for name, terms in classifier.terms(text, vectors[at]).items()}
            if max(scores, key=lambda name: scores[name]) != role:
                wrong.append((role, text))
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m train.routing", description="Learn the classifiers of routing.")
    parser.add_argument("--write", action="store_true", help="write the weights into the package")
    parser.add_argument("--wrong", action="store_true", help="print the questions that are classified wrongly")
    arguments = parser.parse_args()
    embedder = load_query_embedder(DEFAULT_EMBEDDER)
    for name, form_weight in FORM_WEIGHTS.items():
        examples = read_examples(name)
        vectors = embed_all(embedder, [shorten(text) for texts in examples.values() for text in texts])
        wrong = cross_validate(examples, vectors, form_weight)
        print(f"{name}: {1 - len(wrong) / len(vectors):.1%} of {len(vectors):,} questions, cross-validated")
        for role, text in wrong if arguments.wrong else ():
            print(f"  {role}: {text}")
        if arguments.write:
            write_weights(WEIGHTS / f"{name}.json", fit(examples, vectors, form_weight), embedder)


if __name__ == "__main__":
    main()
