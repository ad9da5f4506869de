"""Figures of timed answers, beside the paper's and the targets.

A change is relative to `off` in the same repetition; the median over repetitions counts.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.rag.play import Answer, Played
from benchmarks.rag.questions import ROUND_ROBIN, Plan
from benchmarks.rag.settings import RagSettings
from quire.bench.report import Column, Report, summarise
from quire.config import format_size

OFF, COLD, WARM = "off", "cold", "warm"
BARE = "no documents"
AUTO_RATE_SHARE = 0.7  #: of what was answered a second without a KV directory, that a machine can hold
MOST_WARM, MOST_COLD = 1.15, 1.05

EXACT = "float32"  #: the arithmetic in which tokens can be compared


@dataclass(frozen=True)
class Published:
    """The paper's changes of a policy by KV on disk."""

    latency_change: float
    queries_change: float
    split: str  #: of the questions between the models, where 70:30 was right


PAPER = {
    ROUND_ROBIN: Published(-0.248, 0.339, "50:50"),
    "query": Published(-0.160, 0.188, "65:35"),
    "domain": Published(-0.199, 0.253, "69:31"),
}


@dataclass(frozen=True)
class Trial:
    """One way over one load, once."""

    policy: str
    load: str
    way: str
    repetition: int
    played: Played


COLUMNS = (
    Column("policy", "policy"),
    Column("load", "queries come"),
    Column("kv", "KV on disk"),
    Column("latency_s", "latency s"),
    Column("latency_change", "over off", scale=100, digits=1, unit=" %", is_change=True),
    Column("paper_latency_change", "paper", scale=100, digits=1, unit=" %", is_change=True),
    Column("queries_s", "queries/s"),
    Column("queries_change", "over off", scale=100, digits=1, unit=" %", is_change=True),
    Column("paper_queries_change", "paper", scale=100, digits=1, unit=" %", is_change=True),
    Column("ttft_s", "TTFT s"),
    Column("cpu_s", "CPU s", digits=1),
    Column("hits.device", "device %", scale=100, digits=0),
    Column("hits.disk", "disk %", scale=100, digits=0),
)


def make_report(
    settings: RagSettings, plans: Sequence[Plan], trials: Sequence[Trial], engine: dict[str, Any], warm_bytes: int
) -> Report:
    """All figures and notes."""
    engine.pop("model")
    report = Report(
        "rag",
        f"Questions about documents, {settings.output_len} tokens out, in {engine['dtype']}",
        COLUMNS,
        list(_figures(trials)),
        settings={**settings.as_json(), "engine": engine},
        more={"policies": [_describe_plan(plan, trials) for plan in plans], "warm_bytes": warm_bytes},
    )
    for plan, described in zip(plans, report.more["policies"], strict=True):
        report.notes.append(_split_note(plan, described))
    for figure in report.figures:
        report.notes += _mark_notes(figure)
    report.notes += _token_notes(report.figures, engine["dtype"])
    route_s = [answer.route_s for trial in trials for answer in trial.played.answers]
    report.more["route_s"] = summarise(route_s)
    report.notes.append(
        f"Choosing the model took {1e3 * statistics.median(route_s):.2f} ms a question, {1e3 * max(route_s):.1f} at "
        "most, beside busy engines."
    )
    report.notes.append(
        "CPU s: processor time of the engines, which others' work on the machine changes least. device and disk: "
        "shares of the prompts' tokens whose KV was found there."
    )
    return report


def _figures(trials: Sequence[Trial]) -> Iterator[dict[str, Any]]:
    groups = dict.fromkeys((trial.policy, trial.load) for trial in trials)
    for policy, load in groups:
        mine = [trial for trial in trials if (trial.policy, trial.load) == (policy, load)]
        ways = {way: [t.played for t in mine if t.way == way] for way in (BARE, OFF, COLD, WARM)}
        is_burst = load == next(load for each, load in groups if each == policy)
        for way, played in ways.items():
            if played:
                yield _figure(policy, load, way, played, ways, is_burst=is_burst)


