"""What the simulator predicts of a run of `quire bench recovery`, from costs that were measured before it.

The same requests, pool, limits and policy, on a virtual clock. Knows one run; knows nothing about tables.
"""

from __future__ import annotations

from typing import Any

from quire.bench.recovery.run import RecoveryRun, mean
from quire.bench.serving.figures import distribution
from quire.bench.workload import Workload
from quire.config import SchedulerConfig
from quire.core.costs.cost_model import CostModel
from quire.core.recovery.policies import make_policy
from quire.simulate.figures import Distribution
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
    """Simulate a load that comes all at once.

    Args:
        config: the engine's.
        policy: as `make_policy` reads it. It begins with the same prior as the engine's, and learns as that does.
        prior: what steps and transfers cost; not changed.
        workload: the requests.
    """
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
    for name, (engine, simulator) in _pairs(run, predicted).items():
        if engine and simulator is not None:
            found[name] = {"engine": engine, "simulator": simulator, "error": simulator / engine - 1.0}
    return found


def _pairs(run: RecoveryRun, predicted: SimulationFigures) -> dict[str, tuple[float | None, float | None]]:
    repetition = run.repetition
    return {
        "ttft_s": (mean(repetition.ttft_s), _of(predicted.ttft_s, "mean")),
        "ttft_p99_s": (_p99(repetition.ttft_s), _of(predicted.ttft_s, "p99")),
        "tpot_s": (mean(repetition.tpot_s), _of(predicted.tpot_s, "mean")),
        "tpot_p99_s": (_p99(repetition.tpot_s), _of(predicted.tpot_s, "p99")),
        "wall_s": (repetition.wall_s, predicted.makespan_s),
        "recovery_s": (run.recovery_s, predicted.recovery_s),
    }


def _p99(values: list[float]) -> float | None:
    spread: dict[str, Any] | None = distribution(values)
    return None if spread is None else float(spread["p99"])


def _of(spread: Distribution | None, name: str) -> float | None:
    return None if spread is None else float(getattr(spread, name))
