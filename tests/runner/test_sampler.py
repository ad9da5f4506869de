"""The sampler's distributions against naive oracles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import RepetitionPenaltyLogitsProcessor

import quire.runner.sampler as sampler_module
from quire import SamplingParams
from quire.ops.arrays import BFLOAT16, FLOAT32, numpy_dtype
from quire.outputs import NewSequence
from quire.runner.random import uniform
from quire.runner.row_state import RowState
from quire.runner.sampler import Sampler, _apply_biases, token_logprobs
from quire.runner.token_mask import apply_mask
from quire.runner.top_tokens import top_values

VOCAB = 40


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    found: np.ndarray = torch.from_numpy(logits).double().log_softmax(-1).numpy()
    return found


def best(logits: np.ndarray, k: int) -> list[int]:
    """Return the positions of the k largest values, in their order."""
    order: list[int] = np.argsort(-logits, kind="stable")[:k].tolist()
    return order


def new_sequence(params: SamplingParams, **fields: Any) -> NewSequence:
    given_fields = {
        "seq_id": 0, "index": 0, "token_ids": [1, 2, 3], "num_prompt_tokens": 3, "num_computed_tokens": 0,
        "block_table": [], "sampling_params": params, "seed": 0,
    } | fields  # fmt: skip
    return NewSequence(**given_fields)


def draw(logits: np.ndarray, params: SamplingParams, count: int, seed: int = 0) -> np.ndarray:
    """Draw `count` times from one row, as samples of one prompt."""
    state = RowState(new_sequence(params, num_samples=count, seed=seed))
    tokens, _, failed = Sampler(len(logits)).sample(logits.copy()[None], [state])
    assert failed == [None]
    assert len(tokens[0]) == count
    return np.array(tokens[0])


def oracle(logits: np.ndarray, params: SamplingParams) -> np.ndarray:
    """Compute the distribution by sorting in float64, one cut after the other."""
    probabilities = np.exp(log_softmax(logits / np.float64(params.temperature)))
    kept = probabilities >= params.min_p * probabilities.max()
    if params.top_k:
        kept &= probabilities >= np.sort(probabilities)[::-1][min(params.top_k, len(probabilities)) - 1]
    probabilities = np.where(kept, probabilities, 0)
    probabilities /= probabilities.sum()
    more_likely = np.array([probabilities[probabilities > p].sum() for p in probabilities])
    probabilities = np.where(more_likely < params.top_p, probabilities, 0)
    return probabilities / probabilities.sum()


def assert_follows(drawn: np.ndarray, expected: np.ndarray) -> None:
    """Check that no token without weight is drawn, and a chi-square that chance exceeds once in 10,000 times."""
    counts = np.bincount(drawn, minlength=len(expected))
    assert (counts[expected == 0] == 0).all(), "a token was drawn that was to be left out"
    wanted = expected * len(drawn)
    is_common = wanted >= 5
    groups = [(counts[i], wanted[i]) for i in np.flatnonzero(is_common)]
    rare = (expected > 0) & ~is_common
    if wanted[rare].sum() >= 5:
        groups.append((counts[rare].sum(), wanted[rare].sum()))
    chi_square = sum((seen - want) ** 2 / want for seen, want in groups)
    freedom = len(groups) - 1
    assert chi_square < freedom + 3.72 * (2 * max(freedom, 1)) ** 0.5 + 10


CASES = [
    {"temperature": 1.0},
    {"temperature": 0.3},
    {"temperature": 3.0},
    {"top_k": 1},
    {"top_k": 7},
    {"top_k": 1000},
    {"top_p": 0.01},
    {"top_p": 0.5},
    {"top_p": 0.9},
    {"top_p": 0.999},
    {"min_p": 0.1},
    {"min_p": 1.0},
    {"temperature": 2.0, "min_p": 0.3},
    {"temperature": 0.7, "top_k": 12, "top_p": 0.8, "min_p": 0.02},
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("vocab_size", [VOCAB, 1300])
def test_draws_follow_the_distribution(case: dict[str, Any], vocab_size: int) -> None:
    logits = normal(vocab_size, seed=1) * 2
    params = SamplingParams(**case)
    assert_follows(draw(logits, params, 4000), oracle(logits, params))


def test_a_nucleus_includes_ties_with_its_last_token() -> None:
    logits = np.array([2.0, 1.0, 1.0, 1.0, 0.0], dtype=np.float32)
    params = SamplingParams(top_p=0.6)
    assert_follows(draw(logits, params, 3000), oracle(logits, params))
    assert set(draw(logits, params, 3000)) == {0, 1, 2, 3}


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    temperature=st.floats(0.1, 4),
    top_k=st.integers(0, 50),
    top_p=st.floats(0.01, 1),
    min_p=st.floats(0, 1),
    is_coarse=st.booleans(),
)
def test_nothing_is_drawn_that_a_sort_would_cut(
    seed: int, temperature: float, top_k: int, top_p: float, min_p: float, is_coarse: bool
) -> None:
    logits = normal(VOCAB, seed=seed) * 3
    if is_coarse:
        logits = logits.round()  # ties
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    # If a cut is within rounding of a token, both results are right.
    wider = SamplingParams(temperature=temperature, top_k=top_k, top_p=min(1, top_p + 1e-5), min_p=max(0, min_p - 1e-5))
    expected = oracle(logits, wider)
    drawn = draw(logits, params, 200, seed)
    assert (expected[drawn] > 0).all()


def test_a_draw_inverts_the_cumulative_distribution_at_its_own_number() -> None:
    logits = normal(VOCAB, seed=3)
    cumulative = np.cumsum(np.exp(log_softmax(logits)))
    params = SamplingParams()
    for index, position, seed in [(0, 0, 1), (2, 0, 1), (0, 5, 1), (1, 3, 2**63 - 1), (0, 0, -5)]:
        state = RowState(new_sequence(params, index=index, seed=seed, token_ids=[1, 2, 3] + [4] * position))
        token = Sampler(VOCAB).sample(logits.copy()[None], [state])[0][0][0]
        assert token == np.searchsorted(cumulative, uniform(seed, index, position, 0), side="right")


def test_numbers_are_uniform_and_independent_of_their_neighbours() -> None:
    numbers = np.array([[uniform(seed, index, at, 0) for at in range(50)] for seed in range(20) for index in range(4)])
    assert 0 <= numbers.min() < numbers.max() < 1
    counts = np.histogram(numbers, bins=20, range=(0, 1))[0]
    assert ((counts - 200) ** 2 / 200).sum() < 19 + 4 * 38**0.5
    correlation = np.corrcoef(numbers)
    assert np.abs(correlation[~np.eye(len(numbers), dtype=bool)]).max() < 0.7


def test_a_row_is_drawn_alike_whatever_its_neighbours() -> None:
    logits = normal(6, 1300, seed=4) * 2
    cases = [CASES[i] for i in (0, 4, 7, 10, 13, 2)]
    infos = [new_sequence(SamplingParams(**case), seed=i) for i, case in enumerate(cases)]
    together = Sampler(1300).sample(logits.copy(), [RowState(info) for info in infos])[0]
    alone = [Sampler(1300).sample(logits[i : i + 1].copy(), [RowState(info)])[0][0] for i, info in enumerate(infos)]
    assert together == alone


def test_a_gpu_finds_best_tokens_and_sends_all_other_rows_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any tensor is treated like one on a GPU."""
    logits = normal(5, 1300, seed=4) * 2
    greedy = SamplingParams(temperature=0)
    asked = [
        greedy, SamplingParams(top_p=0.9), greedy, SamplingParams(temperature=0, bad_words_token_ids=((3,),)),
        SamplingParams(temperature=0, logprobs=2),
    ]  # fmt: skip
    sizes = []
    to_host = sampler_module.to_host
    monkeypatch.setattr(sampler_module, "to_host", lambda rows: sizes.append(len(rows)) or to_host(rows))
    for tensor, num_rows in [(torch.from_numpy(logits), [3]), (torch.from_numpy(logits[[0, 2]]), [])]:
        states = [RowState(new_sequence(each, seed=1)) for each in (asked if num_rows else [greedy, greedy])]
        expected = Sampler(1300).sample(tensor.numpy().copy(), states)
        sizes.clear()
        assert Sampler(1300).sample(tensor, states) == expected
        assert sizes == num_rows


