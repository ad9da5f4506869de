"""`python -m train.routing --data routing-dev.jsonl`: fit the weights of the policy `query`, and say how good they are.

The data are labelled questions, one JSON object a line, as `benchmarks.routing_accuracy` reads them. A quarter is kept
aside; `--look-aside` scores it, which is to be done once. Questions of our own are always in the fit.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from benchmarks.routing_accuracy import read_labelled
from quire.routing.query import DEFAULT_FILE, QueryScoring
from train.routing.fit import FORM_PENALTY, Table, cross_validate, fit, read_own, set_aside, write_weights

_OWN = Path(__file__).with_name("questions.tsv")
_TESTS = Path("tests/routing/questions.tsv")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m train.routing", description="Fit the weights of the policy query.")
    parser.add_argument("--data", type=Path, required=True, help="labelled questions, as JSONL")
    parser.add_argument("--file", type=Path, default=DEFAULT_FILE, help="forms whose weights are fitted")
    parser.add_argument("--write", action="store_true", help="write the weights into that file")
    parser.add_argument("--look-aside", action="store_true", help="score the part that is kept aside, too")
    arguments = parser.parse_args()

    scoring = QueryScoring.from_file(arguments.file)
    kept, aside = set_aside([each for each in read_labelled(arguments.data) if each.task in ("", "query")])
    data, own = Table(scoring, kept), Table(scoring, read_own(_OWN))
    print(f"{len(kept)} questions of {arguments.data}, {len(own.is_complex)} of our own")
    for penalty in (0.05, 0.1, FORM_PENALTY, 0.4, 0.8, 1.6):
        scores = cross_validate(data, own, penalty)
        by_own = data.features @ fit(own.features, own.is_complex, penalty)
        print(f"penalty {penalty:4}: cross-validated {_show(scores, data)}; by our own alone {_show(by_own, data)}")
    scores = cross_validate(data, own, FORM_PENALTY).mean(0)
    for each, score in zip(kept, scores, strict=True):
        if (score > 0) != (each.label == "complex"):
            print(f"  wrong: {each.label:8} {score:5.2f} {each.question}")
    weights = fit(
        np.vstack([data.features, own.features]), np.concatenate([data.is_complex, own.is_complex]), FORM_PENALTY
    )
    tests = Table(scoring, read_own(_TESTS))
    print(f"tests/routing: {_show(tests.features @ weights, tests)}")
    if arguments.look_aside:
        table = Table(scoring, aside)
        print(f"aside: {_show(table.features @ weights, table)}")
        for each, score in zip(aside, table.features @ weights, strict=True):
            if (score > 0) != (each.label == "complex"):
                print(f"  wrong: {each.label:8} {score:5.2f} {each.question}")
    if arguments.write:
        write_weights(arguments.file, data.names, weights)


def _show(scores: np.ndarray, table: Table) -> str:
    right = np.atleast_2d((scores > 0) == (table.is_complex == 1))
    simple, complex_ = (right[:, table.is_complex == each].mean() for each in (0, 1))
    return f"{right.mean():.1%} (simple {simple:.1%}, complex {complex_:.1%})"


if __name__ == "__main__":
    main()
