"""The loads of a simulated engine that are drawn. (Traces are read elsewhere, and passed in.)"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

from quire.simulate.simulation import Arrival
from quire.simulate.virtual_batch import TOKEN

SHORTEST, LONGEST = 128, 2048  #: prompt and answer together, in the mix of the CPS paper (section 4.1)
BOUNDARY = 1024  #: the longest of the short ones
PROMPT_SHARE = (0.1, 0.9)  #: lowest and highest, of a request's tokens; assumed: the paper gives the sum alone

_FIRST_ID = TOKEN + 1  #: of tokens that no answer has


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


def ask_about_documents(
    arrivals: Iterable[Arrival], num_documents: int, num_tokens: int, seed: int = 0
) -> list[Arrival]:
    """The same requests, each about a document that stands before its own prompt.

    The k-th document is drawn in proportion to 1 / k (Zipf's law): few are asked about often, and many now and then.

    Args:
        arrivals: without prompts of their own, or with ones that no document's tokens can be mistaken for.
        num_documents: that there are to draw from.
        num_tokens: of each.
        seed: who asks about which.
    """
    rng = random.Random(f"documents, {seed}")  # other numbers than those of a load with this seed
    arrivals = list(arrivals)
    weights = [1 / rank for rank in range(1, num_documents + 1)]
    drawn = rng.choices(range(num_documents), weights, k=len(arrivals))
    asked = []
    for number, (arrival, document) in enumerate(zip(arrivals, drawn, strict=True), start=num_documents):
        own = arrival.prompt_token_ids
        if own is None:  # one token over and over, which no other prompt and no document has
            own = [number] * arrival.num_prompt_tokens
        prompt = [document] * num_tokens + list(own)
        asked.append(arrival._replace(num_prompt_tokens=len(prompt), prompt_token_ids=prompt, documents=(num_tokens,)))
    return asked


def draw_conversations(num_requests: int, rate: float, seed: int = 0, *, num_systems: int = 8) -> list[Arrival]:
    """Conversations of several turns, each of which sends all that was said before it once more.

    Assumed: they begin by a Poisson process; one of `num_systems` system prompts of 512 to 2,048 tokens stands before
    each, the k-th in proportion to 1 / k (Zipf's law); another turn follows with a probability of 3/4, after reading
    (0.02 s a token of the answer) and thinking (10 s on average, exponential); questions have 60 and answers 150 tokens
    in the median, both spread log-normally.

    Args:
        num_requests: turns, of all conversations together.
        rate: conversations that begin in a second.
        seed: other ones.
        num_systems: system prompts.
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
            said = said + [next_id] * question  # a token that nobody else says, over and over
            next_id += 1
            arrivals.append(Arrival(now, len(said), answer, said))
            if rng.random() >= 0.75:
                break
            said = said + [TOKEN] * answer
            now += 0.02 * answer + rng.expovariate(0.1)
    return sorted(arrivals, key=lambda arrival: arrival.time_s)


def _draw_length(rng: random.Random, median: int) -> int:
    return min(1024, max(4, round(rng.lognormvariate(math.log(median), 0.8))))


def speed_up(arrivals: Iterable[Arrival], factor: float) -> list[Arrival]:
    """The same requests in another tempo: 2 is twice as fast."""
    if not 0 < factor < float("inf"):
        raise ValueError(f"a speed-up of {factor:g}; expected a number above 0")
    return [arrival._replace(time_s=arrival.time_s / factor) for arrival in arrivals]
