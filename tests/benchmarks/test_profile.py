"""A profile covers every part of a step, and leaves the engine unchanged."""

from __future__ import annotations

from benchmarks.profile.parts import PARTS, PartClock, parts_timed
from benchmarks.profile.profile import ProfileSettings, measure
from quire import EngineConfig
from quire.assembly import load, make_engine
from quire.runner.model_runner import ModelRunner

CONFIG = EngineConfig(model="random:tiny", dtype="float32", use_tqdm=False, num_kv_blocks=8, max_model_len=32)


def test_every_part_of_a_step_is_found_and_has_its_limit() -> None:
    figures, machine = measure(CONFIG, ProfileSettings(running=(2,), context=20, prefill=(10,), runs=1))
    assert machine.read_bytes_s > 0 < machine.operations_s
    steps = {step: [f for f in figures if f["step"] == step] for step in ("2 × 20", "prompt of 10")}
    assert sum(map(len, steps.values())) == len(figures)
    for found in steps.values():
        assert [figure["part"] for figure in found] == [*PARTS, "whole step"]
        assert 0.99 < sum(figure["share"] for figure in found[:-1]) < 1.01
        assert 0 < found[-1]["known_share"] < 1
        assert {f["part"] for f in found if f["limit_s"] is None} == {
            "attention's plan", "batch", "scheduler, outputs", "rest"
        }  # fmt: skip


def test_time_inside_a_part_is_taken_out_of_it() -> None:
    clock = PartClock()
    inner = clock.timed("inner", lambda: sum(range(20_000)))
    clock.timed("outer", inner)()
    assert clock.seconds["inner"] > clock.seconds["outer"] > 0


def test_timers_are_gone_afterwards() -> None:
    engine = make_engine(CONFIG, load(CONFIG))
    assert isinstance(engine.runner, ModelRunner)
    owners = [engine, engine.runner, engine.runner.batch, engine.runner.attention, *engine.runner.model.modules()]
    before = [dict(vars(owner)) for owner in owners]
    with parts_timed(engine, engine.runner, PartClock()):
        assert before != [dict(vars(owner)) for owner in owners]
    assert before == [dict(vars(owner)) for owner in owners]
