"""The policy `slo`: the best model that is predicted to keep a request's SLO (TTFT and TPOT).

What a request would see comes from the forecasts that engines report with their steps (`quire.forecast`). Where no
model is predicted to keep the SLO, the best one is taken: the request will be late, and the other models stay in time
for those that come after it. (Spread over all, requests that are late would make all others late too; docs/routing.md
has what was measured.)

An engine learns what it takes from what it does. One that was slow for a while, since something else ran beside it, and
gets no requests for that would never learn that it is fast again. So a model that has been idle is tried by one request
after a minute, then after two, four and so on, until it is predicted to keep the SLO again.
"""

from __future__ import annotations

from collections.abc import Mapping

from quire.forecast import Prediction
from quire.routing.policy import NO_SLO, NOTHING_KNOWN, SLO, Choice, RoutingContext, RoutingError

_FIRST_TRY_S = 60.0
_CAUTION = 2.0  #: standard deviations of the predicted TTFT that have to fit below its limit, too


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
        self._try_after_s = dict.fromkeys(models, _FIRST_TRY_S)  #: of idleness

    def choose(self, question: str, context: RoutingContext = NOTHING_KNOWN) -> Choice:
        limits = SLO(context.slo.ttft_s or self._slo.ttft_s, context.slo.tpot_s or self._slo.tpot_s)
        numbers: dict[str, float] = {}
        best: tuple[str, Prediction] | None = None
        for role in self._roles:
            model = self._models[role]
            if (forecast := context.forecasts.get(model)) is None:
                continue
            found = forecast.predict(context.num_tokens, context.num_cached.get(model, 0))
            numbers |= {f"{role}: quality": self._ranks[role], f"{role}: TTFT s": found.ttft_s}
            numbers |= {f"{role}: TTFT's spread s": found.spread_s, f"{role}: TPOT s": found.tpot_s}
            if _keeps(found, limits):
                self._try_after_s[role] = _FIRST_TRY_S
                why = f"the best one that is predicted to keep the SLO: {_describe(found, limits)}"
                return self._choice(role, why, numbers)
            if forecast.is_idle and forecast.age_s > self._try_after_s[role]:
                self._try_after_s[role] *= 2
                why = f"idle for {forecast.age_s:.0f} s, and tried: {_describe(found, limits)}"
                return self._choice(role, why, numbers)
            best = best or (role, found)
        if best is None:
            return self._choice(
                self._roles[0], "the best one, since no engine has told of its load: a running server knows it", numbers
            )
        why = f"none is predicted to keep the SLO, so the best one, late: {_describe(best[1], limits)}"
        return self._choice(best[0], why, numbers)

    def _choice(self, role: str, why: str, numbers: Mapping[str, float]) -> Choice:
        return Choice(self._models[role], self.name, why, numbers, role)


def _keeps(found: Prediction, limits: SLO) -> bool:
    is_soon = limits.ttft_s is None or found.ttft_s + _CAUTION * found.spread_s <= limits.ttft_s
    return is_soon and (limits.tpot_s is None or found.tpot_s <= limits.tpot_s)


def _describe(found: Prediction, limits: SLO) -> str:
    parts = (("TTFT", found.ttft_s, limits.ttft_s), ("TPOT", found.tpot_s, limits.tpot_s))
    return ", ".join(
        f"{name} {seconds:.3g} s" + (f" of {limit:g} s" if limit is not None else "") for name, seconds, limit in parts
    )
