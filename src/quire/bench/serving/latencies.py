"""Latency and throughput figures of a load. Pure arithmetic.

TTFT and E2EL (end-to-end latency) count from the due time of a request. For n output tokens, TPOT is
(E2EL - TTFT) / (n - 1), normalised latency E2EL / n (Kwon et al., SOSP '23, section 6.1). ITL is each single gap
between chunks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from quire.bench.report import summarise
from quire.bench.serving.load_client import LoadResult, RequestOutcome


def ttft_s(outcome: RequestOutcome) -> float:
    return outcome.token_s[0] - outcome.arrival_s


def e2el_s(outcome: RequestOutcome) -> float:
    return outcome.token_s[-1] - outcome.arrival_s


def tpot_s(outcome: RequestOutcome) -> float | None:
    """None for a single token."""
    count = outcome.num_output_tokens
    return (outcome.token_s[-1] - outcome.token_s[0]) / (count - 1) if count > 1 else None


def itl_s(outcome: RequestOutcome) -> list[float]:
    return [later - earlier for earlier, later in pairwise(outcome.token_s)]


def normalised_latency_s(outcome: RequestOutcome) -> float:
    return e2el_s(outcome) / max(1, outcome.num_output_tokens)


def is_good(outcome: RequestOutcome, limits: dict[str, float]) -> bool:
    """Whether a request completed within every limit. A single token meets any TPOT."""
    if not outcome.is_complete:
        return False
    found = {"ttft": ttft_s(outcome), "tpot": tpot_s(outcome) or 0.0, "e2el": e2el_s(outcome)}
    return all(found[name] <= limit for name, limit in limits.items())


def distribution(values: Iterable[float]) -> dict[str, float] | None:
    """Mean and percentiles (linear between neighbours); None without values. `median` equals p50."""
    import numpy as np

    known = np.fromiter(values, dtype=float)
    if not known.size:
        return None
    p50, p90, p99 = (float(value) for value in np.percentile(known, (50, 90, 99)))
    found = {"mean": float(known.mean()), "p50": p50, "p90": p90, "p99": p99}
    return {**found, "median": p50, "min": float(known.min()), "max": float(known.max())}


def serving_figures(result: LoadResult, limits: dict[str, float] | None = None) -> dict[str, Any]:
    """Figures of one load. Latencies are of complete requests; failed ones are counted by kind."""
    outcomes = result.outcomes
    done = [outcome for outcome in outcomes if outcome.is_complete]
    tokens_in = sum(outcome.num_prompt_tokens for outcome in done)
    tokens_out = sum(outcome.num_output_tokens for outcome in done)
    last = max((outcome.arrival_s for outcome in outcomes), default=0.0)
    wall_s = result.wall_s
    counted = {"chunks" if each.num_counted_tokens is None else "usage" for each in done}  # by the client, the server
    figures: dict[str, Any] = {
        "requests": len(outcomes),
        "completed": len(done),
        "errors": dict(Counter(outcome.error for outcome in outcomes if outcome.error is not None)),
        "offered_rate": len(outcomes) / last if last else None,
        "in": tokens_in,
        "out": sum(outcome.max_tokens for outcome in done),
        "out_got": tokens_out,
        "token_counts": "both" if len(counted) > 1 else next(iter(counted), None),
        "wall_s": summarise([wall_s]),
        "req_s": summarise([len(done) / wall_s]),
        "out_tok_s": summarise([tokens_out / wall_s]),
        "total_tok_s": summarise([(tokens_in + tokens_out) / wall_s]),
        "ttft_s": distribution(map(ttft_s, done)),
        "tpot_s": distribution(value for outcome in done if (value := tpot_s(outcome)) is not None),
        "itl_s": distribution(gap for outcome in done for gap in itl_s(outcome)),
        "e2el_s": distribution(map(e2el_s, done)),
        "normalised_latency_s": distribution(map(normalised_latency_s, done)),
        "client": {
            "send_lag_s": distribution(o.sent_s - o.arrival_s for o in outcomes if o.sent_s is not None),
            "loop_lag_s": distribution(result.loop_lag_s),
            "cpu_share": result.cpu_s / wall_s,
        },
    }
    if limits:
        good = sum(is_good(outcome, limits) for outcome in outcomes)
        figures["goodput"] = {"limits_s": limits, "req_s": good / wall_s, "share": good / len(outcomes)}
    return figures
