"""The policy `slo`: the best model that is predicted to keep a request's SLO (TTFT and TPOT).

What a request would see comes from the forecasts that engines report with their steps (`quire.forecast`). Where no
model is predicted to keep the SLO, the one that misses it by least is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from quire.forecast import Prediction
from quire.routing.policy import NO_SLO, NOTHING_KNOWN, SLO, Choice, RoutingContext, RoutingError


@dataclass(frozen=True)
class _Candidate:
    role: str
    prediction: Prediction
    miss: float  #: the largest share of a limit that is predicted: above 1 it is missed


class SloPolicy:
    """Weighs models' quality against what their engines can keep.

    Args:
        models: served names by role; the best first, where `quality` says nothing.
        slo: what requests are to keep that name no limits of their own.
        quality: a rank by role; higher is better.

    Raises:
        RoutingError: the ranks are of other roles.
    """

    name = "slo"

    def __init__(
        self, models: Mapping[str, str], slo: SLO = NO_SLO, quality: Mapping[str, float] | None = None
    ) -> None:
        if quality is not None and set(quality) != set(models):
            raise RoutingError(
                f"the policy slo ranks the models {', '.join(models)}, and quality is of {', '.join(quality) or 'none'}"
            )
        self._models = dict(models)
        self._slo = slo
        ranks = quality or {role: float(len(models) - at) for at, role in enumerate(models)}
        self._roles = sorted(models, key=lambda role: -ranks[role])  #: the best first
        self._ranks = dict(ranks)

    def choose(self, question: str, context: RoutingContext = NOTHING_KNOWN) -> Choice:
        ttft_s = context.slo.ttft_s or self._slo.ttft_s
        tpot_s = context.slo.tpot_s or self._slo.tpot_s
        candidates = []
        for role in self._roles:
            model = self._models[role]
            if (forecast := context.forecasts.get(model)) is None:
                continue
            found = forecast.predict(context.num_tokens, context.num_cached.get(model))
            candidates.append(_Candidate(role, found, _miss(found, ttft_s, tpot_s)))
        if not candidates:
            why = "the best one: no engine has told of its load"
            return self._choice(self._roles[0], why, {})
        kept = next((each for each in candidates if each.miss <= 1), None)
        chosen = kept or min(candidates, key=lambda each: each.miss)
        said = f"TTFT {_of(chosen.prediction.ttft_s, ttft_s)}, TPOT {_of(chosen.prediction.tpot_s, tpot_s)}"
        why = f"the best one that keeps the SLO: {said}" if kept else f"none keeps the SLO, and it misses least: {said}"
        numbers = {}
        for each in candidates:
            numbers[f"{each.role}: quality"] = self._ranks[each.role]
            numbers[f"{each.role}: ttft_s"], numbers[f"{each.role}: tpot_s"] = each.prediction
        return self._choice(chosen.role, why, numbers)

    def _choice(self, role: str, why: str, numbers: Mapping[str, float]) -> Choice:
        return Choice(self._models[role], self.name, why, numbers, role)


def _miss(found: Prediction, ttft_s: float | None, tpot_s: float | None) -> float:
    return max(found.ttft_s / ttft_s if ttft_s else 0.0, found.tpot_s / tpot_s if tpot_s else 0.0)


def _of(seconds: float, limit_s: float | None) -> str:
    return f"{seconds:.3g} s" + (f" of {limit_s:g} s" if limit_s else "")