# -- penalties, biases, bans -----------------------------------------------------------------------------------------


def processed(logits: np.ndarray, params: SamplingParams, prompt: list[int], output: list[int], **fields: Any) -> Any:
    """Return the logits after bans, biases and penalties, determined by successive greedy draws."""
    info = new_sequence(params, token_ids=prompt + output, num_prompt_tokens=len(prompt), **fields)
    return constrained(logits, RowState(info))


def constrained(logits: np.ndarray, state: RowState) -> np.ndarray:
    row, sampler = logits.copy(), Sampler(len(logits))
    _apply_biases(row, state)
    for words in sampler._masks([state], {}).values():
        apply_mask(row, words)
    return row


def naive(logits: np.ndarray, params: SamplingParams, prompt: list[int], output: list[int]) -> np.ndarray:
    row = logits.copy()
    for token in range(len(row)):
        if params.allowed_token_ids is not None and token not in params.allowed_token_ids:
            row[token] = -np.inf
        row[token] += (params.logit_bias or {}).get(token, 0.0)
        if token in prompt or token in output:
            row[token] *= params.repetition_penalty if row[token] < 0 else 1 / params.repetition_penalty
        row[token] -= output.count(token) * params.frequency_penalty + (token in output) * params.presence_penalty
    for word in params.bad_words_token_ids:
        if len(word) == 1 or tuple(output[len(output) - len(word) + 1 :]) == word[:-1]:
            row[word[-1]] = -np.inf
    return row


