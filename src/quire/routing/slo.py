"""The policy `slo`: choose the best model whose predicted TTFT and TPOT (`quire.forecast`) meet the request's SLO, else
the best one, so that only late requests are late (measured in benchmarks/RESULTS.md). Of a model that loads in stages,
it chooses the stage too: answer now, or wait for a better one within the limit of the TTFT. Engines learn their speed
from requests, so an idle slow model is probed after one minute, then two, four and so on, until it meets the SLO."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from quire.forecast import Forecast, Prediction
from quire.routing.policy import NO_CONTEXT, NO_SLO, SLO, Choice, RoutingContext, RoutingError

_FIRST_PROBE_S = 60.0
_CAUTION = 2.0  #: standard deviations added to the predicted TTFT


@dataclass(frozen=True)
class _Candidate:
    role: str
    name: str  #: in the explanation: the role, and a stage that it waits for
    rank: float
    forecast: Forecast
    prediction: Prediction
    min_stage: int = 1  #: 1 to answer now


class SloPolicy:
    """Weigh the rank of models (`quality` by role, for a model in stages one per stage; else their order) against
    predicted latencies. `slo` holds the default limits. RoutingError if `quality` has other roles than `models`."""

    name = "slo"

    def __init__(
        self,
        models: Mapping[str, str],
        slo: SLO = NO_SLO,
        quality: Mapping[str, float | Sequence[float]] | None = None,
    ) -> None:
        if quality is not None and set(quality) != set(models):
            raise RoutingError(
                f"the policy slo ranks the models {', '.join(models)}, and quality is of {', '.join(quality) or 'none'}"
            )
        self._models = dict(models)
        self._slo = slo
        ranks = quality or {role: float(len(models) - at) for at, role in enumerate(models)}
        self._ranks = {role: (rank,) if isinstance(rank, int | float) else tuple(rank) for role, rank in ranks.items()}
        self._best = max(models, key=lambda role: self._ranks[role][-1])
        self._probe_after_s = dict.fromkeys(models, _FIRST_PROBE_S)  #: of idleness

    def choose(self, question: str, context: RoutingContext = NO_CONTEXT) -> Choice:
        limits = SLO(context.slo.ttft_s or self._slo.ttft_s, context.slo.tpot_s or self._slo.tpot_s)
        candidates = sorted(self._candidates(context, limits), key=lambda each: (-each.rank, each.prediction.ttft_s))
        numbers: dict[str, float] = {}
        for candidate in candidates:
            role, found = candidate.role, candidate.prediction
            numbers |= {f"{candidate.name}: quality": candidate.rank, f"{candidate.name}: TTFT s": found.ttft_s}
            numbers |= {f"{candidate.name}: TTFT's spread s": found.spread_s, f"{candidate.name}: TPOT s": found.tpot_s}
            if _keeps(found, limits):
                self._probe_after_s[role] = _FIRST_PROBE_S
                why = f"the best one predicted to keep the SLO: {_describe(found, limits)}"
                return self._choice(candidate, why, numbers)
            forecast = candidate.forecast
            if candidate.min_stage == 1 and forecast.is_idle and forecast.age_s > self._probe_after_s[role]:
                self._probe_after_s[role] *= 2
                why = f"a probe after {candidate.forecast.age_s:.0f} idle seconds: {_describe(found, limits)}"
                return self._choice(candidate, why, numbers)
        best = next((candidate for candidate in candidates if candidate.min_stage == 1), None)
        if best is None:
            why = "the best one, since no engine has reported its load"
            return Choice(self._models[self._best], self.name, why, numbers, self._best)
        why = f"the best one, late, since none is predicted to keep the SLO: {_describe(best.prediction, limits)}"
        return self._choice(best, why, numbers)

    def _candidates(self, context: RoutingContext, limits: SLO) -> Iterator[_Candidate]:
        """Yield each model as it is, and at each later stage that has a rank, if the TTFT is limited."""
        for role, model in self._models.items():
            if (forecast := context.forecasts.get(model)) is None:
                continue
            found = forecast.predict(context.num_tokens, context.num_cached.get(model, 0))
            ranks = self._ranks[role]
            waits = context.stage_waits.get(model) or {len(ranks): 0.0}
            now = min(waits)
            yield _Candidate(role, role, ranks[min(now, len(ranks)) - 1], forecast, found)
            for stage in range(now + 1, len(ranks) + 1):
                if stage in waits and limits.ttft_s is not None:
                    later = found._replace(ttft_s=found.ttft_s + waits[stage])
                    yield _Candidate(role, f"{role}, stage {stage}", ranks[stage - 1], forecast, later, stage)

    def _choice(self, candidate: _Candidate, why: str, numbers: Mapping[str, float]) -> Choice:
        why = f"{why}, waiting for stage {candidate.min_stage}" if candidate.min_stage > 1 else why
        return Choice(self._models[candidate.role], self.name, why, numbers, candidate.role, candidate.min_stage)


def _keeps(found: Prediction, limits: SLO) -> bool:
    keeps_ttft = limits.ttft_s is None or found.ttft_s + _CAUTION * found.spread_s <= limits.ttft_s
    return keeps_ttft and (limits.tpot_s is None or found.tpot_s <= limits.tpot_s)


def _describe(found: Prediction, limits: SLO) -> str:
    parts = (("TTFT", found.ttft_s, limits.ttft_s), ("TPOT", found.tpot_s, limits.tpot_s))
    return ", ".join(
        f"{name} {seconds:.3g} s" + (f" of {limit:g} s" if limit is not None else "") for name, seconds, limit in parts
    )
