"""Loads of conversations, whose turns share prefixes."""

from __future__ import annotations

import math
import random

from quire.simulate.simulation import Arrival
from quire.simulate.virtual_batch import TOKEN

_FIRST_ID = TOKEN + 1  #: token ids that no answer has


def draw_conversations(num_requests: int, rate: float, seed: int = 0, *, num_systems: int = 8) -> list[Arrival]:
    """Draw conversations of several turns; each turn sends all earlier ones again.

    Assumed: a Poisson process of conversations, `rate` per second; one of `num_systems` system prompts of 512 to 2,048
    tokens, by Zipf's law; another turn with probability 3/4, after reading (0.02 s per answer token) and thinking
    (10 s on average, exponential); log-normal lengths with a median of 60 tokens (questions) and 150 (answers).
    """
    rng = random.Random(f"conversations, {seed}")
    weights = [1 / rank for rank in range(1, num_systems + 1)]
    systems = [[_FIRST_ID + number] * rng.randint(512, 2048) for number in range(num_systems)]
    next_id = _FIRST_ID + num_systems
    arrivals: list[Arrival] = []
    began_s = 0.0
    while len(arrivals) < num_requests:
        began_s += rng.expovariate(rate)
        now, said = began_s, rng.choices(systems, weights)[0]
        while len(arrivals) < num_requests:
            question, answer = (_draw_length(rng, median) for median in (60, 150))
            said = said + [next_id] * question  # a token that no other prompt has, repeated
            next_id += 1
            arrivals.append(Arrival(now, len(said), answer, said))
            if rng.random() >= 0.75:
                break
            said = said + [TOKEN] * answer
            now += 0.02 * answer + rng.expovariate(0.1)
    return sorted(arrivals, key=lambda arrival: arrival.time_s)


def _draw_length(rng: random.Random, median: int) -> int:
    return min(1024, max(4, round(rng.lognormvariate(math.log(median), 0.8))))
