"""Promotion of a model while it serves: the tokens of requests in flight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from adapters import NUM_TOKENS as NUM_ADAPTED
from adapters import adapted, greedy_with, lora
from engine.documents import ChosenCosts
from engine.harness import PROMPTS, checkpoint, greedy, random_ids, run
from quire import BeamSearchParams, SamplingParams
from quire.assembly import LoadedModel, load, make_engine
from quire.config import EngineConfig
from quire.core.decisions.cost_model import CostModel
from quire.engine.engine import Engine
from quire.engine.pinned_prefix import pin_prefix
from quire.loading.stage_manifest import LayerGroup, Stage, StageManifest
from quire.models.linear.layer import Linear
from quire.models.stages import PassLayer, ServableStage
from quire.ops.arrays import Array, as_numpy
from quire.outputs import OutputSoFar, RequestOutput, Resumption
from quire.prompt import Prompt
from quire.system.background_throttle import BackgroundThrottle

LAYERS = ((0,), (0, 1), (0, 1, 2))  #: of three stages
NUM_TOKENS = 20


class Shift:
    """An adapter that changes every answer."""

    digest = "shift"

    def __init__(self, model: Any, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self._linears = [module for module in model.layers[0].modules() if isinstance(module, Linear)]
        self._parts = [_Shift(torch.randn(each.out_features, generator=generator).numpy()) for each in self._linears]

    def attach(self) -> None:
        for linear, part in zip(self._linears, self._parts, strict=True):
            linear.adapter = part

    def detach(self) -> None:
        for linear in self._linears:
            linear.adapter = None


class _Shift:
    num_bytes = 0

    def __init__(self, shift: np.ndarray) -> None:
        self._shift = shift

    def add_to(self, y: Array, x: Array) -> Array:
        as_numpy(y)[...] += 0.1 * self._shift
        return y

    def output(self, x: Array) -> Array:
        return np.tile(0.1 * self._shift, (len(x), 1))


class FakeArrivals:
    """Delivers a stage when a test says so."""

    num_stages = last_stage = 3

    def __init__(self, model: Any) -> None:
        self.model = model
        self.stage_ready = 1
        self.served: list[int] = []
        self.on_stage: Callable[[int], None] | None = None
        self.throttle = BackgroundThrottle(0.1)
        self._adapters = {1: Shift(model, 1), 2: Shift(model, 2)}

    def stage(self, number: int) -> ServableStage:
        layers = [layer if at in LAYERS[number - 1] else PassLayer() for at, layer in enumerate(self.model.layers)]
        return ServableStage(number, layers, self._adapters.get(number))

    def set_served_stage(self, number: int) -> None:
        self.served.append(number)


@cache
def loaded_model() -> LoadedModel:
    """The model that all engines here share, one after the other."""
    return load(config())


def config(**options: Any) -> EngineConfig:
    return EngineConfig(
        str(checkpoint("llama")), skip_tokenizer_init=True, use_tqdm=False, device="cpu",
        **{"num_kv_blocks": 64, "recovery_policy": "recompute", **options},
    )  # fmt: skip


def make_staged(
    policy: str = "recompute", first: int = 1, costs: CostModel | None = None, **options: Any
) -> tuple[Engine, FakeArrivals]:
    loaded = loaded_model()
    arrivals = FakeArrivals(loaded.model)
    arrivals.stage_ready = first
    stages = tuple(
        Stage(number, layers, adapter_digest=f"shift {number}" if number < 3 else "")
        for number, layers in enumerate(LAYERS, start=1)
    )
    groups = tuple(LayerGroup(f"{at}", (at,)) for at in range(3))
    manifest = StageManifest(Path(), "LlamaForCausalLM", 3, "float32", "sha256:00", groups, stages, {})
    staged = replace(loaded, weights="sha256:00", manifest=manifest, arrivals=arrivals, loader=None)
    return make_engine(config(promotion_policy=policy, **options), staged, cost_model=costs), arrivals


def params(**options: Any) -> SamplingParams:
    return SamplingParams(**{"max_tokens": NUM_TOKENS, "temperature": 0, "ignore_eos": True, **options})


def alone_at(stage: int, prompt: Sequence[int], num_tokens: int) -> list[int]:
    """Return a stage's own output for a prompt."""
    engine, _ = make_staged(first=stage)
    state = engine.add_request(Prompt(None, list(prompt)), params(max_tokens=num_tokens))
    return run(engine, [state])[0].outputs[0].token_ids


