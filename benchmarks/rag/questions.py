"""Choice and order of the questions of a policy. A load with locality draws passages by Zipf's law."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.routing_accuracy import LabelledQuestion
from quire.prompt import Prompt

QUERY, DOMAIN, ROUND_ROBIN = "query", "domain", "round-robin"
#: Whose questions a policy is asked that has none of its own.
_TASK_OF = {ROUND_ROBIN: QUERY}


@dataclass(frozen=True)
class Plan:
    """Questions and prompts of one policy."""

    policy: str
    roles: Mapping[str, str]  #: models by role
    questions: Sequence[LabelledQuestion]
    prompts: Mapping[str, Sequence[Prompt]]  #: by model, one a question that it is asked


def roles_of(policy: str, models: Mapping[str, str]) -> dict[str, str]:
    """The roles of a policy with their models. By default documents go to the large model and small talk to the small
    one, as in the paper.

    Raises:
        ValueError: a role has no model.
    """
    if policy == DOMAIN:
        named = {role: name for role, name in models.items() if role not in ("small", "large")}
        if not named and {"small", "large"} <= set(models):
            named = {"reading": models["large"], "chat": models["small"]}
        wanted = "reading and chat, or small and large"
    else:
        named = {role: models[role] for role in ("small", "large") if role in models}
        wanted = "small and large"
    if len(named) < 2:
        raise ValueError(f"the policy {policy} chooses between two models and more; name {wanted}: ROLE=NAME,...")
    return named


def choose(
    questions: Sequence[LabelledQuestion], policy: str, roles: Mapping[str, str], count: int | None, seed: int
) -> list[LabelledQuestion]:
    """The questions of a policy in random order; a part keeps the shares of all labels.

    Raises:
        ValueError: there are too few questions, or a label is no role.
    """
    task = _TASK_OF.get(policy, policy)
    mine = [each for each in questions if each.task in ("", task)]
    if not mine:
        raise ValueError(f"no question is for the policy {policy}: none has the task {task!r}, or none at all")
    if unknown := sorted({each.label for each in mine if each.role not in roles}):
        raise ValueError(f"the label {unknown[0]!r} is no role of the policy {policy}, which has {', '.join(roles)}")
    if count is not None and count > len(mine):
        raise ValueError(f"--queries {count} are more than the {len(mine)} that there are for the policy {policy}")
    rng = random.Random(f"{policy} {seed}")
    by_label: dict[str, list[LabelledQuestion]] = {}
    for each in mine:
        by_label.setdefault(each.label, []).append(each)
    chosen: list[LabelledQuestion] = []
    num_seen = 0
    for label in sorted(by_label):  # shares are rounded so that together they are as many as wanted
        group = by_label[label]
        num_seen += len(group)
        wanted = len(mine) if count is None else count
        chosen += rng.sample(group, round(wanted * num_seen / len(mine)) - len(chosen))
    rng.shuffle(chosen)
    return chosen


def draw_by_zipf(passages: Sequence[int], exponent: float, seed: int) -> list[int]:
    """Draw as many questions, with the k-th passage in proportion to 1 / k^exponent.

    Args:
        passages: the passage of each question.

    Returns:
        Indices of questions, with repetitions.
    """
    rng = random.Random(f"zipf {seed}")
    asked: dict[int, list[int]] = {}
    for at, passage in enumerate(passages):
        asked.setdefault(passage, []).append(at)
    ranked = list(asked.values())
    rng.shuffle(ranked)
    turns = [itertools.cycle(group) for group in ranked]
    weights = [(rank + 1) ** -exponent for rank in range(len(ranked))]
    return [next(turn) for turn in rng.choices(turns, weights, k=len(passages))]
