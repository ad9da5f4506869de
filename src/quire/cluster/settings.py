"""What an operator may choose about a cluster; the engines' and the server's choices are their own settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from quire.settings import EnvironmentSettings, setting

if TYPE_CHECKING:
    from quire.routing.replicas import Autoscaling

_ROUTING = ("prefix", "slo", "least-loaded", "round-robin")  # written out, since `--help` imports nothing of the rest


@dataclass(frozen=True)
class ClusterSettings(EnvironmentSettings):
    """How many replicas each model has, what each takes of a machine, and which one a request goes to.

    Every field is an option of `quire serve`, and QUIRE_<NAME> in the environment. Without `ray` none of them counts.
    """

    ray: bool = setting(False, "Serve on Ray: each model has replicas, on the machines of a cluster.", is_flag=True)
    ray_address: str | None = setting(
        None,
        "Join the Ray cluster at this address, such as auto or 10.0.0.1:6379; by default one is started here.",
        metavar="ADDRESS",
    )
    min_replicas: int = setting(1, "Fewest replicas of each model; 0 gives its memory back when idle.", at_least=0)
    max_replicas: int = setting(1, "Most replicas of each model.", at_least=1)
    target_requests: float = setting(
        16.0, "Requests, waiting ones among them, that one replica has at once; with more there is another.", above=0
    )
    target_replica_ttft_ms: float | None = setting(
        None, "Another replica comes, too, where the best one predicts a later first token than this.", above=0
    )
    scale_down_after_s: float = setting(
        60.0,
        "Seconds for which fewer replicas must have been enough, before any is given up.",
        name="scale_down_after",
        metavar="SECONDS",
        at_least=0,
    )
    replica_routing: str = setting(
        "prefix",
        "Which replica of a model answers: prefix (that has most of the prompt's KV, then the least loaded), slo (the "
        "soonest first token that is predicted), least-loaded or round-robin.",
        choices=_ROUTING,
    )
    replica_cpus: int | None = setting(
        None,
        "CPUs that Ray keeps for each replica, by default one a rank; as many threads compute, where num_threads does "
        "not say.",
        at_least=1,
    )
    replica_gpus: float | None = setting(
        None, "GPUs that Ray keeps for each replica; by default one a rank with device=cuda, else none.", at_least=0
    )
    replica_machines: int = setting(
        1, "Machines that the ranks of each replica are on, as many on each; see tensor_parallel_size.", at_least=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_replicas < self.min_replicas:
            raise ValueError(
                f"min_replicas={self.min_replicas} is more than max_replicas={self.max_replicas}; raise max_replicas"
            )
        if self.ray_address is not None and not self.ray:
            raise ValueError("ray_address names a Ray cluster, and nothing is served on Ray; add ray")

    @property
    def autoscaling(self) -> Autoscaling:
        """The bounds and targets of one model's replicas."""
        from quire.routing.replicas import Autoscaling

        ttft_ms = self.target_replica_ttft_ms
        return Autoscaling(
            self.min_replicas,
            self.max_replicas,
            self.target_requests,
            None if ttft_ms is None else ttft_ms / 1000,
            self.scale_down_after_s,
        )
