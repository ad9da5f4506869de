"""Playing a workload: every request gets its tokens, and arrival times are kept on demand."""

from __future__ import annotations

import pytest

from benchmarks.null_runner import NullRunner
from quire.bench.timing import play
from quire.bench.workload import Workload, WorkloadRequest, token_range
from quire.config import SchedulerConfig
from quire.engine.engine import Engine, ModelFacts
from quire.runner.batch import InputBatch


@pytest.fixture
def engine() -> Engine:
    config = SchedulerConfig(num_blocks=64, max_model_len=128, max_num_seqs=8)
    return Engine(config, NullRunner(InputBatch(8, 128, 16)), ModelFacts(16_000))


def test_all_requests_come_at_once_unless_arrivals_are_kept(engine: Engine) -> None:
    late = Workload("W", [WorkloadRequest([400] * 5, 3, arrival_s=0.05), WorkloadRequest([500] * 4, 2)])
    result, tokens = play(engine, late)
    assert [len(ids) for ids in tokens] == [3, 2]
    assert (result.num_prompt_tokens, result.num_output_tokens) == (9, 5)
    assert len(result.ttft_s) == len(result.tpot_s) == 2
    kept, tokens = play(engine, late, keep_arrivals=True)
    assert [len(ids) for ids in tokens] == [3, 2]
    assert kept.wall_s >= 0.05
    assert not engine.has_unfinished()


def test_a_request_that_does_not_fit_is_refused_and_leaves_nothing_behind(engine: Engine) -> None:
    workload = Workload("W", [WorkloadRequest([400], 4), WorkloadRequest([400] * 500, 1)])
    with pytest.raises(ValueError, match="128"):
        play(engine, workload)
    assert not engine.has_unfinished()


def test_workloads_use_ids_that_a_small_model_has_too() -> None:
    assert token_range(151_936) == range(300, 15_900)
    assert token_range(512) == range(300, 512)
    assert token_range(256) == range(256)
