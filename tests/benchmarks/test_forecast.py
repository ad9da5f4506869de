"""The simulator's prediction of a run: the same schedule, with stated errors."""

from __future__ import annotations

import pytest

from benchmarks.recovery.experiment import compare, predict
from benchmarks.recovery.load import make_mix
from benchmarks.recovery.run import RecoveryRun
from quire.bench.report import Repetition
from quire.config import SchedulerConfig
from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.costs import StepShape

CONFIG = SchedulerConfig(
    num_blocks=24, block_size=8, max_model_len=128, max_num_batched_tokens=64, max_num_seqs=8, watermark_blocks=0,
    enable_prefix_caching=False, num_swap_slots=100, block_bytes=4096,
)  # fmt: skip
NAMES = {"wall_s": "makespan_s", "ttft_s": "ttft_s.mean", "tpot_s": "tpot_s.mean", "recovery_s": "recovery_s"}
WORKLOAD = make_mix("mixed", 16, 128, ids=range(3, 253))


def prior(factor: float = 1.0) -> CostModel:
    """Steps of 10 ms plus 1 ms per token, times a factor, and a link of 10 MB/s."""
    model = CostModel()
    for num_tokens in (1, 2, 4, 8, 16, 32, 64) * 4:
        model.observe_step(StepShape(num_tokens, min(num_tokens, 4)), factor * (0.01 + 1e-3 * num_tokens))
        for kind in ("save", "load"):
            model.observe_transfer(kind, num_tokens * 4096, num_tokens * 4096 / 1e7)
    return model


def test_all_requests_run_and_some_are_preempted() -> None:
    predicted = predict(CONFIG, "recompute", prior(), WORKLOAD)
    assert predicted.num_requests == 16
    assert predicted.num_output_tokens == sum(request.max_tokens for request in WORKLOAD.requests)
    assert predicted.num_preemptions > 3
    assert predicted.recompute_s > 0 == predicted.save_s


def test_a_machine_twice_as_slow_takes_twice_as_long() -> None:
    fast, slow = (predict(CONFIG, "recompute", prior(factor), WORKLOAD) for factor in (1.0, 2.0))
    assert slow.makespan_s == pytest.approx(2 * fast.makespan_s, rel=0.01)


def test_what_was_believed_is_not_changed() -> None:
    model = prior()
    before = model.to_dict()
    predict(CONFIG, "cost", model, WORKLOAD)
    assert model.to_dict() == before


def test_errors_are_relative_to_the_engine() -> None:
    predicted = predict(CONFIG, "swap", prior(), WORKLOAD)
    assert predicted.ttft_s is not None
    assert predicted.tpot_s is not None
    mean_ttft, mean_tpot = predicted.ttft_s.mean, predicted.tpot_s.mean
    repetition = Repetition(predicted.makespan_s / 1.1, 1, 1, [mean_ttft / 2] * 3, [mean_tpot] * 3)
    run = RecoveryRun(repetition, [], [], 0, predicted.recovery_s, 0.0, 0.0, 0.0, [])
    errors = {name: each["error"] for name, each in compare(run, predicted, NAMES).items()}
    assert set(errors) == set(NAMES)
    assert errors["wall_s"] == pytest.approx(0.1)
    assert errors["ttft_s"] == pytest.approx(1.0)
    assert errors["tpot_s"] == errors["recovery_s"] == pytest.approx(0.0)
