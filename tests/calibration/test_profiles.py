"""Learned costs persist in the file of their kind of engine only."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from quire.assembly import LoadedModel, load, make_engine
from quire.async_engine.async_engine import AsyncEngine
from quire.async_engine.host import ThreadHost
from quire.calibration.profiles import ProfilePlace, profile_place
from quire.config import EngineConfig
from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.recovery_policy import make_policy
from quire.runner.model_runner import ModelRunner
from quire.sampling_params import SamplingParams
from quire.system.threads import num_threads

CONFIG = EngineConfig(
    "random:tiny", device="cpu", num_kv_blocks=20, max_model_len=160, max_num_seqs=4, max_num_batched_tokens=48,
    swap_space=2**20, use_tqdm=False, skip_tokenizer_init=True,
)  # fmt: skip
SIZE = 100_000  #: bytes


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load(CONFIG)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def place(loaded: LoadedModel) -> ProfilePlace:
    return profile_place(CONFIG, loaded.model, "cpu")


def teach(model: CostModel, seconds: float) -> float:
    """Report transfers of one size with these times, and return the prediction, which other sizes temper."""
    for _ in range(40):
        for kind in ("save", "load"):
            model.observe_transfer(kind, SIZE, seconds)
    return model.load(SIZE)


def kept_seconds(place: ProfilePlace) -> float:
    found = place.load()
    assert found is not None
    return found.load(SIZE)


def test_what_an_engine_learnt_is_where_the_next_one_begins(loaded: LoadedModel, place: ProfilePlace) -> None:
    engine = make_engine(CONFIG, loaded)
    assert kept_seconds(place) < 0.5
    learnt = teach(engine.costs.model, 2.0)
    assert learnt > 1.0
    del engine
    gc.collect()
    assert kept_seconds(place) == pytest.approx(learnt)
    assert make_engine(CONFIG, loaded).costs.model.load(SIZE) == pytest.approx(learnt)


def test_a_server_that_is_shut_down_has_kept_what_it_learnt(loaded: LoadedModel, place: ProfilePlace) -> None:
    async def serve() -> float:
        engine = AsyncEngine(ThreadHost("tiny", partial(make_engine, CONFIG, loaded)))
        engine.start()
        await engine.wait_ready()
        learnt = teach(engine.engine.costs.model, 2.0)  # its thread waits for requests
        engine.shutdown()
        return learnt

    assert asyncio.run(serve()) == pytest.approx(kept_seconds(place))
    assert kept_seconds(place) > 1.0


def test_a_script_that_ends_has_kept_what_it_learnt(place: ProfilePlace) -> None:
    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_profiles import *
from quire.system.threads import set_num_threads
set_num_threads({num_threads()})
engine = make_engine(CONFIG, load(CONFIG))
teach(engine.costs.model, 2.0)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    assert kept_seconds(place) > 1.0


def test_where_nothing_can_be_written_it_is_said_once_and_served_on(
    loaded: LoadedModel, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (cache / "quire").write_text("no directory")
    with caplog.at_level(logging.WARNING, logger="quire"):
        engine = make_engine(CONFIG, loaded)
        answer = engine.add_request([300, 301], SamplingParams(max_tokens=3, ignore_eos=True))
        while engine.has_unfinished():
            engine.step()
        assert len(answer.to_output().outputs[0].token_ids) == 3
        del engine
        gc.collect()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "cannot be saved for the next start" in caplog.text


def test_a_disk_that_has_room_again_is_written_to(
    loaded: LoadedModel, place: ProfilePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(ProfilePlace, "save", full)
        engine = make_engine(CONFIG, loaded)
    assert place.load() is None
    del engine
    gc.collect()
    assert place.load() is not None


def test_a_link_that_is_slow_by_order_leaves_the_others_profile_alone(loaded: LoadedModel, place: ProfilePlace) -> None:
    make_engine(CONFIG, loaded)
    gc.collect()
    before = place.path.read_bytes()
    slow = replace(CONFIG, swap_bandwidth=10**8)
    engine = make_engine(slow, loaded)
    learnt = teach(engine.costs.model, 2.0)
    del engine
    gc.collect()
    assert place.path.read_bytes() == before
    assert kept_seconds(profile_place(slow, loaded.model, "cpu")) == pytest.approx(learnt)


def test_what_was_learnt_of_a_link_that_was_slowed_down_later_is_not_kept(
    loaded: LoadedModel, place: ProfilePlace
) -> None:
    engine = make_engine(CONFIG, loaded)
    before = place.path.read_bytes()
    assert isinstance(engine.runner, ModelRunner)
    assert engine.runner.transfer_worker is not None
    engine.runner.transfer_worker.bandwidth = 1e6
    teach(engine.costs.model, 2.0)
    del engine
    gc.collect()
    assert place.path.read_bytes() == before


@pytest.mark.parametrize(
    "given",
    [lambda: {"cost_model": CostModel()}, lambda: {"recovery": make_policy("swap")}],
    ids=["costs", "a policy"],
)
def test_an_engine_that_is_given_costs_or_a_policy_has_no_profile(
    loaded: LoadedModel, cache: Path, given: Callable[[], dict[str, object]]
) -> None:
    options = given()
    engine = make_engine(CONFIG, loaded, **options)  # type: ignore[arg-type]
    assert engine.costs.model is options.get("cost_model", engine.costs.model)
    policy = engine.scheduler.recovery.policy
    assert policy is options.get("recovery", policy)
    assert not engine.costs.model.steps.num_observed
    teach(engine.costs.model, 2.0)
    del engine
    gc.collect()
    assert not list(cache.iterdir())


def test_a_model_that_changes_while_the_process_ends_is_left(
    loaded: LoadedModel, place: ProfilePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changing() -> None:
        raise RuntimeError("deque mutated during iteration")

    engine = make_engine(CONFIG, loaded)
    before = place.path.read_bytes()
    teach(engine.costs.model, 2.0)
    monkeypatch.setattr(engine.costs.model, "to_dict", changing)
    del engine
    gc.collect()
    assert place.path.read_bytes() == before