tokens = st.integers(0, VOCAB - 1)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    prompt=st.lists(tokens, min_size=1, max_size=100),
    output=st.lists(tokens, max_size=30),
    repetition=st.sampled_from([1.0, 1.3, 0.7]),
    presence=st.sampled_from([0.0, 1.5, -2.0]),
    frequency=st.sampled_from([0.0, 0.5, -1.0]),
    bias=st.dictionaries(tokens, st.floats(-100, 100), max_size=5),
    allowed=st.none() | st.lists(tokens, min_size=3, max_size=20, unique=True),
    words=st.lists(st.lists(tokens, min_size=1, max_size=3), max_size=4),
)
def test_penalties_biases_and_bans_are_what_they_say(
    seed: int, prompt: list[int], output: list[int], repetition: float, presence: float, frequency: float,
    bias: dict[int, float], allowed: list[int] | None, words: list[list[int]],
) -> None:  # fmt: skip
    words.append([*output[-2:], 7])  # one about to be completed
    params = SamplingParams(
        repetition_penalty=repetition, presence_penalty=presence, frequency_penalty=frequency, logit_bias=bias,
        allowed_token_ids=allowed, bad_words_token_ids=tuple(map(tuple, words)),
    )  # fmt: skip
    logits = normal(VOCAB, seed=seed) * 3
    # Batched counts equal counts by token.
    grown = RowState(new_sequence(params, token_ids=prompt, num_prompt_tokens=len(prompt)))
    for token in output:
        grown.append(token)
    row = constrained(logits, grown)
    expected = naive(logits, params, prompt, output)
    np.testing.assert_allclose(row, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(processed(logits, params, prompt, output), expected, rtol=1e-5, atol=1e-5)


def test_the_repetition_penalty_is_that_of_transformers() -> None:
    logits = normal(VOCAB, seed=5)
    prompt, output = [1, 2, 3, 3], [9, 10, 9]
    expected = RepetitionPenaltyLogitsProcessor(1.7)(torch.tensor([prompt + output]), torch.tensor(logits)[None])[0]
    found = processed(logits, SamplingParams(repetition_penalty=1.7), prompt, output)
    torch.testing.assert_close(torch.from_numpy(found), expected)


def test_stop_tokens_are_banned_until_min_tokens_are_there() -> None:
    logits = np.zeros(VOCAB, dtype=np.float32)
    params = SamplingParams(min_tokens=3)
    for num_output, is_banned in [(0, True), (2, True), (3, False)]:
        row = processed(logits, params, [1], [4] * num_output, stop_token_ids=(7, 9))
        assert (row[[7, 9]] == -np.inf).all() == is_banned
        assert (row[8] == 0).all()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_where_every_token_is_banned_the_row_fails_and_its_neighbours_do_not(temperature: float) -> None:
    nothing = SamplingParams(temperature=temperature, allowed_token_ids=(5,), bad_words_token_ids=((5,),))
    states = [RowState(new_sequence(params)) for params in (SamplingParams(), nothing, SamplingParams(temperature=0))]
    drawn, _, failed = Sampler(VOCAB).sample(normal(3, VOCAB), states)
    assert failed[0] is None
    assert failed[2] is None
    assert failed[1] is not None
    assert [len(tokens) for tokens in drawn] == [1, 0, 1]


@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_few_allowed_tokens_are_drawn_from_as_many_are(
    monkeypatch: pytest.MonkeyPatch, temperature: float, dtype: str
) -> None:
    """Listing few allowed tokens and scanning all logits give the same result."""
    logits = (normal(40, 3000, seed=1) * 3).astype(numpy_dtype(dtype))
    rng = np.random.default_rng(2)
    asked = [
        SamplingParams(
            temperature=temperature, allowed_token_ids=tuple(map(int, rng.integers(0, 3000, 1 + row))),
            top_k=(0, 2)[row % 2], top_p=(1.0, 0.7)[row // 2 % 2], seed=row, logprobs=(None, 1)[row % 3 == 0],
            repetition_penalty=(1.0, 1.5)[row % 5 == 0],
        )
        for row in range(len(logits))
    ]  # fmt: skip

    def sample() -> list[list[int]]:
        return Sampler(3000).sample(logits.copy(), [RowState(new_sequence(params)) for params in asked])[0]

    listed = sample()
    monkeypatch.setattr("quire.runner.token_mask._MOST_LISTED", -1)
    assert sample() == listed
    assert all(token in params.allowed_token_ids for (token,), params in zip(listed, asked, strict=True))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(), SamplingParams(temperature=0), SamplingParams(top_p=0.5), SamplingParams(logprobs=3),
        SamplingParams(allowed_token_ids=(3, 4)), SamplingParams(repetition_penalty=1.5, temperature=0),
    ],
)  # fmt: skip
def test_a_row_that_is_not_numbers_fails_alone(bad: float, params: SamplingParams) -> None:
    logits = normal(3, VOCAB)
    logits[1, 11] = bad
    drawn, _, failed = Sampler(VOCAB).sample(logits, [RowState(new_sequence(params)) for _ in range(3)])
    assert [why is None for why in failed] == [True, False, True]
    assert [len(tokens) for tokens in drawn] == [1, 0, 1]
    logits = np.full((1, VOCAB), -np.inf, dtype=np.float32)
    assert Sampler(VOCAB).sample(logits, [RowState(new_sequence(params))])[2] != [None]


