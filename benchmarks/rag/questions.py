"""Which questions are asked, in what order, and when: of a labelled set those that are for a policy, or some of them.

A load with locality draws passages by Zipf's law and asks one of each passage's questions.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quire.prompt import Prompt
from quire.routing.evaluation import LabelledQuestion

QUERY, DOMAIN, ROUND_ROBIN = "query", "domain", "round-robin"
#: Whose questions a policy is asked that has none of its own.
_TASK_OF = {ROUND_ROBIN: QUERY}


@dataclass(frozen=True)
class Plan:
    """What is asked under one policy."""

    policy: str
    roles: Mapping[str, str]  #: models by role
    questions: Sequence[LabelledQuestion]
    prompts: Mapping[str, Sequence[Prompt]]  #: by model, one a question that it is asked


def roles_of(policy: str, models: Mapping[str, str]) -> dict[str, str]:
    """The roles that a policy chooses among, with their models.

    Where only small and large are named, documents are read by the large model and small talk is the small one's, as
    in the paper.

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
    """The questions for a policy in a random order; of a part, each label has the share that it has of all.

    Raises:
        ValueError: there are none, fewer than wanted, or a label is no role.
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
    """As many questions, drawn so that the k-th passage is asked about in proportion to 1 / k^exponent.

    Args:
        passages: of each question, the passage that is found for it.

    Returns:
        Indices of questions, some of them several times.
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
