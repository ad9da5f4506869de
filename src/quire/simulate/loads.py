"""Drawn loads for the simulator."""

from __future__ import annotations

import random
from collections.abc import Iterable

from quire.bench.workload import poisson_arrivals
from quire.simulate.simulation import Arrival

SHORTEST, LONGEST = 128, 2048  #: tokens of prompt and answer in the CPS paper's mix (section 4.1)
BOUNDARY = 1024  #: longest short request
PROMPT_SHARE = (0.1, 0.9)  #: range of the prompt's share; assumed, the paper gives only the sum
#: ShareGPT: mean prompt and answer (PagedAttention, SOSP '23, figure 11); longest prompt of vLLM's benchmark.
CHAT_MEANS, CHAT_LONGEST_PROMPT = (161.31, 337.99), 1024


def draw_short_long(
    num_requests: int = 200, seed: int = 0, *, prompt_share: tuple[float, float] = PROMPT_SHARE
) -> list[Arrival]:
    """Draw the CPS paper's mix: half short, half long requests, shuffled, all at once. ValueError for an odd number.
    The prompt's share of the tokens is drawn evenly from a range within 0 and 1."""
    low, high = prompt_share
    if not 0 <= low <= high <= 1:
        raise ValueError(f"prompts of {low:g} to {high:g} of a request; expected shares with 0 <= low <= high <= 1")
    _check_even(num_requests)
    rng = random.Random(seed)
    arrivals = []
    for total in draw_totals(rng, num_requests // 2, num_requests // 2):
        num_prompt_tokens = min(total - 1, max(1, round(total * rng.uniform(low, high))))
        arrivals.append(Arrival(0.0, num_prompt_tokens, total - num_prompt_tokens))
    return arrivals


def draw_chat(num_requests: int = 200, seed: int = 0) -> list[Arrival]:
    """Draw the CPS paper's mix from ShareGPT-like lengths, all at once. ValueError for an odd number. Prompts and
    answers are exponential, and kept by the filters of the paper and of vLLM's benchmark."""
    _check_even(num_requests)
    rng = random.Random(seed)
    halves: dict[bool, list[Arrival]] = {False: [], True: []}
    while min(map(len, halves.values())) < num_requests // 2:
        prompt, answer = (1 + int(rng.expovariate(1 / mean)) for mean in CHAT_MEANS)
        half = halves[prompt + answer > BOUNDARY]
        if prompt <= CHAT_LONGEST_PROMPT and SHORTEST <= prompt + answer <= LONGEST and len(half) < num_requests // 2:
            half.append(Arrival(0.0, prompt, answer))
    arrivals = [*halves[False], *halves[True]]
    rng.shuffle(arrivals)
    return arrivals


def _check_even(num_requests: int) -> None:
    if num_requests < 2 or num_requests % 2:
        raise ValueError(f"{num_requests} requests cannot be half short and half long; give an even number")


def arrive(arrivals: Iterable[Arrival], rate: float, seed: int) -> list[Arrival]:
    """The same requests, one after another, at a rate per second (a Poisson process)."""
    arrivals = list(arrivals)
    times = poisson_arrivals(len(arrivals), rate, seed)
    return [arrival._replace(time_s=time_s) for arrival, time_s in zip(arrivals, times, strict=True)]


def draw_totals(rng: random.Random, num_short: int, num_long: int) -> list[int]:
    """Draw the tokens of requests, prompt and answer together, shuffled."""
    totals = [rng.randint(SHORTEST, BOUNDARY) for _ in range(num_short)]
    totals += [rng.randint(BOUNDARY + 1, LONGEST) for _ in range(num_long)]
    rng.shuffle(totals)
    return totals


def ask_about_documents(
    arrivals: Iterable[Arrival], num_documents: int, num_tokens: int, seed: int = 0
) -> list[Arrival]:
    """Put one of `num_documents` documents before each prompt, by Zipf's law (1 / k), sharing no token."""
    rng = random.Random(f"documents, {seed}")  # differs from the load's own seed
    arrivals = list(arrivals)
    weights = [1 / rank for rank in range(1, num_documents + 1)]
    drawn = rng.choices(range(num_documents), weights, k=len(arrivals))
    asked = []
    for number, (arrival, document) in enumerate(zip(arrivals, drawn, strict=True), start=num_documents):
        own = arrival.prompt_token_ids
        if own is None:  # a token that no other prompt or document has
            own = [number] * arrival.num_prompt_tokens
        prompt = [document] * num_tokens + list(own)
        asked.append(arrival._replace(num_prompt_tokens=len(prompt), prompt_token_ids=prompt, documents=(num_tokens,)))
    return asked


def speed_up(arrivals: Iterable[Arrival], factor: float) -> list[Arrival]:
    """The same requests `factor` times as fast."""
    if not 0 < factor < float("inf"):
        raise ValueError(f"a speed-up of {factor:g}; expected a number above 0")
    return [arrival._replace(time_s=arrival.time_s / factor) for arrival in arrivals]