_LOGITS = st.sampled_from([0.0, -0.0, 1e-45, 1.0, -1.0, 17.3, -40.0, 1e6, -1e6, 3.3e38, -3.3e38, -float("inf")])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    values=st.lists(_LOGITS, min_size=VOCAB, max_size=VOCAB),
    temperature=st.sampled_from([0, 1e-5, 2e-5, 0.7, 1, 100]),
    top_p=st.sampled_from([5e-324, 1e-9, 0.5, 1]),
    top_k=st.sampled_from([0, 1, 5]),
    min_p=st.sampled_from([0, 5e-324, 0.5, 1]),
    repetition=st.sampled_from([0.01, 1, 1.3, 100]),
    bias=st.none() | st.dictionaries(tokens, st.sampled_from([-100, 100]), max_size=5),
    allowed=st.none() | st.lists(tokens, min_size=1, max_size=5),
    dtype=st.sampled_from([FLOAT32, BFLOAT16, np.dtype(np.float16)]),
)
def test_a_row_of_any_logits_gives_an_allowed_token_or_fails_alone_with_a_message(
    values: list[float], temperature: float, top_p: float, top_k: int, min_p: float, repetition: float,
    bias: dict[int, float] | None, allowed: list[int] | None, dtype: np.dtype,
) -> None:  # fmt: skip
    params = SamplingParams(
        temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p, repetition_penalty=repetition,
        logit_bias=bias, allowed_token_ids=allowed, logprobs=1, bad_words_token_ids=((7,), (3, 8)),
    )  # fmt: skip
    usual = normal(VOCAB, seed=3)
    with np.errstate(over="ignore"):
        logits = np.stack((usual, np.array(values, dtype=np.float32), usual)).astype(dtype)
    output = {"token_ids": [1, 2, 3, 3]}  # one of a bad word's two tokens
    asked = [(SamplingParams(), {}), (params, output), (SamplingParams(), {})]
    states = [RowState(new_sequence(each, seed=5, **more)) for each, more in asked]
    drawn, _, failed = Sampler(VOCAB).sample(logits.copy(), states)
    alone = Sampler(VOCAB).sample(logits[:1].copy(), [RowState(new_sequence(SamplingParams(), seed=5))])[0][0]
    assert (drawn[0], drawn[2], failed[0], failed[2]) == (alone, alone, None, None)
    if failed[1] is None:
        (token,) = drawn[1]
        assert allowed is None or token in allowed
        assert token not in (7, 8)
        assert logits[1, token] > -np.inf
    else:
        assert drawn[1] == []
        assert any(why in str(failed[1]) for why in ("every token is banned", "not numbers", "beyond the numbers"))


