"""The sharing benchmark counts correctly, and its baseline computes the same without sharing."""

from __future__ import annotations

import pytest

from benchmarks.memory import measure_engine_waste, study
from benchmarks.sharing import CopyingKVCacheManager, copy_on_fork, run_once
from quire.assembly import LoadedModel, load, make_engine
from quire.bench.workload import Lengths, fixed_lengths, make_workload
from quire.config import EngineConfig
from quire.engine.engine import Engine
from quire.sampling_params import BeamSearchParams, SamplingParams

CONFIG = EngineConfig("random:tiny", num_kv_blocks=400, max_model_len=256, enable_prefix_caching=False, use_tqdm=False)


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load(CONFIG)


def make_engines(loaded: LoadedModel) -> tuple[Engine, Engine]:
    shared, copied = make_engine(CONFIG, loaded), make_engine(CONFIG, loaded)
    copy_on_fork(copied.scheduler)
    return shared, copied


@pytest.mark.parametrize(
    "params",
    [SamplingParams(n=3, max_tokens=40, seed=1, ignore_eos=True), BeamSearchParams(3, 40, ignore_eos=True)],
    ids=["parallel", "beam"],
)
def test_a_fork_that_copies_gives_the_tokens_of_a_fork_that_shares(
    loaded: LoadedModel, params: SamplingParams | BeamSearchParams
) -> None:
    results = []
    for engine in make_engines(loaded):
        answers = [engine.add_request(list(range(5, 45 + i)), params) for i in range(3)]
        while engine.has_unfinished():
            engine.step()
            if not _copies(engine):
                engine.scheduler.check_integrity()
        results.append([[c.token_ids for c in answer.to_output().outputs] for answer in answers])
    assert results[0] == results[1]


def _copies(engine: Engine) -> bool:
    """The baseline keeps the sources of its copies for a step, which the leak check would report."""
    return isinstance(engine.scheduler.kv, CopyingKVCacheManager)


def test_copies_save_nothing_and_shared_blocks_do(loaded: LoadedModel) -> None:
    shared, copied = make_engines(loaded)
    workload = make_workload("w", fixed_lengths(2, 64, 20), ids=range(3, 253))
    saved, _ = run_once(shared, workload, "parallel", 4)
    unsaved, _ = run_once(copied, workload, "parallel", 4)
    # 64 prompt tokens are 4 full blocks, shared 4 times; each sample adds one or two of its own.
    assert 0.4 < saved < 0.75
    assert unsaved <= 0.05
    assert copied.scheduler.kv.pool.num_used <= 4 * 6  # at most the sources of the last fork


def test_the_engines_own_waste_is_that_of_the_arithmetic() -> None:
    lengths = Lengths([100, 37, 512, 900], [50, 80, 33, 120])
    measured = measure_engine_waste(lengths, block_size=16)
    expected = next(w for w in study(lengths, 2048, [16]).wastes if w.policy == "blocks of 16")
    assert measured.preemptions == 0
    assert measured.wasted == pytest.approx(expected.time_weighted, abs=0.003)
