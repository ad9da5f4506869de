"""Requests of the recovery benchmark: the CPS paper's mix (section 4.1) and variants, all at once."""

from __future__ import annotations

import random

from quire.bench.workload import TOKEN_IDS, Workload, WorkloadRequest
from quire.simulate.loads import LONGEST, PROMPT_SHARE, draw_totals

MIXES = ("short", "long", "mixed", "shared")
_SHARED_PREFIX = 512  #: tokens, of a request of up to LONGEST
_OWN_PROMPT = 32  #: tokens at least, after a shared prefix


def make_mix(mix: str, num_requests: int, max_model_len: int, *, seed: int = 0, ids: range = TOKEN_IDS) -> Workload:
    """Requests of 128 to 2,048 tokens, of which 10 to 90 % are the prompt. Lengths shrink with a smaller
    `max_model_len`.

    Args:
        mix: short (up to 1,024), long (above), mixed (half and half), or shared (mixed; every second request begins
            with the same 512 tokens).

    Raises:
        ValueError: the mix is unknown, or there are no requests.
    """
    if mix not in MIXES:
        raise ValueError(f"mix={mix!r} is not one of {', '.join(MIXES)}")
    if num_requests < 1:
        raise ValueError(f"num_requests={num_requests} make no workload; expected at least 1")
    rng = random.Random(seed)
    scale = min(1.0, max_model_len / LONGEST)
    num_short = {"short": num_requests, "long": 0}.get(mix, -(-num_requests // 2))
    totals = draw_totals(rng, num_short, num_requests - num_short)
    prefix = [rng.choice(ids) for _ in range(round(_SHARED_PREFIX * scale) if mix == "shared" else 0)]
    requests = []
    for at, drawn in enumerate(totals):
        shared = prefix if at % 2 == 0 else []
        least = len(shared) + round(_OWN_PROMPT * scale) if shared else 1
        total = max(round(drawn * scale), least + 1, 2)
        num_prompt = min(total - 1, max(least, round(total * rng.uniform(*PROMPT_SHARE))))
        own = [rng.choice(ids) for _ in range(num_prompt - len(shared))]
        requests.append(WorkloadRequest(shared + own, total - num_prompt))
    return Workload(mix, requests)