def follows_its_stages(prompt: Sequence[int], output: RequestOutput) -> None:
    """Check that each token is its stage's continuation of all tokens before it."""
    tokens = output.outputs[0].token_ids
    done = 0
    for stage, count in output.stages:
        assert tokens[done : done + count] == alone_at(stage, [*prompt, *tokens[:done]], count)
        done += count
    assert done == len(tokens)


def test_a_model_that_is_whole_is_profiled_at_its_last_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    engine, _ = make_staged(first=3, recovery_policy="cost", swap_space="8MiB")
    assert engine.cost_model.is_calibrated


def test_a_request_with_an_adapter_waits_for_the_whole_model() -> None:
    engine, arrivals = make_staged("pin", lora=lora("llama"), max_num_batched_tokens=16)
    prompt = Prompt(None, list(PROMPTS[3]))
    pinned = engine.add_request(prompt, params())
    own = engine.add_request(replace(prompt, adapter="first"), params(max_tokens=NUM_ADAPTED))
    while len(pinned.request.sequences[0].token_ids) < len(prompt.token_ids) + 4:
        engine.step()
    assert own.metrics.first_scheduled_time is None
    arrivals.stage_ready = 3
    outputs = run(engine, [pinned, own])
    assert outputs[0].stages == [(1, NUM_TOKENS)], "steps of both stages alternate"
    follows_its_stages(PROMPTS[3], outputs[0])
    assert outputs[1].outputs[0].token_ids == list(greedy_with("llama", "first")[3].token_ids)
    arrivals.last_stage = 2
    with pytest.raises(ValueError, match="belong to the whole model"):
        engine.adapters.load("second", adapted("llama")[1]["second"])


@pytest.mark.parametrize("policy", ["recompute", "pin"])
def test_requests_in_flight_get_the_tokens_of_their_stages(policy: str) -> None:
    engine, arrivals = make_staged(policy)
    prompts = PROMPTS[2:6]
    states = [engine.add_request(Prompt(None, list(prompt)), params()) for prompt in prompts]
    for _ in range(6):
        engine.step()
    arrivals.stage_ready = 2
    for _ in range(4):
        engine.step()
    late = engine.add_request(Prompt(None, list(prompts[0])), params())
    engine.step()
    arrivals.stage_ready = 3
    outputs = run(engine, [*states, late])
    for prompt, output in zip((*prompts, prompts[0]), outputs, strict=True):
        follows_its_stages(prompt, output)
    stages = [[stage for stage, _ in output.stages] for output in outputs]
    if policy == "pin":  # the third stage waits for requests of the first
        assert stages == [[1]] * 4 + [[2]]
    else:
        assert stages == [[1, 2, 3]] * 4 + [[2, 3]]
        assert all(len(output.outputs[0].token_ids) == NUM_TOKENS for output in outputs)
    assert arrivals.served == [1, 2, 3]
    (again,) = run(engine, [engine.add_request(Prompt(None, list(prompts[0])), params())])

    assert tuple(again.outputs[0].token_ids) == greedy("llama", prompts[0]).token_ids, "the last stage is the original"
    assert again.stages == [(3, NUM_TOKENS)]


def test_a_prefix_is_not_found_at_another_stage() -> None:
    engine, arrivals = make_staged()
    prompt = Prompt(None, random_ids(64, 5))
    for ready, expected in ((1, 0), (1, 48), (2, 0), (2, 48), (3, 0), (3, 48)):
        arrivals.stage_ready = ready
        (output,) = run(engine, [engine.add_request(prompt, params(max_tokens=2))])
        assert output.num_cached_tokens == expected


def test_samples_and_beams_go_on_at_the_next_stage() -> None:
    engine, arrivals = make_staged(num_kv_blocks=40, max_num_batched_tokens=24)
    sampled = engine.add_request(Prompt(None, random_ids(20, 1)), params(n=3, temperature=1.0, seed=5))
    beams = engine.add_request(Prompt(None, random_ids(9, 2)), BeamSearchParams(2, 12, ignore_eos=True))
    for _ in range(5):
        engine.step()
    arrivals.stage_ready = 3
    outputs = run(engine, [sampled, beams])
    assert [len(each.token_ids) for each in outputs[0].outputs] == [NUM_TOKENS] * 3
    assert [stage for stage, _ in outputs[0].stages] == [1, 3]
    assert sum(count for _, count in outputs[0].stages) == 3 * NUM_TOKENS
    assert [len(each.token_ids) for each in outputs[1].outputs] == [12, 12]
    assert engine.scheduler.kv.pool.num_used == 0