def _figure(
    policy: str, load: str, way: str, played: Sequence[Played], ways: dict[str, list[Played]], *, is_burst: bool
) -> dict[str, Any]:
    answers = [answer for each in played for answer in each.answers]
    figure: dict[str, Any] = {
        "policy": policy,
        "load": load,
        "kv": way,
        "latency_s": summarise(each.latency_s for each in played),
        "ttft_s": summarise(each.ttft_s for each in played),
        "queries_s": summarise(each.queries_s for each in played),
        "wall_s": summarise(each.wall_s for each in played),
        "cpu_s": summarise(each.cpu_s for each in played),
        "retrieval_s": summarise(_mean([a.retrieval_s for a in each.answers]) for each in played),
        "prompt_tokens": _mean([a.num_prompt_tokens for a in answers]),
        "document_tokens": _mean([a.num_document_tokens for a in answers]),
        "hits": _hits(answers),
        "models": {name: _of_model(name, answers, played) for name in sorted({a.model for a in answers})},
    }
    if way in (COLD, WARM) and ways[OFF]:
        figure["latency_change"] = _change(played, ways[OFF], "latency_s")
        figure["queries_change"] = _change(played, ways[OFF], "queries_s")
        figure["ttft_change"] = _change(played, ways[OFF], "ttft_s")
    reference = next((ways[other] for other in (OFF, COLD, WARM) if ways[other]), played)
    if way in (OFF, COLD, WARM):
        pairs = [
            (a.tokens, b.tokens)
            for mine, theirs in zip(played, reference, strict=True)
            for a, b in zip(mine.answers, theirs.answers, strict=True)
        ]
        figure["num_answers"] = len(pairs)
        figure["num_different"] = sum(a != b for a, b in pairs)
    if way == WARM:
        if is_burst and policy in PAPER:
            figure["paper_latency_change"] = PAPER[policy].latency_change
            figure["paper_queries_change"] = PAPER[policy].queries_change
        if ways[BARE]:
            figure |= _limits(played, ways[BARE], is_burst=is_burst)
    if way == COLD and "latency_change" in figure:
        figure["target_ratio"] = 1 + figure["latency_change"]
        figure["is_met"] = figure["target_ratio"] <= MOST_COLD
    return figure


def _limits(played: Sequence[Played], bare: Sequence[Played], *, is_burst: bool) -> dict[str, Any]:
    """Warm over the same questions without documents plus raw reads: the whole time of a burst, or the mean latency at
    a rate.
    """
    ratios, num_bytes = [], []
    for mine, theirs in zip(played, bare, strict=True):
        loaded = sum(_disk_bytes(answer, mine) for answer in mine.answers)
        read_s = loaded / mine.read_bytes_s if mine.read_bytes_s else 0.0
        num_bytes.append(loaded)
        if is_burst:
            ratios.append(mine.wall_s / (theirs.wall_s + read_s))
        else:
            ratios.append(mine.latency_s / (theirs.latency_s + read_s / len(mine.answers)))
    ratio = statistics.median(ratios)
    return {
        "target_ratio": ratio,
        "is_met": ratio <= MOST_WARM,
        "target_of": "wall_s" if is_burst else "latency_s",
        "loaded_bytes": statistics.median(num_bytes),
        "read_bytes_s": summarise(each.read_bytes_s for each in played if each.read_bytes_s),
        "resident": summarise(each.resident for each in played if each.resident is not None),
    }


def _disk_bytes(answer: Answer, played: Played) -> float:
    return answer.cached.get("disk", 0) * played.block_bytes[answer.model] / played.block_size


def _of_model(name: str, answers: Sequence[Answer], played: Sequence[Played]) -> dict[str, Any]:
    mine = [answer for answer in answers if answer.model == name]
    return {
        "num_queries": len(mine) / len(played),
        "share": len(mine) / len(answers),
        "latency_s": _mean([answer.latency_s for answer in mine]),
        "ttft_s": _mean([answer.ttft_s for answer in mine]),
        "hits": _hits(mine),
        "prefixes_on_disk": dict(sum((each.ways.get(name, Counter()) for each in played), Counter[str]())),
    }


