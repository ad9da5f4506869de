"""Stages by precision: mantissas are completed while a pack serves, and requests go on at the promotion."""

from __future__ import annotations

import re
import shutil
import tempfile
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

from checkpoints import make_reference
from engine.documents import ChosenCosts
from engine.harness import generate_greedy, random_ids, run, temporary_directory
from progressive.models import VOCAB, make_model
from quire import BeamSearchParams, SamplingParams, StructuredOutputsParams
from quire.assembly import LoadedModel, load, make_engine
from quire.config import EngineConfig
from quire.core.decisions.cost_model import CostModel
from quire.engine.engine import Engine
from quire.kernels.loaded import load_kernels
from quire.loading.reading.checkpoint_reading import read_checkpoint
from quire.models.linear.layer import WeightLayer
from quire.outputs import OutputSoFar, RequestOutput, Resumption
from quire.progressive.packs.pack import pack
from quire.progressive.stage_plan import StagePlan
from quire.prompt import Prompt

NUM_TOKENS = 16


#: Layers in the order of their arrival: by precision alone, and by both axes.
PRECISION, BOTH = ((0, 1, 2),), ((0, 2), (1,))
Groups = tuple[tuple[int, ...], ...]


@cache
def original() -> Path:
    return make_model(temporary_directory("original"))


@cache
def packed(groups: Groups = PRECISION) -> Path:
    directory = temporary_directory("pack") / "pack"
    pack(str(original()), StagePlan(3, groups, 1), directory, use_tqdm=False)
    return directory


def config(groups: Groups = PRECISION, **options: Any) -> EngineConfig:
    return EngineConfig(
        str(packed(groups)), use_tqdm=False, device="cpu",
        **{"num_kv_blocks": 64, "recovery_policy": "recompute", **options},
    )  # fmt: skip


@cache
def loaded_model(groups: Groups = PRECISION) -> LoadedModel:
    """The model with all stages, which all engines here share, one after the other."""
    loaded = load(config(groups), reading=read_checkpoint(packed(groups)), is_progressive=True)
    assert loaded.loader is not None
    loaded.loader.wait_stage(loaded.loader.last_stage)
    return loaded


class GivenArrivals:
    """Delivers a stage of the pack when a test says so."""

    on_stage: Callable[[int], None] | None = None

    def __init__(self, loaded: LoadedModel, ready: int) -> None:
        assert loaded.loader is not None
        self.num_stages = self.last_stage = loaded.loader.last_stage
        self.stage_ready, self.stage, self.throttle = ready, loaded.loader.stage, loaded.loader.throttle
        self.served: list[int] = []

    def set_served_stage(self, number: int) -> None:
        self.served.append(number)


def make_staged(
    first: int = 1, groups: Groups = PRECISION, costs: CostModel | None = None, **options: Any
) -> tuple[Engine, GivenArrivals]:
    loaded = loaded_model(groups)
    arrivals = GivenArrivals(loaded, first)
    staged = replace(loaded, arrivals=arrivals, loader=None)
    return make_engine(config(groups, **options), staged, cost_model=costs), arrivals


def params(**options: Any) -> SamplingParams:
    return SamplingParams(**{"max_tokens": NUM_TOKENS, "temperature": 0, "ignore_eos": True, **options})


@cache
def alone_at(
    stage: int, prompt: tuple[int, ...], num_tokens: int, groups: Groups = PRECISION, pattern: str | None = None,
    so_far: tuple[int, ...] = (),
) -> list[int]:  # fmt: skip
    """Return a stage's own output for a prompt. With a pattern, it continues the output so far."""
    engine, _ = make_staged(stage, groups)
    wanted = params(max_tokens=len(so_far) + num_tokens, **constrained_by(pattern))
    resumption = Resumption(seed=0, outputs=(OutputSoFar(list(so_far)),)) if so_far else None
    state = engine.add(engine.input_processor.accept(Prompt(None, list(prompt)), wanted), resumption=resumption)
    (output,) = run(engine, [state])
    assert output.error is None
    return output.outputs[0].token_ids[len(so_far) :]


def constrained_by(pattern: str | None) -> dict[str, Any]:
    if pattern is None:
        return {}
    return {"structured_outputs": StructuredOutputsParams(regex=pattern), "ignore_eos": False}


def follows_its_stages(
    prompt: Sequence[int], output: RequestOutput, groups: Groups = PRECISION, pattern: str | None = None
) -> None:
    tokens, done = output.outputs[0].token_ids, 0
    for stage, count in output.stages:
        before = tuple(tokens[:done])
        start = ((*prompt, *before), count, groups) if pattern is None else (prompt, count, groups, pattern, before)
        assert tokens[done : done + count] == alone_at(stage, *start)
        done += count
    assert done == len(tokens)


def test_the_stages_differ_and_the_last_has_the_tokens_of_transformers() -> None:
    prompts = [tuple(random_ids(length, length)) for length in (5, 17, 33)]
    first, last = ([alone_at(stage, prompt, NUM_TOKENS) for prompt in prompts] for stage in (1, 2))
    assert first != last
    reference = make_reference("llama", vocab_size=VOCAB, eos_token_id=256)
    assert last == [list(each.token_ids) for each in generate_greedy(reference, prompts, NUM_TOKENS)]


def test_a_prefix_is_not_found_at_another_stage() -> None:
    engine, arrivals = make_staged()
    prompt = Prompt(None, random_ids(64, 5))
    for ready, expected in ((1, 0), (1, 48), (2, 0), (2, 48)):
        arrivals.stage_ready = ready
        (output,) = run(engine, [engine.add_request(prompt, params(max_tokens=2))])
        assert output.num_cached_tokens == expected


