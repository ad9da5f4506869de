"""Settings of `quire serve --ray`: replicas, their resources and routing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quire.config import EngineConfig
from quire.settings import EnvironmentSettings, setting

if TYPE_CHECKING:
    from quire.routing.replicas import Autoscaling
    from quire.server.settings import ServerSettings

_ROUTING = ("prefix", "slo", "least-loaded", "round-robin")  # repeated here, so that `--help` imports no router


@dataclass(frozen=True)
class ClusterSettings(EnvironmentSettings):
    """Options of `quire serve --ray`, and QUIRE_<NAME> in the environment. Without `ray` they have no effect."""

    ray: bool = setting(False, "Serve on Ray: each model has replicas, on the machines of a cluster.", is_flag=True)
    ray_address: str | None = setting(
        None,
        "Join the Ray cluster at this address, such as auto or 10.0.0.1:6379; by default one is started here.",
        metavar="ADDRESS",
    )
    min_replicas: int = setting(1, "Fewest replicas of each model; 0 gives its memory back when idle.", at_least=0)
    max_replicas: int = setting(1, "Most replicas of each model.", at_least=1)
    target_requests: float = setting(
        16.0, "Add a replica above this number of requests per replica, running and waiting.", above=0
    )
    target_replica_ttft_ms: float | None = setting(
        None, "Also add a replica if the best one predicts a later first token than this.", above=0
    )
    scale_down_after_s: float = setting(
        60.0,
        "Remove a replica after fewer have been enough for this long.",
        name="scale_down_after",
        metavar="SECONDS",
        at_least=0,
    )
    replica_routing: str = setting(
        "prefix",
        "How to choose a replica: prefix (most KV of the prompt, then least loaded), slo (earliest predicted first "
        "token), least-loaded or round-robin.",
        choices=_ROUTING,
    )
    replica_cpus: int | None = setting(
        None,
        "CPUs that Ray reserves per replica, by default one per rank. Also the default of num_threads.",
        at_least=1,
    )
    replica_gpus: float | None = setting(
        None, "GPUs that Ray reserves per replica; by default one per rank with device=cuda, else none.", at_least=0
    )
    replica_machines: int = setting(
        1, "Machines per replica. The ranks of tensor_parallel_size are spread evenly over them.", at_least=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_replicas < self.min_replicas:
            raise ValueError(
                f"min_replicas={self.min_replicas} is more than max_replicas={self.max_replicas}; raise max_replicas"
            )
        if self.ray_address is not None and not self.ray:
            raise ValueError("ray_address names a Ray cluster, but ray is not set; add ray")

    @property
    def autoscaling(self) -> Autoscaling:
        """Limits and targets of one model's replicas."""
        from quire.routing.replicas import Autoscaling

        ttft_ms = self.target_replica_ttft_ms
        return Autoscaling(
            self.min_replicas,
            self.max_replicas,
            self.target_requests,
            None if ttft_ms is None else ttft_ms / 1000,
            self.scale_down_after_s,
        )


@dataclass(frozen=True)
class AppSpec:
    """The models of a cluster and their settings."""

    engines: dict[str, EngineConfig]  #: by served name, in order
    settings: ServerSettings  #: API keys included
    cluster: ClusterSettings
    template: str | None = None  #: replaces the models' own chat templates
    aliases: tuple[str, ...] = ()  #: further names of the only model

    @property
    def deployments(self) -> dict[str, str]:
        """Deployment names by served name. Ray Serve allows fewer characters than model names have."""
        found: dict[str, str] = {}
        for number, name in enumerate(self.engines):
            plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", name)
            found[name] = plain if plain not in (*found.values(), "ingress") else f"{plain}-{number}"
        return found
