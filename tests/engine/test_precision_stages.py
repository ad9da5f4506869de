"""Stages by precision: mantissas are completed while a pack serves, and requests go on at the promotion."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from engine.documents import ChosenCosts
from engine.harness import checkpoint, greedy, random_ids, run, temporary_directory
from quire import BeamSearchParams, SamplingParams
from quire.assembly import LoadedModel, load, make_engine
from quire.config import EngineConfig
from quire.engine.engine import Engine
from quire.kernels.loaded import load_kernels
from quire.loading.reading.checkpoint_reading import read_checkpoint
from quire.models.linear.layer import WeightLayer
from quire.outputs import RequestOutput
from quire.progressive.packs.pack import pack
from quire.progressive.stage_plan import StagePlan
from quire.prompt import Prompt

NUM_TOKENS = 16


@cache
def packed() -> Path:
    directory = temporary_directory("pack") / "pack"
    pack(str(checkpoint("llama")), StagePlan(3, ((0, 1, 2),), 1), directory, use_tqdm=False)
    return directory


def config(**options: Any) -> EngineConfig:
    return EngineConfig(
        str(packed()), skip_tokenizer_init=True, use_tqdm=False, device="cpu",
        **{"num_kv_blocks": 64, "recovery_policy": "recompute", **options},
    )  # fmt: skip


@cache
def loaded_model() -> LoadedModel:
    """The model with both stages, which all engines here share, one after the other."""
    loaded = load(config(), reading=read_checkpoint(packed()), is_progressive=True)
    assert loaded.loader is not None
    loaded.loader.wait_stage(2)
    return loaded


class GivenArrivals:
    """Delivers a stage of the pack when a test says so."""

    num_stages = last_stage = 2
    on_stage: Callable[[int], None] | None = None

    def __init__(self, loaded: LoadedModel, ready: int) -> None:
        assert loaded.loader is not None
        self.stage_ready, self.stage, self.throttle = ready, loaded.loader.stage, loaded.loader.throttle
        self.served: list[int] = []

    def set_served_stage(self, number: int) -> None:
        self.served.append(number)


def make_staged(first: int = 1, **options: Any) -> tuple[Engine, GivenArrivals]:
    loaded = loaded_model()
    arrivals = GivenArrivals(loaded, first)
    return make_engine(config(**options), replace(loaded, arrivals=arrivals, loader=None)), arrivals


def params(**options: Any) -> SamplingParams:
    return SamplingParams(**{"max_tokens": NUM_TOKENS, "temperature": 0, "ignore_eos": True, **options})


@cache
def alone_at(stage: int, prompt: tuple[int, ...], num_tokens: int) -> list[int]:
    """Return a stage's own output for a prompt."""
    engine, _ = make_staged(stage)
    state = engine.add_request(Prompt(None, list(prompt)), params(max_tokens=num_tokens))
    return run(engine, [state])[0].outputs[0].token_ids


def follows_its_stages(prompt: Sequence[int], output: RequestOutput) -> None:
    tokens, done = output.outputs[0].token_ids, 0
    for stage, count in output.stages:
        assert tokens[done : done + count] == alone_at(stage, (*prompt, *tokens[:done]), count)
        done += count
    assert done == len(tokens)


def test_the_stages_differ_and_the_last_has_the_tokens_of_transformers() -> None:
    prompts = [tuple(random_ids(length, length)) for length in (5, 17, 33)]
    first, last = ([alone_at(stage, prompt, NUM_TOKENS) for prompt in prompts] for stage in (1, 2))
    assert first != last
    assert last == [list(greedy("llama", prompt).token_ids[:NUM_TOKENS]) for prompt in prompts]


def test_a_prefix_is_not_found_at_another_stage() -> None:
    engine, arrivals = make_staged()
    prompt = Prompt(None, random_ids(64, 5))
    for ready, expected in ((1, 0), (1, 48), (2, 0), (2, 48)):
        arrivals.stage_ready = ready
        (output,) = run(engine, [engine.add_request(prompt, params(max_tokens=2))])
        assert output.num_cached_tokens == expected


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_requests_in_flight_go_on_with_the_tokens_of_their_stages(data: st.DataObject) -> None:
    """Whatever the policy, swapped or recomputed in a small pool, beside samples and beams."""
    engine, arrivals = make_staged(
        promotion_policy=data.draw(st.sampled_from(["recompute", "pin", "cost"])),
        recovery_policy=data.draw(st.sampled_from(["recompute", "swap"])),
        num_kv_blocks=data.draw(st.integers(16, 40)),
        swap_space="4MiB",
        max_num_batched_tokens=data.draw(st.sampled_from([16, 24, 64])),
    )
    lengths = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=4))
    prompts = [tuple(random_ids(length, length)) for length in lengths]
    states = [engine.add_request(Prompt(None, list(prompt)), params()) for prompt in prompts]
    others = []
    if data.draw(st.booleans()):
        others.append(engine.add_request(Prompt(None, random_ids(20, 1)), params(n=3, temperature=1.0, seed=5)))
    if data.draw(st.booleans()):
        others.append(engine.add_request(Prompt(None, random_ids(9, 2)), BeamSearchParams(2, 12, ignore_eos=True)))
    for _ in range(data.draw(st.integers(0, 30))):
        engine.step()
        engine.scheduler.check_integrity()
    arrivals.stage_ready = 2
    late = engine.add_request(Prompt(None, list(prompts[0])), params())
    outputs = run(engine, [*states, late, *others])
    for prompt, output in zip((*prompts, prompts[0]), outputs, strict=False):
        follows_its_stages(prompt, output)
        assert len(output.outputs[0].token_ids) == NUM_TOKENS
    assert engine.scheduler.kv.pool.num_used == 0


