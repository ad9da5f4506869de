"""Quality of routed answers: exact match by policy, against each model alone and a choice that is always right.

`domain`: questions about a passage and small talk, for quire-mini and quire-chat. `query`: questions about a passage,
for quire-mini (large) and quire-mini without a quarter of its layers (small). Answers come from the models; policies
see questions only.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from train.evaluate import answers, load_model, small_talk_answers, small_talk_questions, without_layers
from train.questions import held_out_questions

from benchmarks.scores import score_each
from benchmarks.script import start
from quire.bench.report import Column, Report
from quire.cli.options import Json, options
from quire.cli.route import load_query_embedder
from quire.loading.source import embedded_path
from quire.progressive.questions import ReadingQuestion
from quire.rag.embedder import DEFAULT_EMBEDDER
from quire.routing import Router, RoutingConfig
from quire.settings import Settings, setting

_LAYERS_OUT = (11, 15)
COLUMNS = (
    Column("set", "questions"),
    Column("policy", "policy"),
    Column("exact_match", "EM", scale=100, digits=1, unit=" %"),
    Column("f1", "F1", scale=100, digits=1, unit=" %"),
    Column("share", "to the first model", scale=100, digits=1, unit=" %"),
)


@dataclass(frozen=True)
class QualitySettings(Settings):
    """Options of the benchmark of routed quality."""

    questions: int = setting(200, "Questions of each set; of `domain`, seven in ten are about a passage.", at_least=10)
    seed: int = setting(0, "Seed of the questions.", name="load_seed")


@dataclass(frozen=True)
class QuestionSet:
    """Questions, and the scores of each model's answers by role: exact match and F1."""

    name: str  #: of the policy, too
    questions: Sequence[ReadingQuestion]
    scores: Mapping[str, Sequence[tuple[float, float]]]


def route_all(found: QuestionSet, router: Router) -> list[str]:
    """The role that a router chooses for each question."""
    return [router.route(each.question).role for each in found.questions]


def figures(found: QuestionSet, routes: Mapping[str, Sequence[str]]) -> list[dict[str, object]]:
    """A row per model alone, per policy's routes, and for the better answer of each question."""
    roles = list(found.scores)
    count = len(found.questions)
    best = [max(roles, key=lambda role: found.scores[role][at]) for at in range(count)]
    ways = {f"always {role}": [role] * count for role in roles} | dict(routes) | {"always the better answer": best}
    rows: list[dict[str, object]] = []
    for policy, chosen in ways.items():
        pairs = [found.scores[role][at] for at, role in enumerate(chosen)]
        row = {"set": found.name, "policy": policy, "share": chosen.count(roles[0]) / count}
        rows.append(row | {"exact_match": sum(em for em, _ in pairs) / count, "f1": sum(f for _, f in pairs) / count})
    return rows


def _domain(settings: QualitySettings) -> QuestionSet:
    num_reading = round(0.7 * settings.questions)
    reading = held_out_questions(2, num_reading, settings.seed)
    talk = small_talk_questions(settings.questions - num_reading, settings.seed)
    scores = {}
    for role, name in (("reading", "quire-mini"), ("chat", "quire-chat")):
        model = load_model(_path(name))
        scores[role] = score_each(answers(model, reading), reading)
        scores[role] += score_each(small_talk_answers(model, [each.question for each in talk]), talk)
    return QuestionSet("domain", [*reading, *talk], scores)


def _query(settings: QualitySettings) -> QuestionSet:
    asked = held_out_questions(5, settings.questions, settings.seed)
    with tempfile.TemporaryDirectory() as folder:
        without_layers(_path("quire-mini"), *_LAYERS_OUT, Path(folder))
        small = score_each(answers(load_model(Path(folder)), asked), asked)
    large = score_each(answers(load_model(_path("quire-mini")), asked), asked)
    return QuestionSet("query", asked, {"small": small, "large": large})


def _path(name: str) -> Path:
    path = embedded_path(name)
    assert path is not None
    return path


@options()
def main(settings: QualitySettings, json: Json = None) -> None:
    """Exact match and F1 of answers by routing policy, against each model alone."""
    embedder = load_query_embedder(DEFAULT_EMBEDDER)
    report = Report("routed-quality", "Quality of routed answers", COLUMNS, settings=settings.as_json())
    for found in (_domain(settings), _query(settings)):
        models = {role: role for role in found.scores}
        routes = {
            policy: route_all(found, Router(RoutingConfig(policy, models), embedder=embedder))
            for policy in ("round-robin", found.name)
        }
        rng = Random(settings.seed)  # as many to each model as the policy sends, but any questions
        routes["the same shares, at random"] = rng.sample(routes[found.name], len(found.questions))
        report.figures += figures(found, routes)
    report.publish(json)


if __name__ == "__main__":
    start(main)
