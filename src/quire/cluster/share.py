"""The resources of one replica: machines, CPUs and GPUs. Imports Ray lazily."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quire.cluster.settings import ClusterSettings
    from quire.config import EngineConfig

logger = logging.getLogger("quire")


@dataclass(frozen=True)
class ReplicaShare:
    """The resources that Ray reserves for one replica. On several machines, all ranks but the first are actors."""

    num_ranks: int
    num_machines: int
    num_cpus: float
    num_gpus: float

    @property
    def ranks_a_machine(self) -> int:
        return self.num_ranks // self.num_machines

    @property
    def cpus_a_machine(self) -> float:
        return self.num_cpus / self.num_machines

    @property
    def gpus_a_machine(self) -> float:
        return self.num_gpus / self.num_machines

    def of_rank(self) -> dict[str, float]:
        return {"num_cpus": _part(self.num_cpus, self.num_ranks), "num_gpus": _part(self.num_gpus, self.num_ranks)}

    def placement(self) -> dict[str, Any]:
        if self.num_machines == 1:  # the ranks' processes use the actor's resources
            return {"ray_actor_options": {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus}}
        bundle = {"CPU": self.cpus_a_machine} | ({"GPU": self.gpus_a_machine} if self.num_gpus else {})
        return {
            "ray_actor_options": self.of_rank(),
            "placement_group_bundles": [bundle] * self.num_machines,
            "placement_group_strategy": "STRICT_SPREAD",
        }

    def check_room(self, name: str, *, is_all: bool) -> None:
        """Raise ValueError if even empty machines are too small; warn instead if more may come (not `is_all`)."""
        import ray

        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        large = [
            machine
            for machine in machines
            if machine.get("CPU", 0) >= self.cpus_a_machine and machine.get("GPU", 0) >= self.gpus_a_machine
        ]
        if len(large) >= self.num_machines:
            return
        what = f"{self.cpus_a_machine:g} CPUs" + (f" and {self.gpus_a_machine:g} GPUs" if self.num_gpus else "")
        where = "one machine" if self.num_machines == 1 else f"each of {self.num_machines} machines"
        remedy = "lower replica_cpus" + (" or replica_gpus" if self.num_gpus else "")
        if self.num_ranks > 1:
            remedy += ", or use replica_machines to spread the ranks over more or fewer machines"
        text = (
            f"a replica of {name} needs {what} on {where}, and {len(large)} of the cluster's {len(machines)} "
            f"{'has' if len(large) == 1 else 'have'} as much; {remedy}"
        )
        if is_all:
            raise ValueError(text)
        logger.warning("%s. It waits for larger machines", text)


def share_of(config: EngineConfig, cluster: ClusterSettings) -> ReplicaShare:
    """Compute a replica's resources; raise ValueError if its ranks cannot be spread evenly over the machines."""
    ranks, machines = config.tensor_parallel_size, cluster.replica_machines
    if ranks % machines:
        raise ValueError(
            f"replica_machines={machines} does not divide tensor_parallel_size={ranks}, but all machines need as many "
            "ranks; choose a divisor"
        )
    gpus = cluster.replica_gpus
    if gpus is None:
        gpus = ranks if config.device == "cuda" else 0
    return ReplicaShare(ranks, machines, cluster.replica_cpus or ranks, gpus)


def _part(total: float, among: int) -> float:
    """Divide and round down to Ray's unit of 0.0001, so that the parts do not exceed the whole."""
    return math.floor(total / among * 10_000) / 10_000