def _hits(answers: Sequence[Answer]) -> dict[str, float]:
    found: Counter[str] = Counter()
    for answer in answers:
        found.update(answer.cached)
    total = sum(answer.num_prompt_tokens for answer in answers)
    return {tier: found[tier] / total for tier in sorted({"device", "disk", *found})}


def _change(played: Sequence[Played], off: Sequence[Played], name: str) -> float:
    ratios = [getattr(a, name) / getattr(b, name) for a, b in zip(played, off, strict=True)]
    return statistics.median(ratios) - 1


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _describe_plan(plan: Plan, trials: Sequence[Trial]) -> dict[str, Any]:
    answers = next(trial.played.answers for trial in trials if trial.policy == plan.policy)
    got, wanted = Counter(a.role for a in answers), Counter(q.role for q in plan.questions)
    num_right = sum(a.role == q.role for a, q in zip(answers, plan.questions, strict=True))
    return {
        "policy": plan.policy,
        "models": dict(plan.roles),
        "num_queries": len(answers),
        "split": {role: got[role] / len(answers) for role in plan.roles},
        "right_split": {role: wanted[role] / len(answers) for role in plan.roles},
        "accuracy": None if plan.policy == ROUND_ROBIN else num_right / len(answers),
        "num_documents": {name: len({tuple(p.token_ids[: p.documents[-1]]) for p in prompts})
                          for name, prompts in plan.prompts.items()},
    }  # fmt: skip


def _split_note(plan: Plan, described: dict[str, Any]) -> str:
    order = sorted(plan.roles, key=lambda role: -described["right_split"][role])

    def show(split: dict[str, float]) -> str:
        return ":".join(f"{100 * split[role]:.0f}" for role in order)

    names = ", ".join(f"{role} {plan.roles[role]}" for role in order)
    text = f"{plan.policy} ({names}): split {show(described['split'])} where {show(described['right_split'])} was right"
    if described["accuracy"] is not None:
        text += f", {described['accuracy']:.1%} of {described['num_queries']:,} questions as labelled"
    if plan.policy in PAPER:
        text += f"; the paper's split was {PAPER[plan.policy].split} where 70:30 was right"
    return text + "."


def _mark_notes(figure: dict[str, Any]) -> Iterator[str]:
    if "target_ratio" not in figure:
        return
    verdict = "met" if figure["is_met"] else "missed"
    place = f"{figure['policy']}, {figure['load']}"
    if figure["kv"] == COLD:
        yield f"{place}: cold took {figure['target_ratio']:.2f} of off's mean latency (target {MOST_COLD}): {verdict}."
        return
    rate = figure["read_bytes_s"]
    reads = "nothing was read" if rate is None else f"raw reads gave {format_size(rate['median'])} a second"
    if figure["resident"] is not None:
        reads += f" with {figure['resident']['median']:.0%} of the pages in memory"
    what = "the whole time" if figure["target_of"] == "wall_s" else "the mean latency"
    yield (
        f"{place}: warm took {figure['target_ratio']:.2f} of {what} without documents and with raw reads of the "
        f"{format_size(figure['loaded_bytes'])} of KV that were loaded (target {MOST_WARM}): {verdict}; {reads}."
    )


def _token_notes(figures: Sequence[dict[str, Any]], dtype: str) -> Iterator[str]:
    compared = [figure for figure in figures if "num_different" in figure and figure["kv"] != OFF]
    total, different = (sum(figure[name] for figure in compared) for name in ("num_answers", "num_different"))
    if total:
        text = f"{total - different:,} of {total:,} answers by the other ways have the tokens of the first way's."
        yield text if dtype == EXACT else f"{text} In {dtype} they may differ by rounding."
