"""What one replica takes of a cluster: how many machines, and what of each. Imports no Ray but where it asks it."""

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
    """What Ray keeps for one replica.

    Attributes:
        num_ranks: that hold the model together, as many on each machine.
        num_machines: that they are on. On one, all ranks are processes beside the engine's; else all but the first are
            actors.
        num_cpus: of all machines together.
        num_gpus: likewise.
    """

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
        """An actor's options, where each rank is one."""
        return {"num_cpus": _part(self.num_cpus, self.num_ranks), "num_gpus": _part(self.num_gpus, self.num_ranks)}

    def placement(self) -> dict[str, Any]:
        """A deployment's options."""
        if self.num_machines == 1:  # the replica's processes compute with what its actor has
            return {"ray_actor_options": {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus}}
        bundle = {"CPU": self.cpus_a_machine} | ({"GPU": self.gpus_a_machine} if self.num_gpus else {})
        return {
            "ray_actor_options": self.of_rank(),
            "placement_group_bundles": [bundle] * self.num_machines,
            "placement_group_strategy": "STRICT_SPREAD",
        }

    def check_room(self, name: str, *, is_all: bool) -> None:
        """Say so where the machines that Ray has now are too small or too few, even with nothing else on them.

        Args:
            name: of the model.
            is_all: no further machine will come.

        Raises:
            ValueError: there is no room, and none will come.
        """
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
        mend = "lower replica_cpus" + (" or replica_gpus" if self.num_gpus else "")
        if self.num_ranks > 1:
            mend += ", or let replica_machines spread the ranks of tensor_parallel_size over more or fewer machines"
        text = (
            f"a replica of {name} needs {what} on {where}, and {len(large)} of the cluster's {len(machines)} "
            f"{'has' if len(large) == 1 else 'have'} as much; {mend}"
        )
        if is_all:
            raise ValueError(text)
        logger.warning("%s. It waits until such machines come", text)


def share_of(config: EngineConfig, cluster: ClusterSettings) -> ReplicaShare:
    """What each replica of an engine takes.

    Raises:
        ValueError: its ranks cannot be shared out evenly among so many machines.
    """
    ranks, machines = config.tensor_parallel_size, cluster.replica_machines
    if ranks % machines:
        raise ValueError(
            f"replica_machines={machines} does not divide tensor_parallel_size={ranks}: each machine has as many "
            "ranks as the others; choose a divisor"
        )
    gpus = cluster.replica_gpus
    if gpus is None:
        gpus = ranks if config.device == "cuda" else 0
    return ReplicaShare(ranks, machines, cluster.replica_cpus or ranks, gpus)


def _part(of: float, among: int) -> float:
    """Ray counts in ten-thousandths; all parts together must not be more than the whole."""
    return math.floor(of / among * 10_000) / 10_000
