"""The router over models and its configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from quire.forecast import Forecast
from quire.routing.domain import DEFAULT_EXAMPLES, DEFAULT_TOP_K, DomainPolicy, QueryEmbedder, read_examples
from quire.routing.files import check_keys, numbers_of, read_yaml
from quire.routing.policy import NO_SLO, SLO, Choice, Policy, RoutingContext, RoutingError
from quire.routing.query import QueryPolicy
from quire.routing.round_robin import RoundRobinPolicy
from quire.routing.slo import SloPolicy


@dataclass(frozen=True)
class RoutingConfig:
    """Routing of requests to `model: "auto"`. Raises RoutingError for an unknown policy, or without models."""

    policy: str  #: one of `POLICIES`
    models: Mapping[str, str] = field(default_factory=dict)  #: served names by role
    query_file: Path | None = None  #: forms and weights, in place of those shipped with Quire
    query_threshold: float = 0.0  #: log odds above which a question goes to the large model
    domain_examples: Path = DEFAULT_EXAMPLES  #: example queries by role
    domain_top_k: int = DEFAULT_TOP_K  #: nearest examples per model that count
    slo: SLO = NO_SLO  #: limits of requests that name none
    slo_by_key: Mapping[str, SLO] = field(default_factory=dict)  #: the same, by API key id
    quality: Mapping[str, float] | None = None  #: rank by role, higher is better; by default models are best first

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise RoutingError(f"there is no policy {self.policy!r}; there are {', '.join(POLICIES)}")
        if not self.models:
            raise RoutingError("no models are named; give each as ROLE=NAME, such as small=quire-mini,large=quire-chat")

    @classmethod
    def from_file(cls, path: Path) -> RoutingConfig:
        """Read a YAML file with `policy`, `models`, and a section for each policy's options.

            policy: query
            models: {small: quire-mini, large: quire-chat}
            query: {file: my_forms.yaml, threshold: 0.5}
            domain: {examples: my_examples.yaml, top_k: 8}
            slo: {ttft_s: 0.5, tpot_s: 0.1, quality: {large: 2, small: 1}, keys: {'9f2c41d07be83a56': {ttft_s: 0.2}}}

        File names are relative to this file. Raises RoutingError, which names the entry.
        """
        data = read_yaml(path)
        check_keys(data, required=("policy", "models"), optional=("query", "domain", "slo"), location=str(path))
        models = data["models"]
        if not isinstance(models, dict) or not all(isinstance(name, str) for name in models.values()):
            raise RoutingError(f"{path}: models should be a mapping of roles to served names, got {models!r}")
        query, domain, slo = (_section(data, name, path) for name in ("query", "domain", "slo"))
        check_keys(query, optional=("file", "threshold"), location=f"{path}: query")
        check_keys(domain, optional=("examples", "top_k"), location=f"{path}: domain")
        check_keys(slo, optional=("ttft_s", "tpot_s", "quality", "keys"), location=f"{path}: slo")
        quality = slo.pop("quality", None)
        keys = _section(slo, "keys", path)
        slo.pop("keys", None)
        if unquoted := [key for key in keys if not isinstance(key, str)]:
            raise RoutingError(f"{path}: slo: keys: {unquoted[0]!r} is a number; quote the key's id")
        top_k = domain.get("top_k", DEFAULT_TOP_K)
        if not isinstance(top_k, int) or isinstance(top_k, bool):
            raise RoutingError(f"{path}: domain: top_k should be a whole number, got {top_k!r}")
        return cls(
            policy=str(data["policy"]),
            models={str(role): name for role, name in models.items()},
            query_file=path.parent / str(query["file"]) if "file" in query else None,
            query_threshold=numbers_of({"threshold": query.get("threshold", 0)}, f"{path}: query")["threshold"],
            domain_examples=path.parent / str(domain["examples"]) if "examples" in domain else DEFAULT_EXAMPLES,
            domain_top_k=top_k,
            slo=_slo(slo, f"{path}: slo"),
            slo_by_key={key: _slo(limits, f"{path}: slo: keys: {key}") for key, limits in keys.items()},
            quality=None if quality is None else numbers_of(quality, f"{path}: slo: quality"),
        )


class Router:
    """Chooses the model for each question by one policy. Thread-safe. RoutingError for a model that is not `served` or
    an invalid configuration. The policy `domain` needs `embedder`."""

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
    ) -> Choice:
        """Choose the model for any text (the question without passages; `num_tokens` of the whole prompt, of which
        `num_cached` have KV, by served name), and say why. `slo` and then the configuration of `key_id`, and of all,
        limit latencies; `forecasts` are None for a model that takes no requests."""
        known = {model: forecast for model, forecast in (forecasts or {}).items() if forecast is not None}
        own, of_key = slo or NO_SLO, self.config.slo_by_key.get(key_id or "", NO_SLO)
        limits = SLO(own.ttft_s or of_key.ttft_s, own.tpot_s or of_key.tpot_s)
        return self.policy.choose(question, RoutingContext(num_tokens, limits, known, num_cached or {}))

    @property
    def needs_forecasts(self) -> bool:
        """Whether the policy uses forecasts; otherwise the caller can skip collecting them."""
        return self.config.policy == SloPolicy.name


def parse_models(text: str) -> dict[str, str]:
    """Parse served names by role from "small=quire-mini,large=quire-chat"; a name alone is its own role."""
    models: dict[str, str] = {}
    for part in text.split(","):
        role, equals, name = (each.strip() for each in part.partition("="))
        if not role or (equals and not name):
            raise RoutingError(f"models={text!r} is not a list of ROLE=NAME, such as small=quire-mini,large=quire-chat")
        if role in models:
            raise RoutingError(f"models={text!r} names {role!r} twice")
        models[role] = name if equals else role
    return models


def _make_domain(config: RoutingConfig, embedder: QueryEmbedder | None) -> Policy:
    if embedder is None:
        raise RoutingError("the policy domain needs an embedder; name one")
    return DomainPolicy(config.models, read_examples(config.domain_examples), embedder, config.domain_top_k)


#: A new policy is one file and one line here.
POLICIES: dict[str, Callable[[RoutingConfig, QueryEmbedder | None], Policy]] = {
    "round-robin": lambda config, embedder: RoundRobinPolicy(config.models),
    "query": lambda config, embedder: QueryPolicy(config.models, config.query_file, config.query_threshold),
    "domain": _make_domain,
    "slo": lambda config, embedder: SloPolicy(config.models, config.slo, config.quality),
}


def _slo(data: object, location: str) -> SLO:
    if not isinstance(data, dict):
        raise RoutingError(f"{location} should be a mapping, got {data!r}")
    check_keys(data, optional=("ttft_s", "tpot_s"), location=location)
    return SLO(**numbers_of(data, location))


def _section(data: Mapping[str, object], name: str, path: Path) -> dict[str, object]:
    section = data.get(name) or {}
    if not isinstance(section, dict):
        raise RoutingError(f"{path}: {name} should be a mapping, got {section!r}")
    return section
