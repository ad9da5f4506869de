"""Tokens drawn by the Triton kernel are the host's: on a GPU, or on a CPU by Triton's interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

import quire.runner.sampler as sampler_module
from engine.harness import PROMPTS, Job, drive, make_llm, outputs
from engine.test_sampled_requests import SEEDED
from quire import SamplingParams
from quire.assembly import runner as assembly_runner
from quire.ops.arrays import to_host
from quire.runner.row_state import RowState
from quire.runner.sampler import Sampler
from runner.test_sampler import CASES, assert_follows, new_sequence, normal, oracle

pytest.importorskip("triton", reason="Triton is not installed; there are packages for Linux on x86-64")

from quire.runner import triton_check, triton_drawing
from quire.runner.triton_drawing import draw_rows

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
VOCAB = 150
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
EDITS: dict[str, Any] = {
    "logit_bias": {3: 2.0, 149: -100.0}, "repetition_penalty": 1.4, "presence_penalty": 0.3, "frequency_penalty": 0.7,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _draw_in_several_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_drawing, "_TILE", 64)


@pytest.fixture
def _any_tensor_is_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_module, "uses_triton", lambda device: True)


def states_of(asked: Sequence[SamplingParams], **fields: Any) -> list[RowState]:
    return [RowState(new_sequence(each, seed=seed, **fields)) for seed, each in enumerate(asked)]


def on_host(logits: torch.Tensor, states: list[RowState]) -> list[list[int]]:
    tokens, _, failed = Sampler(logits.shape[1]).sample(to_host(logits).copy(), states)
    assert failed == [None] * len(states)
    return tokens


def on_device(logits: torch.Tensor, states: list[RowState]) -> list[list[int]]:
    return [*draw_rows(logits.to(DEVICE), dict(enumerate(states)), {}).values()]


def random_params(generator: np.random.Generator) -> SamplingParams:
    def choose(*options: Any) -> Any:
        return options[generator.integers(len(options))]

    return SamplingParams(
        temperature=choose(0, 1e-5, 0.01, 0.3, 0.7, 1, 3, 100), top_p=choose(5e-324, 0.1, 0.5, 0.9, 0.99, 1, 1),
        top_k=choose(0, 0, 1, 2, 5, 40, VOCAB - 1, VOCAB, 10**6), min_p=choose(0, 0, 5e-324, 0.01, 0.3, 1),
    )  # fmt: skip


def random_logits(generator: np.random.Generator, kind: int, dtype: torch.dtype) -> torch.Tensor:
    row = generator.standard_normal(VOCAB, dtype=np.float32) * generator.choice([0.1, 2, 20])
    if kind == 1:
        row = row.round()  # ties
    elif kind == 2:
        row[generator.permutation(VOCAB)[: generator.integers(1, VOCAB)]] = -np.inf
    elif kind == 3:
        row = generator.choice(np.array([0.0, -0.0, 1e-45, 1, 17.3, -40, 3e4, -3e4, -np.inf], np.float32), VOCAB)
    row[0] = max(row[0], -100.0)
    return torch.from_numpy(row).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("num_rows", [8, pytest.param(100, marks=pytest.mark.slow)])
def test_random_rows_give_the_tokens_of_the_host(dtype: torch.dtype, num_rows: int) -> None:
    generator = np.random.default_rng(num_rows)
    logits = torch.stack([random_logits(generator, row % 4, dtype) for row in range(num_rows)])
    states = states_of([random_params(generator) for _ in range(num_rows)], num_samples=2)
    assert on_device(logits, states) == on_host(logits, states)


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [(torch.float32, 4), (torch.bfloat16, 0.3), (torch.float16, 4)],
    ids=["", "many ties", "float16"],
)
def test_top_k_keeps_as_many_as_a_sort(dtype: torch.dtype, scale: float) -> None:
    counts = (40, 64, 100, VOCAB - 1)  # with tiles of 64, the largest logits of 64 lanes do not bound them well
    logits = torch.from_numpy((normal(len(counts), VOCAB) * scale * 8).round() / 8).to(dtype)
    states = states_of([SamplingParams(temperature=100, top_k=top_k) for top_k in counts], num_samples=2)
    assert on_device(logits, states) == on_host(logits, states)


def test_the_number_zero_draws_the_first_token_with_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_drawing, "address", lambda *_: -0x9E3779B97F4A7C15 % 2**64)
    logits = torch.full((1, VOCAB), -torch.inf)
    logits[0, 70:] = 0
    assert on_device(logits, states_of([SamplingParams()])) == [[70]]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_draws_follow_the_distribution(case: dict[str, Any]) -> None:
    logits, params = 2 * normal(40, seed=1), SamplingParams(**case)
    tokens = on_device(torch.from_numpy(logits)[None], states_of([params], num_samples=400))
    assert_follows(np.array(tokens[0]), oracle(logits, params))


@pytest.mark.parametrize("size", [1, 2, 65, 128])
def test_vocabularies_of_any_size(size: int) -> None:
    logits = torch.from_numpy(3 * normal(3, size, seed=size))
    states = states_of([SamplingParams(), SamplingParams(temperature=0), SamplingParams(top_k=3, top_p=0.8)])
    assert on_device(logits, states) == on_host(logits, states)


@pytest.mark.parametrize("tile", [4096, pytest.param(1024, marks=pytest.mark.slow)])
def test_a_large_vocabulary(monkeypatch: pytest.MonkeyPatch, tile: int) -> None:
    monkeypatch.setattr(triton_drawing, "_TILE", tile)
    logits = torch.from_numpy(3 * normal(3, 151_936)).bfloat16()
    asked = {"temperature": 0.7, "top_p": 0.8, "top_k": 20}, {"top_k": 5000}, {"temperature": 0}
    states = states_of([SamplingParams(**each) for each in asked])
    assert on_device(logits, states) == on_host(logits, states)


def test_numbers_are_those_of_their_address() -> None:
    logits = torch.from_numpy(normal(1, VOCAB))
    for index, position, seed in [(0, 0, 1), (2, 0, 2**63 - 1), (1, 7, -5)]:
        fields = {"index": index, "seed": seed, "token_ids": [1, 2, 3] + [4] * position}
        states = [RowState(new_sequence(SamplingParams(top_p=0.9), **fields))]
        assert on_device(logits, states) == on_host(logits, states)


def test_equal_logits_are_all_kept_and_the_first_is_the_best() -> None:
    logits = torch.zeros((3, VOCAB))
    logits[:, :3] = -1.0
    asked = SamplingParams(top_k=2), SamplingParams(top_p=0.01), SamplingParams(temperature=0)
    states = states_of(asked, num_samples=12)
    tokens = on_device(logits, states)
    assert tokens == on_host(logits, states)
    assert [min(each) >= 3 for each in tokens] == [True] * 3
    assert [len(set(each)) > 6 for each in tokens] == [True, True, False]
    assert set(tokens[2]) == {3}


# -- with the sampler ------------------------------------------------------------------------------------------------


def mixed_rows() -> tuple[torch.Tensor, list[RowState]]:
    """Return rows with everything that changes logits, and without."""
    asked = [
        SamplingParams(), SamplingParams(temperature=0, **EDITS), SamplingParams(top_p=0.9, **EDITS),
        SamplingParams(allowed_token_ids=(5, 77, 149)), SamplingParams(temperature=0, bad_words_token_ids=((11,),)),
        SamplingParams(top_k=9, min_tokens=9, **EDITS), SamplingParams(logprobs=2), SamplingParams(temperature=0),
    ]  # fmt: skip
    fields = {"token_ids": [1, 2, 3, 3, 8, 3], "num_prompt_tokens": 3, "stop_token_ids": (20, 21)}
    return torch.from_numpy(2 * normal(len(asked), VOCAB, seed=9)), states_of(asked, **fields)


@pytest.mark.usefixtures("_any_tensor_is_on_a_gpu")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bans_biases_and_penalties_are_those_of_the_host(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    logits, states = mixed_rows()
    logits = logits.to(DEVICE, dtype)
    expected = Sampler(VOCAB).sample(to_host(logits).copy(), states)
    sizes: list[int] = []
    monkeypatch.setattr(sampler_module, "to_host", lambda rows: sizes.append(len(rows)) or to_host(rows))
    assert Sampler(VOCAB).sample(logits, states) == expected
    assert sizes == [1], "only log-probabilities need the host"


@pytest.mark.usefixtures("_any_tensor_is_on_a_gpu")
def test_a_row_is_drawn_alike_whatever_its_neighbours() -> None:
    logits, states = mixed_rows()
    together = Sampler(VOCAB).sample(logits.to(DEVICE), states)[0]
    for row, state in enumerate(states):
        (alone,), *_ = Sampler(VOCAB).sample(logits[row : row + 1].to(DEVICE), [state])
        assert alone == together[row]


FAILING: list[dict[str, Any]] = [
    {}, EDITS, {"allowed_token_ids": (7,)}, {"allowed_token_ids": (7,), "bad_words_token_ids": ((7,),)},
    {"repetition_penalty": 0.1},
]  # fmt: skip


@pytest.mark.usefixtures("_any_tensor_is_on_a_gpu")
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_row_that_cannot_be_drawn_fails_alone_as_on_the_host(bad: float, temperature: float) -> None:
    states = states_of([SamplingParams(temperature=temperature, **each) for each in ({}, *FAILING, {})])
    logits = normal(len(states), VOCAB)
    logits[1:4, ... if bad < 0 else 11] = bad
    logits[5, 2] = 3e38  # a seen token
    expected = Sampler(VOCAB).sample(logits.copy(), states)
    found = Sampler(VOCAB).sample(torch.from_numpy(logits).to(DEVICE), states)
    assert found == expected
    assert [error is None for error in found[2]] == [True, *[False] * len(FAILING), True]


@pytest.mark.parametrize(
    "asked",
    [
        [SamplingParams(temperature=0.9, top_p=0.9, seed=1, max_tokens=4), SamplingParams(max_tokens=2, n=2, seed=3)],
        pytest.param(SEEDED, marks=pytest.mark.slow),
    ],
    ids=["two requests", "every parameter"],
)
def test_an_engine_gives_the_tokens_of_the_host(monkeypatch: pytest.MonkeyPatch, asked: list[SamplingParams]) -> None:
    def answer() -> list[list[list[int]]]:
        jobs = [Job(PROMPTS[i], params) for i, params in enumerate(asked)]
        return [outputs(job) for job in drive(make_llm("llama"), jobs)]

    expected, num_rows, sample = answer(), 0, Sampler.sample

    def sample_tensors(self: Sampler, logits: np.ndarray, states: list[RowState]) -> Any:
        nonlocal num_rows
        num_rows += len(states)
        return sample(self, torch.from_numpy(logits).to(DEVICE), states)

    monkeypatch.setattr(Sampler, "sample", sample_tensors)
    monkeypatch.setattr(sampler_module, "uses_triton", lambda device: True)
    assert answer() == expected
    assert num_rows >= 6


# -- the choice ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vocab_size", [64, 300])
def test_an_engine_compares_the_kernel_with_the_host_first(monkeypatch: pytest.MonkeyPatch, vocab_size: int) -> None:
    triton_check.check_drawing(vocab_size, torch.bfloat16, DEVICE)
    monkeypatch.setattr(triton_check, "draw_rows", lambda logits, states, masks: {row: [0] for row in states})
    with pytest.raises(ValueError, match="set QUIRE_KERNELS=none to draw on the host"):
        triton_check.check_drawing(vocab_size, torch.bfloat16, DEVICE)

    def fail(*args: Any) -> None:
        raise RuntimeError("no C compiler")

    monkeypatch.setattr(triton_check, "draw_rows", fail)
    with pytest.raises(ValueError, match="no C compiler; set QUIRE_KERNELS=none"):
        triton_check.check_drawing(vocab_size, torch.bfloat16, DEVICE)
    monkeypatch.setattr(triton_check, "check_drawing", fail)
    monkeypatch.setattr(assembly_runner, "uses_triton", lambda device: True)
    with pytest.raises(RuntimeError, match="no C compiler"):
        make_llm("llama")
