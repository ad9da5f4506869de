"""Calibration returns complete figures and a fitted model, and leaves the engine clean."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.null_runner import NullRunner
from quire.assembly import LoadedModel, load, make_engine
from quire.calibration.calibrate import calibrate_engine, default_lengths, quick_profile
from quire.calibration.microbenchmark import BlocksLost, Microbenchmark
from quire.calibration.profiles import ProfilePlace, profile_place, profiles_directory
from quire.config import EngineConfig, SchedulerConfig
from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.costs import StepShape
from quire.engine.engine import Engine, ModelFacts
from quire.outputs import SchedulerOutput, StepOutput
from quire.runner.batch import InputBatch
from quire.runner.model_runner import ModelRunner
from quire.sampling_params import SamplingParams

CONFIG = EngineConfig(
    "random:tiny", device="cpu", num_kv_blocks=20, max_model_len=160, max_num_seqs=4, max_num_batched_tokens=48,
    swap_space="1MiB", recovery_policy="recompute", use_tqdm=False, skip_tokenizer_init=True,
)  # fmt: skip


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load(CONFIG)


@pytest.fixture
def engine(loaded: LoadedModel) -> Engine:
    return make_engine(CONFIG, loaded)


def assert_clean(engine: Engine) -> None:
    scheduler = engine.scheduler
    scheduler.check_integrity()
    kv, swap = scheduler.kv, scheduler.swap
    assert (kv.pool.num_used, kv.pool.num_cached, len(swap.transfers)) == (0, 0, 0)
    assert swap.tier.num_available == swap.tier.num_slots
    assert not swap.tier._entries
    assert not engine.has_unfinished()
    assert isinstance(engine.runner, ModelRunner)
    assert not engine.runner.batch.row_of
    assert engine.runner.transfer_worker is not None
    assert engine.runner.transfer_worker.num_outstanding == 0


def generate(engine: Engine, prompt: list[int], max_tokens: int = 12) -> list[int]:
    answer = engine.add_request(prompt, SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True))
    while engine.has_unfinished():
        engine.step()
    return answer.to_output().outputs[0].token_ids


def test_every_length_is_measured_both_ways_and_the_engine_is_left_as_it_was(engine: Engine) -> None:
    found = calibrate_engine(engine, repeats=2)
    assert [row.num_tokens for row in found.rows] == [64, 96, 128, 160]
    for row in found.rows:
        assert row.num_bytes == row.num_tokens * found.bytes_per_token
        for spread in (row.recompute, row.swap.out, row.swap.into, row.swap.latency):
            assert 0 < spread.min <= spread.median <= spread.max
        assert row.swap.latency.min >= 0.999 * max(row.swap.out.min, row.swap.into.min)
    assert {decode.num_seqs for decode in found.decodes} == {1, 2, 4}
    assert {decode.context for decode in found.decodes} == {64, 156}
    assert found.bytes_per_token == 2 * 4 * 2 * 32 * 4  # K and V, layers, heads, their size, bytes
    assert found.cost_model.is_calibrated
    link = found.cost_model.links["host"]
    assert link.saves.num_observed == link.loads.num_observed == 2 * 4
    assert_clean(engine)


def test_lengths_are_whole_blocks_and_serving_goes_on_after_measuring(engine: Engine) -> None:
    prompt = list(range(300, 360))
    before = generate(engine, prompt)
    model = calibrate_engine(engine, lengths=[70, 64], repeats=1, decodes=False).cost_model
    assert model.links["host"].saves.num_observed == 1  # 70 tokens have 64 in full blocks
    assert_clean(engine)
    assert generate(engine, prompt) == before


def test_what_is_swapped_in_is_what_was_swapped_out(engine: Engine) -> None:
    assert isinstance(engine.runner, ModelRunner)
    cache = engine.runner.cache.blocks
    with Microbenchmark(engine) as microbenchmark:
        microbenchmark.scatter()
        seq, steps = microbenchmark.compute(100)
        assert [step.shape.num_tokens for step in steps] == [48, 48, 4]
        kept = cache[seq.block_table[:6]]
        out = microbenchmark.swap_out(seq)
        assert not seq.block_table
        cache[:] = 0
        back = microbenchmark.swap_in(seq)
        assert out.num_bytes == back.num_bytes == 6 * CONFIG.block_size * 2048
        assert np.array_equal(cache[seq.block_table], kept)
        assert seq.num_computed_tokens == 96
    assert_clean(engine)


def test_the_swap_tier_may_be_a_directory(loaded: LoadedModel, tmp_path: Path) -> None:
    engine = make_engine(replace(CONFIG, swap_dir=str(tmp_path)), loaded)
    found = calibrate_engine(engine, lengths=[64, 160], repeats=1, decodes=False)
    assert [row.num_tokens for row in found.rows] == [64, 160]
    assert_clean(engine)


class _Deaf:
    """A space that accepts writes and returns no data."""

    is_memory = True

    def __init__(self, num_slots: int, block_bytes: int) -> None:
        self.num_slots, self.block_bytes = num_slots, block_bytes

    def write(self, slots: list[int], keys: list[bytes], blocks: np.ndarray) -> list[int]:
        return []

    def read(self, slots: list[int], keys: list[bytes], into: np.ndarray) -> list[int]:
        return list(range(len(slots)))

    def close(self) -> None: ...


def test_blocks_that_are_lost_end_it_and_leave_nothing_behind(engine: Engine) -> None:
    from quire.tiers.transfer_worker import TransferWorker

    assert isinstance(engine.runner, ModelRunner)
    config = engine.scheduler.config
    engine.runner.transfer_worker = TransferWorker(
        engine.runner.cache.blocks, _Deaf(config.num_swap_slots, config.block_bytes)
    )
    with pytest.raises(BlocksLost, match="4 blocks did not arrive"):
        calibrate_engine(engine, lengths=[64], repeats=1)
    assert_clean(engine)
    model = CostModel()
    quick_profile(engine, model, seconds=0.2)  # which must not make a start fail
    assert model.links["host"].loads.num_observed == 0
    assert_clean(engine)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lengths": [64, 161]}, "161 tokens"),
        ({"lengths": [8]}, "expected 16 .a block."),
    ],
)
def test_what_cannot_be_measured_is_refused(engine: Engine, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        calibrate_engine(engine, **options)  # type: ignore[arg-type]
    assert_clean(engine)


def test_an_engine_that_cannot_be_measured_is_refused(engine: Engine, loaded: LoadedModel) -> None:
    engine.add_request([300, 301], SamplingParams(max_tokens=2))
    with pytest.raises(ValueError, match="has requests"):
        calibrate_engine(engine)
    without = make_engine(replace(CONFIG, swap_space=None), loaded)
    with pytest.raises(ValueError, match="swap_space or swap_dir"):
        calibrate_engine(without, lengths=[64])
    small = make_engine(replace(CONFIG, swap_space=4 * 16 * 2048), loaded)
    with pytest.raises(ValueError, match="more than the 4 blocks"):
        calibrate_engine(small, lengths=[128])
    assert [row.num_tokens for row in calibrate_engine(small, repeats=1, decodes=False).rows] == [64]
    config = SchedulerConfig(num_blocks=8, max_model_len=64, max_num_seqs=2)
    with pytest.raises(ValueError, match="no model"):
        calibrate_engine(Engine(config, NullRunner(InputBatch(2, 64, 16)), ModelFacts(300)))


def test_lengths_go_from_64_to_the_longest() -> None:
    assert default_lengths(2048) == [64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048]
    assert default_lengths(700) == [64, 96, 128, 192, 256, 384, 512, 700]
    assert default_lengths(40) == [40]


def test_a_quick_profile_leaves_the_engine_clean(engine: Engine) -> None:
    model = CostModel()
    quick_profile(engine, model)
    assert model.steps.num_observed > 0
    assert_clean(engine)


def ticking(per_look: float) -> Callable[[], float]:
    """A clock that advances by a fixed time on every read."""
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += per_look
        return now

    return clock


def test_a_quick_profile_keeps_to_its_time(engine: Engine) -> None:
    engine.clock = clock = ticking(0.05)
    quick_profile(engine, CostModel(), seconds=2.0)
    assert clock() < 4.0
    engine.clock = ticking(100.0)
    model = CostModel()
    quick_profile(engine, model, seconds=2.0)
    assert model.steps.num_observed <= 4
    assert_clean(engine)


def test_a_quick_profile_sees_that_a_block_beside_streams_costs_little_where_steps_wait_for_weights(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(replace(CONFIG, max_num_batched_tokens=160), loaded)
    now, execute = 0.0, engine.runner.execute

    def slow(out: SchedulerOutput) -> StepOutput:
        nonlocal now
        now += 0.020 + 0.001 * max(0, out.total_tokens - 32)
        return execute(out)

    monkeypatch.setattr(engine.runner, "execute", slow)
    engine.clock = lambda: now
    model = CostModel()
    quick_profile(engine, model)
    stream = StepShape(1, 1, 0.0, 64)
    added_s = model.step(stream.plus_chunk(0, 16)) - model.step(stream)
    assert added_s < 0.5 * model.recompute(160, beside=stream) / 10


@pytest.mark.parametrize("tokens", [20, 8, 3], ids=lambda tokens: f"up to {tokens}")
def test_a_quick_profile_of_a_very_small_engine_does_not_fail(loaded: LoadedModel, tokens: int) -> None:
    engine = make_engine(replace(CONFIG, num_kv_blocks=2, max_model_len=tokens, max_num_seqs=1), loaded)
    quick_profile(engine, CostModel(), seconds=0.2)
    assert_clean(engine)


# -- where it is kept --------------------------------------------------------------------------------------------------


@pytest.fixture
def model(engine: Engine) -> CostModel:
    return calibrate_engine(engine, lengths=[64, 128], repeats=2).cost_model


def test_a_profile_is_found_again_by_the_same_kind_of_engine_only(
    loaded: LoadedModel, model: CostModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place = profile_place(CONFIG, loaded.model, "cpu")
    assert place.load() is None
    place.save(model)
    assert place.path.parent == tmp_path / "quire" / "profiles"
    found = profile_place(replace(CONFIG, num_kv_blocks=7, seed=3), loaded.model, "cpu").load()
    assert found is not None
    assert found.load(100_000) == pytest.approx(model.load(100_000))
    for other in (
        replace(CONFIG, block_size=32),
        replace(CONFIG, swap_dir=str(tmp_path)),
        replace(CONFIG, swap_bandwidth=10**8),
        replace(CONFIG, swap_space=0),
    ):
        assert profile_place(other, loaded.model, "cpu").load() is None


def test_a_profile_that_was_damaged_is_as_good_as_none_and_is_replaced(
    loaded: LoadedModel, model: CostModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place = profile_place(CONFIG, loaded.model, "cpu")
    place.save(model)
    text = place.path.read_text()
    for damaged in (text[:-40], text.replace("1", "2", 1), "", "[]", "\x00"):
        place.path.write_text(damaged)
        assert place.load() is None
    place.save(model)
    assert place.load() is not None


def test_profiles_lie_in_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert profiles_directory() == Path(os.path.expanduser("~/.cache/quire/profiles"))
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert profiles_directory() == Path(os.path.expanduser("~/.cache/quire/profiles"))


def test_a_user_without_a_home_finds_no_profile_and_keeps_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def expand(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "expanduser", expand)
    place = ProfilePlace(profiles_directory(), {})
    assert place.load() is None
    with pytest.raises(OSError, match="Not a directory"):
        place.save(CostModel())
