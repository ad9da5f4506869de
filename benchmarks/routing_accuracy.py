"""Accuracy of a routing policy on labelled questions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.script import start
from quire.cli.options import Json, options
from quire.cli.route import RouteSettings, make_router
from quire.cli.tables import write_figures
from quire.routing.examples import LARGE, SMALL
from quire.routing.policy import RoutingError
from quire.routing.router import Router

#: Label of the policy `query` -> role; other labels are roles themselves.
ROLE_OF_LABEL = {"simple": SMALL, "complex": LARGE}


@dataclass(frozen=True)
class LabelledQuestion:
    """A question with its expected label."""

    question: str
    label: str
    task: str = ""  #: the policy that it tests; empty for any
    source: str = ""

    @property
    def role(self) -> str:
        return ROLE_OF_LABEL.get(self.label, self.label)


@dataclass(frozen=True)
class RoutedQuestion:
    """A labelled question and its route."""

    question: str
    label: str
    source: str
    model: str
    role: str
    is_right: bool
    why: str
    numbers: dict[str, float]


@dataclass(frozen=True)
class RoutingScore:
    """Result of `evaluate`."""

    policy: str
    num_questions: int
    accuracy: float  #: share of questions routed as labelled
    per_class: dict[str, float]  #: label -> accuracy
    confusion: dict[str, dict[str, int]]  #: label -> role -> questions
    wrong: list[RoutedQuestion]
    routed: list[RoutedQuestion]  #: all questions


def read_labelled(path: Path) -> list[LabelledQuestion]:
    """Read a JSONL file with `question`, `label` and optional `task` and `source`. Raises RoutingError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RoutingError(f"{path} cannot be read: {error}") from None
    return list(_read_lines(text, path))


def _read_lines(text: str, path: Path) -> Iterator[LabelledQuestion]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
        except ValueError:
            data = None
        if not isinstance(data, dict) or not all(isinstance(data.get(key), str) for key in ("question", "label")):
            raise RoutingError(
                f'{path}, line {number}: expected {{"question": "...", "label": "..."}}, got {line[:80]!r}'
            )
        others = {key: data[key] for key in ("task", "source") if isinstance(data.get(key), str)}
        yield LabelledQuestion(data["question"], data["label"], **others)


def evaluate(router: Router, questions: Sequence[LabelledQuestion]) -> RoutingScore:
    """Route the questions for this policy and compare roles with labels. Raises RoutingError for unknown labels."""
    policy = router.config.policy
    roles = router.config.models
    chosen = [each for each in questions if each.task in ("", policy)]
    if not chosen:  # a policy without questions of its own, such as round-robin
        chosen = [each for each in questions if each.role in roles]
    if not chosen:
        tasks = sorted({each.task for each in questions})
        raise RoutingError(f"no question is for {policy!r}, or has one of its roles as label; tasks: {tasks or 'none'}")
    if unknown := sorted({each.label for each in chosen if each.role not in roles}):
        raise RoutingError(
            f"the label {unknown[0]!r} is not a role of the models ({', '.join(roles)}); give it one: {unknown[0]}=NAME"
        )
    routed = []
    for each in chosen:
        choice = router.route(each.question)
        chosen_by = choice.model, choice.role, choice.role == each.role, choice.why, dict(choice.numbers)
        routed.append(RoutedQuestion(each.question, each.label, each.source, *chosen_by))
    totals = Counter(each.label for each in routed)
    rights = Counter(each.label for each in routed if each.is_right)
    pairs = Counter((each.label, each.role) for each in routed)
    return RoutingScore(
        policy=policy,
        num_questions=len(routed),
        accuracy=rights.total() / len(routed),
        per_class={label: rights[label] / totals[label] for label in totals},
        confusion={label: {role: pairs[label, role] for role in roles} for label in totals},
        wrong=[each for each in routed if not each.is_right],
        routed=routed,
    )


@options()
def main(
    settings: RouteSettings,
    questions: Annotated[Path, typer.Option(metavar="FILE", help="Labelled questions, one JSON object per line.")],
    json: Json = None,
) -> None:
    """Route labelled questions and print the share that goes to the right model. No model is loaded."""
    router = make_router(settings)
    score = evaluate(router, read_labelled(questions))
    _print_score(score, list(router.config.models))
    write_figures(json, asdict(score))


def _print_score(score: RoutingScore, roles: list[str]) -> None:
    typer.echo(f"{score.policy}: {score.accuracy:.1%} of {score.num_questions:,} questions")
    for label, share in score.per_class.items():
        went = ", ".join(f"{score.confusion[label][role]} to {role}" for role in roles)
        typer.echo(f"  {label}: {share:.1%} right; {went}")
    if score.wrong:
        typer.echo("wrong:")
    for each in score.wrong:
        typer.echo(f"  {each.label} to {each.role}: {each.question}\n      {each.why}")


if __name__ == "__main__":
    start(main)
