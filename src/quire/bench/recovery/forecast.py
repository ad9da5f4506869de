"""What the simulator predicts of a run of `quire bench recovery`, from costs that were measured before it.

The same requests, pool, limits and policy, on a virtual clock.
"""

from __future__ import annotations

from quire.bench.recovery.run import RecoveryRun
from quire.bench.serving.figures import distribution
from quire.bench.workload import Workload
from quire.config import SchedulerConfig
from quire.core.costs.cost_model import CostModel
from quire.core.recovery.policies import make_policy
from quire.simulate.hardware import HardwareProfile
from quire.simulate.simulation import Arrival, SimulationFigures, simulate

QUANTITIES = {
    "ttft_s": "mean TTFT",
    "ttft_p99_s": "P99 TTFT",
    "tpot_s": "mean TPOT",
    "tpot_p99_s": "P99 TPOT",
    "wall_s": "wall time",
    "recovery_s": "seconds spent on recovery",
}


def predict(config: SchedulerConfig, policy: str, prior: CostModel, workload: Workload) -> SimulationFigures:
    """Simulate a load that comes all at once. The policy begins with the engine's prior, and learns as the engine's."""
    hardware = HardwareProfile(
        name="measured",
        hardware="this machine",
        model="this model",
        costs=CostModel.from_dict(prior.to_dict()),
        bytes_per_token=config.block_bytes // config.block_size,
    )
    learner = CostModel.from_dict(prior.to_dict())
    arrivals = [Arrival(0.0, len(r.prompt_token_ids), r.max_tokens, r.prompt_token_ids) for r in workload.requests]
    return simulate(arrivals, hardware, config, make_policy(policy, learner), learner=learner)


def compare(run: RecoveryRun, predicted: SimulationFigures) -> dict[str, dict[str, float]]:
    """Of each of `QUANTITIES`: what the engine took, what was predicted, and the error relative to the engine."""
    found: dict[str, dict[str, float]] = {}
    repetition = run.repetition
    pairs: dict[str, tuple[float | None, float | None]] = {
        "wall_s": (repetition.wall_s, predicted.makespan_s),
        "recovery_s": (run.recovery_s, predicted.recovery_s),
    }
    for name in ("ttft", "tpot"):
        measured, simulated = distribution(getattr(repetition, f"{name}_s")), getattr(predicted, f"{name}_s")
        if measured is not None and simulated is not None:
            pairs[f"{name}_s"] = measured["mean"], simulated.mean
            pairs[f"{name}_p99_s"] = measured["p99"], simulated.p99
    for name in QUANTITIES:
        engine, simulator = pairs.get(name, (None, None))
        if engine and simulator is not None:
            found[name] = {"engine": engine, "simulator": simulator, "error": simulator / engine - 1.0}
    return found