def test_who_wants_a_later_stage_waits_for_it_beside_the_queue() -> None:
    engine, arrivals = make_staged()
    prompt = Prompt(None, random_ids(10, 3))
    patient = engine.add(engine.input_processor.accept(prompt, params(), min_stage=3))
    hasty = engine.add_request(prompt, params())
    assert run(engine, [hasty])[0].stages == [(1, NUM_TOKENS)]
    assert not engine.has_work()
    assert engine.snapshot().num_blocked == {"stage": 1}
    arrivals.stage_ready = 2
    engine.step()
    assert not patient.is_finished
    arrivals.stage_ready = 3
    assert run(engine, [patient])[0].stages == [(3, NUM_TOKENS)]
    with pytest.raises(ValueError, match="min_stage=4 is no stage of this model; its stages are 1 to 3"):
        engine.input_processor.accept(prompt, params(), min_stage=4)


def test_what_another_engine_has_made_at_a_later_stage_goes_on_once_that_is_there() -> None:
    prompt = random_ids(10, 3)
    expected = alone_at(3, prompt, NUM_TOKENS)
    engine, arrivals = make_staged()
    resumption = Resumption(seed=1, outputs=(OutputSoFar(expected[:7]),), stage=3)
    state = engine.add(engine.input_processor.accept(Prompt(None, prompt), params()), resumption=resumption)
    for arrivals.stage_ready in (1, 2):
        engine.step()
    assert engine.snapshot().num_blocked == {"stage": 1}
    arrivals.stage_ready = 3
    (output,) = run(engine, [state])
    assert output.outputs[0].token_ids == expected
    assert output.stages == [(3, NUM_TOKENS)]


def test_a_pinned_prefix_is_computed_at_every_stage() -> None:
    engine, arrivals = make_staged()
    prefix = random_ids(40, 9)
    assert pin_prefix(engine, prefix) == 32
    question = Prompt(None, [*prefix, 7, 8])
    for ready in (1, 2, 3):
        arrivals.stage_ready = ready
        while engine.stage < ready or engine.has_unfinished():
            engine.step()
        (output,) = run(engine, [engine.add_request(question, params(max_tokens=3))])
        assert output.num_cached_tokens == 32
        follows_its_stages(question.token_ids, output)
        engine.reset_prefix_cache()  # pinned requests stay
    assert len(engine.scheduler.kv.pinned) == 2
    engine.runner.execute, usual = _fail, engine.runner.execute  # type: ignore[method-assign, assignment]
    assert engine.promoter is not None
    for listener in engine.promoter.on_promotion:
        listener(3)
    (state,) = engine.step()
    assert state.request.error is not None
    engine.runner.execute = usual  # type: ignore[method-assign]
    assert run(engine, [engine.add_request(question, params(max_tokens=3))])[0].error is None


def _fail(out: object) -> None:
    raise RuntimeError("injected")


def test_a_stage_that_comes_while_the_prefix_is_computed_has_it_computed_anew() -> None:
    engine, arrivals = make_staged("pin", max_num_batched_tokens=16)
    arrivals.stage_ready, usual = 1, engine.runner.execute

    def execute(out: Any) -> Any:
        arrivals.stage_ready = 3
        return usual(out)

    engine.runner.execute = execute  # type: ignore[method-assign]
    prefix = random_ids(40, 9)
    assert pin_prefix(engine, prefix) == 32
    assert engine.stage == 3
    (output,) = run(engine, [engine.add_request(Prompt(None, [*prefix, 7]), params(max_tokens=3))])
    assert (output.num_cached_tokens, output.stages) == (32, [(3, 3)])


def test_documents_on_disk_belong_to_the_stage_that_computed_them(tmp_path: Path) -> None:
    engine, arrivals = make_staged(kv_dir=str(tmp_path), costs=ChosenCosts(1.0, 0.0))
    document = Prompt(None, random_ids(40, 11), documents=(32,))
    for ready, found in ((1, None), (1, "disk"), (2, None), (2, "disk"), (3, None), (3, "disk")):
        arrivals.stage_ready = ready
        engine.promote_if_ready()
        engine.reset_prefix_cache()
        state = engine.add_request(document, params(max_tokens=3))
        (output,) = run(engine, [state])
        assert output.cached_tokens.get("disk", 0) == (32 if found else 0)
        follows_its_stages(document.token_ids, output)
        while engine.has_unfinished():  # saves
            engine.step()
    assert engine.delete_documents([(document, 0)]) == 2 * 3, "at every stage"
    engine.step()
    (output,) = run(engine, [engine.add_request(document, params(max_tokens=3))])
    assert output.num_cached_tokens == 0
