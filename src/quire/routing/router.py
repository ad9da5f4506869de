"""The router over models and its configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from quire.forecast import Forecast
from quire.routing.classifier import QueryEmbedder
from quire.routing.examples import DOMAIN, QUERY, ExamplesPolicy
from quire.routing.files import check_keys, numbers_of, read_yaml
from quire.routing.policy import NO_SLO, SLO, Choice, Policy, RoutingContext, RoutingError
from quire.routing.round_robin import RoundRobinPolicy
from quire.routing.slo import SloPolicy

NEED_EMBEDDER = (QUERY, DOMAIN)


@dataclass(frozen=True)
class RoutingConfig:
    """Routing of requests to `model: "auto"`. Raises RoutingError for an unknown policy, or without models."""

    policy: str  #: one of `POLICIES`
    models: Mapping[str, str] = field(default_factory=dict)  #: served names by role
    query_examples: Path | None = None  #: example questions by role, in place of those shipped with Quire
    query_threshold: float = 0.0  #: log odds above which a question goes to the large model
    domain_examples: Path | None = None  #: as `query_examples`
    slo: SLO = NO_SLO  #: limits of requests that name none
    slo_by_key: Mapping[str, SLO] = field(default_factory=dict)  #: the same, by API key id
    #: rank by role, or one per stage of a model; higher is better; by default models are best first
    quality: Mapping[str, float | Sequence[float]] | None = None

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise RoutingError(f"there is no policy {self.policy!r}; there are {', '.join(POLICIES)}")
        if not self.models:
            raise RoutingError("no models are named; give each as ROLE=NAME, such as small=quire-chat,large=quire-mini")

    @classmethod
    def from_file(cls, path: Path) -> RoutingConfig:
        """Read a YAML file with `policy`, `models`, and a section for each policy's options.

            policy: query
            models: {small: quire-chat, large: quire-mini}
            query: {examples: my_questions.yaml, threshold: 0.5}
            domain: {examples: my_examples.yaml}
            slo: {ttft_s: 0.5, quality: {large: [67, 76, 79], small: 60}, keys: {'9f2c41d07be83a56': {ttft_s: 0.2}}}

        File names are relative to this file. Raises RoutingError, which names the entry.
        """
        data = read_yaml(path)
        check_keys(data, required=("policy", "models"), optional=("query", "domain", "slo"), location=str(path))
        models = data["models"]
        if not isinstance(models, dict) or not all(isinstance(name, str) for name in models.values()):
            raise RoutingError(f"{path}: models should be a mapping of roles to served names, got {models!r}")
        query, domain, slo = (_section(data, name, path) for name in ("query", "domain", "slo"))
        check_keys(query, optional=("examples", "threshold"), location=f"{path}: query")
        check_keys(domain, optional=("examples",), location=f"{path}: domain")
        check_keys(slo, optional=("ttft_s", "tpot_s", "quality", "keys"), location=f"{path}: slo")
        quality = slo.pop("quality", None)
        keys = _section(slo, "keys", path)
        slo.pop("keys", None)
        if unquoted := [key for key in keys if not isinstance(key, str)]:
            raise RoutingError(f"{path}: slo: keys: {unquoted[0]!r} is a number; quote the key's id")
        return cls(
            policy=str(data["policy"]),
            models={str(role): name for role, name in models.items()},
            query_examples=path.parent / str(query["examples"]) if "examples" in query else None,
            query_threshold=numbers_of({"threshold": query.get("threshold", 0)}, f"{path}: query")["threshold"],
            domain_examples=path.parent / str(domain["examples"]) if "examples" in domain else None,
            slo=_slo(slo, f"{path}: slo"),
            slo_by_key={key: _slo(limits, f"{path}: slo: keys: {key}") for key, limits in keys.items()},
            quality=None if quality is None else _quality(quality, f"{path}: slo: quality"),
        )


class Router:
    """Chooses the model for each question by one policy. Thread-safe. RoutingError for a model that is not `served` or
    an invalid configuration. Policies in `NEED_EMBEDDER` need `embedder`."""

    def __init__(
        self, config: RoutingConfig, served: Sequence[str] | None = None, embedder: QueryEmbedder | None = None
    ) -> None:
        for role, model in config.models.items():
            if served is not None and model not in served:
                raise RoutingError(f"the model {model!r} ({role}) is not served; served are {', '.join(served)}")
        self.config = config
        self.policy = POLICIES[config.policy](config, embedder)

    def route(
        self,
        question: str,
        *,
        num_tokens: int = 0,
        slo: SLO | None = None,
        key_id: str | None = None,
        forecasts: Mapping[str, Forecast | None] | None = None,
        num_cached: Mapping[str, int] | None = None,
        stage_waits: Mapping[str, Mapping[int, float]] | None = None,
    ) -> Choice:
        """Choose the model for any text (the question without passages; `num_tokens` of the whole prompt, of which
        `num_cached` have KV, by served name), and say why. `slo` and then the configuration of `key_id`, and of all,
        limit latencies; `forecasts` are None for a model that takes no requests. `stage_waits` are the seconds until
        each stage of a loading model serves, 0 for the present one."""
        known = {model: forecast for model, forecast in (forecasts or {}).items() if forecast is not None}
        own, of_key = slo or NO_SLO, self.config.slo_by_key.get(key_id or "", NO_SLO)
        limits = SLO(own.ttft_s or of_key.ttft_s, own.tpot_s or of_key.tpot_s)
        return self.policy.choose(
            question, RoutingContext(num_tokens, limits, known, num_cached or {}, stage_waits or {})
        )

    @property
    def needs_forecasts(self) -> bool:
        """Whether the policy uses forecasts; otherwise the caller can skip collecting them."""
        return self.config.policy == SloPolicy.name


def parse_models(text: str) -> dict[str, str]:
    """Parse served names by role from "small=quire-chat,large=quire-mini"; a name alone is its own role."""
    models: dict[str, str] = {}
    for part in text.split(","):
        role, equals, name = (each.strip() for each in part.partition("="))
        if not role or (equals and not name):
            raise RoutingError(f"models={text!r} is not a list of ROLE=NAME, such as small=quire-chat,large=quire-mini")
        if role in models:
            raise RoutingError(f"models={text!r} names {role!r} twice")
        models[role] = name if equals else role
    return models


#: A new policy is one file and one line here.
POLICIES: dict[str, Callable[[RoutingConfig, QueryEmbedder | None], Policy]] = {
    "round-robin": lambda config, embedder: RoundRobinPolicy(config.models),
    "query": lambda config, embedder: ExamplesPolicy(
        QUERY, config.models, embedder, config.query_examples, config.query_threshold
    ),
    "domain": lambda config, embedder: ExamplesPolicy(DOMAIN, config.models, embedder, config.domain_examples),
    "slo": lambda config, embedder: SloPolicy(config.models, config.slo, config.quality),
}


def _slo(data: object, location: str) -> SLO:
    if not isinstance(data, dict):
        raise RoutingError(f"{location} should be a mapping, got {data!r}")
    check_keys(data, optional=("ttft_s", "tpot_s"), location=location)
    return SLO(**numbers_of(data, location))


def _quality(data: object, location: str) -> dict[str, float | Sequence[float]]:
    if not isinstance(data, dict):
        return dict(numbers_of(data, location))
    by_stage = {str(role): rank for role, rank in data.items() if isinstance(rank, list) and rank}
    single = numbers_of({role: rank for role, rank in data.items() if str(role) not in by_stage}, location)
    ranks = {role: list(numbers_of(dict(enumerate(rank, 1)), f"{location}: {role}: stage").values())
             for role, rank in by_stage.items()}  # fmt: skip
    return {**single, **ranks}


def _section(data: Mapping[str, object], name: str, path: Path) -> dict[str, object]:
    section = data.get(name) or {}
    if not isinstance(section, dict):
        raise RoutingError(f"{path}: {name} should be a mapping, got {section!r}")
    return section