def test_logits_of_minus_infinity_are_never_drawn() -> None:
    logits = normal(1300)
    logits[np.random.default_rng(1).permutation(1300)[:1200]] = -np.inf
    for case in CASES:
        assert np.isfinite(logits[draw(logits, SamplingParams(**case), 200)]).all()


@pytest.mark.parametrize("temperature", [2e-5, 1e-3, 0.01])
def test_a_very_low_temperature_is_nearly_greedy(temperature: float) -> None:
    logits = normal(1300, seed=8) * 10 + 100  # the best token is far ahead
    assert set(draw(logits, SamplingParams(temperature=temperature), 200)) == {int(logits.argmax())}


def test_two_equal_logits_stay_equally_likely_at_a_low_temperature() -> None:
    logits = np.full(VOCAB, -50.0, dtype=np.float32)
    logits[3] = logits[30] = 17.3
    counts = np.bincount(draw(logits, SamplingParams(temperature=1e-3), 2000), minlength=VOCAB)
    assert counts[3] + counts[30] == 2000
    assert abs(counts[3] - 1000) < 120


# -- log-probabilities -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vocab_size", [1, 7, 512, 513, 5000, 50_257])
@pytest.mark.parametrize("k", [1, 2, 5, 20, 100])
@pytest.mark.parametrize("kind", ["random", "ties", "all equal", "rising", "mostly -inf"])
def test_the_largest_values_are_those_of_topk(vocab_size: int, k: int, kind: str) -> None:
    row = normal(vocab_size, seed=k)
    if kind == "ties":
        row = row.round()
    elif kind == "all equal":
        row = np.zeros(vocab_size, dtype=np.float32)
    elif kind == "rising":
        row = np.arange(vocab_size, dtype=np.float32)
    elif kind == "mostly -inf":
        row[3:] = -np.inf
    values, ids = top_values(row, k)
    assert np.array_equal(values, torch.from_numpy(row).topk(min(k, vocab_size)).values.numpy())
    assert ids.tolist() == best(row, k)
    assert np.array_equal(row[ids], values)


def test_log_probabilities_and_ranks_are_those_of_log_softmax() -> None:
    logits = normal(8, 1300, seed=6) * 3
    chosen = [int(logits[0].argmax()), int(logits[1].argmin()), 3, 4, 5, 6, 7, 1299]
    expected = log_softmax(logits)
    for i, entry in enumerate(token_logprobs(logits, chosen, 5)):
        assert entry.token_id == chosen[i]
        assert entry.logprob == pytest.approx(float(expected[i, chosen[i]]), abs=1e-5)
        assert entry.rank == 1 + int((logits[i] > logits[i, chosen[i]]).sum())
        assert entry.top_ids == best(logits[i], 5)
        assert entry.top_logprobs == pytest.approx(expected[i][best(logits[i], 5)].tolist(), abs=1e-5)
    assert token_logprobs(logits, chosen, 0)[0].top_ids == []


def test_log_probabilities_are_the_models_before_penalties_and_temperature() -> None:
    logits = normal(1, VOCAB, seed=7)
    params = SamplingParams(logprobs=4, temperature=0.5, logit_bias={3: 50.0}, presence_penalty=1.0, top_k=2)
    drawn, entries, _ = Sampler(VOCAB).sample(logits.copy(), [RowState(new_sequence(params))])
    assert drawn == [[3]]
    assert entries[0] is not None
    assert entries[0][0].logprob == pytest.approx(float(log_softmax(logits[0])[3]), abs=1e-5)
    assert entries[0][0].top_ids == best(logits[0], 4)


def test_a_beam_gets_candidates_and_no_token() -> None:
    logits = normal(1, VOCAB)
    state = RowState(new_sequence(SamplingParams(temperature=0), num_candidates=6))
    drawn, entries, _ = Sampler(VOCAB).sample(logits.copy(), [state])
    assert drawn == [[]]
    assert entries[0] is not None
    assert entries[0][0].top_ids == best(logits[0], 6)
