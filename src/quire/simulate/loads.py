"""The loads of a simulated engine that are drawn. (Traces are read elsewhere, and passed in.)"""

from __future__ import annotations

import random
from collections.abc import Iterable

from quire.simulate.simulation import Arrival

SHORTEST, LONGEST = 128, 2048  #: prompt and answer together, in the mix of the CPS paper (section 4.1)
BOUNDARY = 1024  #: the longest of the short ones
PROMPT_SHARE = (0.1, 0.9)  #: lowest and highest, of a request's tokens; assumed: the paper gives the sum alone


def draw_short_long(
    num_requests: int = 200, seed: int = 0, *, prompt_share: tuple[float, float] = PROMPT_SHARE
) -> list[Arrival]:
    """The CPS paper's mix: half short requests, half long ones, shuffled, all at once.

    Args:
        num_requests: an even number.
        seed: other lengths, and another order.
        prompt_share: of a request's tokens, drawn evenly between the two; the rest is its answer.

    Raises:
        ValueError: the number is odd, or none; or the shares are no range within 0 and 1.
    """
    low, high = prompt_share
    if not 0 <= low <= high <= 1:
        raise ValueError(f"prompts of {low:g} to {high:g} of a request; expected shares with 0 <= low <= high <= 1")
    if num_requests < 2 or num_requests % 2:
        raise ValueError(f"{num_requests} requests cannot be half short and half long; give an even number")
    rng = random.Random(seed)
    arrivals = []
    for total in draw_totals(rng, num_requests // 2, num_requests // 2):
        num_prompt_tokens = min(total - 1, max(1, round(total * rng.uniform(low, high))))
        arrivals.append(Arrival(0.0, num_prompt_tokens, total - num_prompt_tokens))
    return arrivals


def draw_totals(rng: random.Random, num_short: int, num_long: int) -> list[int]:
    """Tokens of requests, prompt and answer together, shuffled."""
    totals = [rng.randint(SHORTEST, BOUNDARY) for _ in range(num_short)]
    totals += [rng.randint(BOUNDARY + 1, LONGEST) for _ in range(num_long)]
    rng.shuffle(totals)
    return totals


def speed_up(arrivals: Iterable[Arrival], factor: float) -> list[Arrival]:
    """The same requests in another tempo: 2 is twice as fast."""
    if not 0 < factor < float("inf"):
        raise ValueError(f"a speed-up of {factor:g}; expected a number above 0")
    return [arrival._replace(time_s=arrival.time_s / factor) for arrival in arrivals]
