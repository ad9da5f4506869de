"""A real engine with a model, a link and its clock is recorded and replayed."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from quire.assembly import LoadedModel, load, make_engine
from quire.config import EngineConfig
from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.costs import StepShape
from quire.engine.engine import Engine
from quire.engine.pinned_prefix import pin_prefix
from quire.sampling_params import SamplingParams
from quire.simulate.paper_policies import make_compared_policy
from simulate.recording import Recording, record
from simulate.replay import replay

TINY = EngineConfig(
    "random:tiny",
    num_kv_blocks=40,
    block_size=4,
    max_model_len=80,
    swap_space=2**20,
    watermark=0.0,
    recovery_policy="recompute",  # otherwise costs are measured, and a busy machine prefers swapping
    use_tqdm=False,
    device="cpu",
)


@pytest.fixture(scope="module")
def tiny() -> LoadedModel:
    return load(TINY)


def taught() -> CostModel:
    """A cost model with enough measurements to compare modes, before the engine's own steps and transfers."""
    model = CostModel()
    for count in range(100):
        shape = StepShape(4, 4, 0.0, 80) if count % 3 else StepShape(0, 0).plus_chunk(0, 8 + count % 30)
        model.observe_step(shape, 1e-3 + 5e-5 * shape.num_tokens)
        model.observe_transfer(("save", "load")[count % 2], 8192 * (1 + count % 6), 1e-4 * (1 + count % 6))
    return model


def run(engine: Engine, num_requests: int, first: int = 1) -> None:
    """Requests that outgrow the pool together; every fourth one is aborted."""
    params = SamplingParams(max_tokens=40, ignore_eos=True, seed=1)
    answers = [engine.add_request([first + n, *range(1, 12 + n)], params) for n in range(num_requests)]
    while engine.has_unfinished():
        engine.step()
        if engine.scheduler.counts.preemptions > 3:
            for answer in answers[::4]:
                engine.abort(answer.request.request_id)


@pytest.mark.parametrize("policy", ["cost", "swap", "threshold:24", "recompute"])
def test_what_a_real_engine_decided_is_decided_again(tmp_path: Path, tiny: LoadedModel, policy: str) -> None:
    model = CostModel()
    recovery = make_compared_policy(policy)
    engine, text = make_engine(TINY, tiny, cost_model=model, recovery=recovery), io.StringIO()
    recorder = record(engine, text, policy=policy)
    run(engine, 5)
    prior = taught().to_dict()
    own = CostModel.from_dict(prior)
    model.steps, model.links = own.steps, own.links
    recorder.begin(prior)
    before = engine.scheduler.counts.preemptions
    run(engine, 16, first=50)
    (tmp_path / "run.jsonl").write_text(text.getvalue())

    found = replay(Recording.read(tmp_path / "run.jsonl"))
    assert found.num_requests == 16
    assert found.num_preemptions == engine.scheduler.counts.preemptions - before > 4
    assert found.makespan_s > 0


def test_a_pinned_prefix_is_pinned_again(tmp_path: Path, tiny: LoadedModel) -> None:
    engine, text = make_engine(TINY, tiny), io.StringIO()
    record(engine, text, policy="recompute")
    assert pin_prefix(engine, list(range(1, 20))) == 16
    run(engine, 4)
    (tmp_path / "run.jsonl").write_text(text.getvalue())
    recording = Recording.read(tmp_path / "run.jsonl")
    assert any("pin" in event for event in recording.events)
    replay(recording)


def test_an_engine_that_has_run_is_not_recorded_from_its_middle_on(tiny: LoadedModel) -> None:
    engine = make_engine(TINY, tiny)
    run(engine, 1)
    with pytest.raises(ValueError, match="has run 40 steps already"):
        record(engine, io.StringIO(), policy="recompute")
