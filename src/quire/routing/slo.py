"""The policy `slo`: choose the best model whose predicted TTFT and TPOT (`quire.forecast`) meet the request's SLO, else
the best one, so that only late requests are late (measured in benchmarks/RESULTS.md). Engines learn their speed from
requests, so an idle slow model is probed after one minute, then two, four and so on, until it meets the SLO."""

from __future__ import annotations

from collections.abc import Mapping

from quire.forecast import Prediction
from quire.routing.policy import NO_CONTEXT, NO_SLO, SLO, Choice, RoutingContext, RoutingError

_FIRST_PROBE_S = 60.0
_CAUTION = 2.0  #: standard deviations added to the predicted TTFT


class SloPolicy:
    """Weigh the rank of models (`quality` by role, else their order) against predicted latencies. `slo` holds the
    default limits. RoutingError if `quality` has other roles than `models`."""

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
        self._roles = sorted(models, key=lambda role: -ranks[role])  #: best first
        self._ranks = dict(ranks)
        self._probe_after_s = dict.fromkeys(models, _FIRST_PROBE_S)  #: of idleness

    def choose(self, question: str, context: RoutingContext = NO_CONTEXT) -> Choice:
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
                self._probe_after_s[role] = _FIRST_PROBE_S
                why = f"the best one predicted to keep the SLO: {_describe(found, limits)}"
                return self._choice(role, why, numbers)
            if forecast.is_idle and forecast.age_s > self._probe_after_s[role]:
                self._probe_after_s[role] *= 2
                why = f"a probe after {forecast.age_s:.0f} idle seconds: {_describe(found, limits)}"
                return self._choice(role, why, numbers)
            best = best or (role, found)
        if best is None:
            return self._choice(self._roles[0], "the best one, since no engine has reported its load", numbers)
        why = f"the best one, late, since none is predicted to keep the SLO: {_describe(best[1], limits)}"
        return self._choice(best[0], why, numbers)

    def _choice(self, role: str, why: str, numbers: Mapping[str, float]) -> Choice:
        return Choice(self._models[role], self.name, why, numbers, role)


def _keeps(found: Prediction, limits: SLO) -> bool:
    keeps_ttft = limits.ttft_s is None or found.ttft_s + _CAUTION * found.spread_s <= limits.ttft_s
    return keeps_ttft and (limits.tpot_s is None or found.tpot_s <= limits.tpot_s)


def _describe(found: Prediction, limits: SLO) -> str:
    parts = (("TTFT", found.ttft_s, limits.ttft_s), ("TPOT", found.tpot_s, limits.tpot_s))
    return ", ".join(
        f"{name} {seconds:.3g} s" + (f" of {limit:g} s" if limit is not None else "") for name, seconds, limit in parts
    )