PATTERN = r"\[([0-9a-f]{2}, ){2,5}[0-9a-f]{2}\]"


@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_requests_in_flight_go_on_with_the_tokens_of_their_stages(data: st.DataObject) -> None:
    """Whatever the plan and the policy, swapped or recomputed in a small pool, with documents on disk, beside samples,
    beams and structured output."""
    groups = data.draw(st.sampled_from([PRECISION, BOTH]))
    with tempfile.TemporaryDirectory() as directory:
        on_disk: dict[str, Any] = {"kv_dir": directory, "costs": ChosenCosts(1.0, 0.0)}
        engine, arrivals = make_staged(
            groups=groups,
            promotion_policy=data.draw(st.sampled_from(["recompute", "pin", "cost"])),
            recovery_policy=data.draw(st.sampled_from(["recompute", "swap"])),
            num_kv_blocks=data.draw(st.integers(16, 40)),
            swap_space="4MiB",
            max_num_batched_tokens=data.draw(st.sampled_from([16, 24, 64])),
            **on_disk if data.draw(st.booleans()) else {},
        )
        check_promotions(data, engine, arrivals, groups)
        engine.close()


def check_promotions(data: st.DataObject, engine: Engine, arrivals: GivenArrivals, groups: Groups) -> None:
    asked: list[tuple[tuple[int, ...], str | None]] = []
    states, others = [], []

    def ask(length: int, pattern: str | None) -> None:
        prompt = tuple(random_ids(length, length))
        documents = (length // 16 * 16,) if length > 16 else ()
        wanted = params(**constrained_by(pattern))
        states.append(engine.add_request(Prompt(None, list(prompt), documents=documents), wanted))
        asked.append((prompt, pattern))

    requests = st.tuples(st.integers(1, 40), st.sampled_from([None, PATTERN]))
    for length, pattern in data.draw(st.lists(requests, min_size=1, max_size=4)):
        ask(length, pattern)
    if data.draw(st.booleans()):
        chosen = data.draw(st.sampled_from([None, PATTERN]))
        sampled = params(n=3, temperature=1.0, seed=5, **constrained_by(chosen))
        others.append((engine.add_request(Prompt(None, random_ids(20, 1)), sampled), chosen))
    if data.draw(st.booleans()):
        beams = BeamSearchParams(2, 12, ignore_eos=True)
        others.append((engine.add_request(Prompt(None, random_ids(9, 2)), beams), None))
    for stage in range(2, arrivals.last_stage + 1):
        for _ in range(data.draw(st.integers(0, 30))):
            engine.step()
            engine.scheduler.check_integrity()
        arrivals.stage_ready = stage
        ask(len(asked[0][0]), data.draw(st.sampled_from([None, PATTERN])))
    outputs = run(engine, [*states, *(state for state, _ in others)])
    for (prompt, pattern), output in zip(asked, outputs, strict=False):
        follows_its_stages(prompt, output, groups, pattern)
    for pattern, output in zip([*(each for _, each in asked), *(each for _, each in others)], outputs, strict=True):
        assert output.error is None
        check_outputs(output, pattern)
    while engine.has_unfinished():  # saves
        engine.step()
    assert engine.scheduler.kv.pool.num_used == 0


def check_outputs(output: RequestOutput, pattern: str | None) -> None:
    for each in output.outputs:
        text = bytes(token for token in each.token_ids if token < 256).decode("latin-1")
        if pattern is None:
            assert len(each.token_ids) in (12, NUM_TOKENS)
        elif each.finish_reason == "stop":
            assert re.fullmatch(pattern, text)
        else:
            assert len(each.token_ids) == NUM_TOKENS
            assert re.fullmatch(r"\[([0-9a-f]{2}, )*[0-9a-f]{0,2}[],]?", text)


@pytest.fixture
def slow_rest(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Semaphore]:
    """Lets a test count how many pieces of the rest are added."""
    loaded_model(PRECISION)  # before its pieces need a release, too
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
    directory, source = tmp_path / "pack", original()
    if "dtype" in options:
        if load_kernels().functions is None:
            pytest.skip("packed12 needs kernels, and torch's sums in bfloat16 depend on the number of rows")
        source = Path(shutil.copytree(source, tmp_path / "model"))
        tensors = {name: each.to(torch.bfloat16) for name, each in load_file(source / "model.safetensors").items()}
        save_file(tensors, source / "model.safetensors", metadata={"format": "pt"})
    pack(str(source), StagePlan(3, ((0, 1, 2),), 1), directory, use_tqdm=False)
    chosen = replace(config(**options), model=str(directory))
    loaded = load(chosen, reading=read_checkpoint(directory), is_progressive=True)
    assert loaded.loader is not None
    assert loaded.loader.num_stages == 2
    engine, prompt = make_engine(chosen, loaded), Prompt(None, random_ids(17, 17))
    run(engine, [engine.add_request(prompt, params())])
    loaded.loader.wait_stage(2)
    (output,) = run(engine, [engine.add_request(prompt, params())])
    plain = replace(chosen, model=str(source), load_overlap=False)
    expected = make_engine(plain, load(plain))
    assert output.stages == [(2, NUM_TOKENS)]
    assert (
        output.outputs[0].token_ids == run(expected, [expected.add_request(prompt, params())])[0].outputs[0].token_ids
    )
    loaded.loader.close()


def test_documents_on_disk_belong_to_the_stage_that_computed_them(tmp_path: Path) -> None:
    engine, arrivals = make_staged(kv_dir=str(tmp_path), costs=ChosenCosts(1.0, 0.0))
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