@pytest.fixture
def slow_rest(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Semaphore]:
    """Lets a test count how many pieces of the rest are added."""
    pieces, add_bits = threading.Semaphore(0), WeightLayer.add_bits

    def add(self: WeightLayer, *arguments: Any) -> None:
        assert pieces.acquire(timeout=60)
        add_bits(self, *arguments)

    monkeypatch.setattr(WeightLayer, "add_bits", add)
    yield pieces
    for _ in range(10_000):
        pieces.release()


def test_tokens_of_the_first_stage_stay_while_bits_arrive(slow_rest: threading.Semaphore) -> None:
    loaded = load(config(), reading=read_checkpoint(packed()), is_progressive=True)
    assert loaded.loader is not None
    engine = make_engine(config(), loaded)
    prompts = [tuple(random_ids(length, length)) for length in (5, 17)]
    expected = [alone_at(1, prompt, NUM_TOKENS) for prompt in prompts]
    for _ in range(6):
        states = [engine.add_request(Prompt(None, list(prompt)), params()) for prompt in prompts]
        outputs = run(engine, states)
        assert [output.stages for output in outputs] == [[(1, NUM_TOKENS)]] * 2
        assert [output.outputs[0].token_ids for output in outputs] == expected
        for _ in range(3):
            slow_rest.release()
    for _ in range(10_000):
        slow_rest.release()
    loaded.loader.wait_stage(2)
    outputs = run(engine, [engine.add_request(Prompt(None, list(prompt)), params()) for prompt in prompts])
    assert [output.stages for output in outputs] == [[(2, NUM_TOKENS)]] * 2
    assert [output.outputs[0].token_ids for output in outputs] == [alone_at(2, p, NUM_TOKENS) for p in prompts]
    loaded.loader.close()


@pytest.mark.parametrize("options", [{"load_overlap": True}, {"weights": "packed12", "dtype": "bfloat16"}], ids=str)
def test_stages_work_with_other_ways_to_load(options: dict[str, Any], tmp_path: Path) -> None:
    directory, original = tmp_path / "pack", Path(checkpoint("llama"))
    if "dtype" in options:
        if load_kernels().functions is None:
            pytest.skip("packed12 needs kernels, and torch's sums in bfloat16 depend on the number of rows")
        original = Path(shutil.copytree(original, tmp_path / "model"))
        tensors = {name: each.to(torch.bfloat16) for name, each in load_file(original / "model.safetensors").items()}
        save_file(tensors, original / "model.safetensors", metadata={"format": "pt"})
    pack(str(original), StagePlan(3, ((0, 1, 2),), 1), directory, use_tqdm=False)
    chosen = replace(config(**options), model=str(directory))
    loaded = load(chosen, reading=read_checkpoint(directory), is_progressive=True)
    assert loaded.loader is not None
    assert loaded.loader.num_stages == 2
    engine, prompt = make_engine(chosen, loaded), Prompt(None, random_ids(17, 17))
    run(engine, [engine.add_request(prompt, params())])
    loaded.loader.wait_stage(2)
    (output,) = run(engine, [engine.add_request(prompt, params())])
    plain = replace(chosen, model=str(original), load_overlap=False)
    expected = make_engine(plain, load(plain))
    assert output.stages == [(2, NUM_TOKENS)]
    assert (
        output.outputs[0].token_ids == run(expected, [expected.add_request(prompt, params())])[0].outputs[0].token_ids
    )
    loaded.loader.close()


def test_documents_on_disk_belong_to_the_stage_that_computed_them(tmp_path: Path) -> None:
    loaded = loaded_model()
    arrivals = GivenArrivals(loaded, 1)
    engine = make_engine(
        config(kv_dir=str(tmp_path)),
        replace(loaded, arrivals=arrivals, loader=None),
        cost_model=ChosenCosts(1.0, 0.0),
    )
    document = Prompt(None, random_ids(40, 11), documents=(32,))
    for ready, found in ((1, 0), (1, 32), (2, 0), (2, 32)):
        arrivals.stage_ready = ready
        engine.promote_if_ready()
        engine.reset_prefix_cache()
        (output,) = run(engine, [engine.add_request(document, params(max_tokens=3))])
        assert output.cached_tokens.get("disk", 0) == found
        follows_its_stages(document.token_ids, output)
        while engine.has_unfinished():  # saves
            engine.step()
