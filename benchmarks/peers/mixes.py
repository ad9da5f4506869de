"""Further workloads with fixed seeds. All requests come at once, since other engines' scripts know no arrivals."""

from __future__ import annotations

import random

from quire.bench.workload import TOKEN_IDS, Workload, WorkloadRequest, make_workload, uniform_lengths

_SEED = 18


def further_workloads() -> list[Workload]:
    """A burst of short requests, long prompts with short answers, and turns of conversations over one prefix."""
    burst = make_workload("burst", uniform_lengths(48, (16, 64), (8, 32), seed=_SEED), seed=_SEED)
    long = make_workload("long-prompts", uniform_lengths(6, (1024, 2048), (8, 16), seed=_SEED), seed=_SEED)
    return [burst, long, _turns()]


def _turns(num_conversations: int = 3, num_turns: int = 6, prefix: int = 256, turn: int = 96) -> Workload:
    rng = random.Random(_SEED)
    system = rng.choices(TOKEN_IDS, k=prefix)
    requests = []
    for _ in range(num_conversations):
        talk = rng.choices(TOKEN_IDS, k=num_turns * turn)
        requests += [WorkloadRequest(system + talk[: n * turn], 16) for n in range(1, num_turns + 1)]
    return Workload("turns", requests)
