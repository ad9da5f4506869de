"""Validation of sampling parameters: an error names the field, the value and the expectation."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from quire.sampling_params import BeamSearchParams, SamplingParams

NAN, INF = float("nan"), float("inf")
TOKEN_IDS = "token ids are integers from 0 on"
STRINGS = "a string or a list of strings, none of them empty"
LOGPROBS = "an integer from 0 on, or -1 for all tokens"
BOOL = "True or False"
BIAS = "a mapping from token ids, in plain digits, to numbers"

REFUSED: list[tuple[str, Any, str]] = [
    *(("n", value, "an integer from 1 to 1024") for value in (0, -1, 1025, 1.0, "2", None, True)),
    *(("temperature", value, "a number from 0 (greedy) to 100") for value in (-0.1, 101, NAN, INF, "1", None, True)),
    ("temperature", 10**400, "a number from 0 (greedy) to 100"),
    *(("top_p", value, "a number above 0 and up to 1") for value in (0, 0.0, 1.01, -1, NAN, "1", None)),
    *(("top_k", value, "a positive integer, or 0 or -1 to keep all tokens") for value in (-2, 1.5, "5", None, 2**31)),
    *(("min_p", value, "a number from 0 to 1") for value in (-0.1, 1.1, NAN, None)),
    *(
        ("repetition_penalty", value, "a number from 0.01 to 100; 1: none")
        for value in (0, 1e-38, 0.009, 101, -1, INF, "1", None)
    ),
    *(("presence_penalty", value, "a number from -2 to 2") for value in (-2.1, 2.1, NAN, None)),
    *(("frequency_penalty", value, "a number from -2 to 2") for value in (-2.1, 2.1, INF, "0")),
    *(("seed", value, "an integer of 64 bits") for value in (2**63, -(2**63) - 1, 1.0, "1", True)),
    *(("min_tokens", value, "an integer from 0 on") for value in (-1, 1.5, None)),
    ("min_tokens", 17, "at most max_tokens, which is 16"),
    *(("max_tokens", value, "an integer from 1 on, or None for as many as fit") for value in (0, -1, 1.5, "16", True)),
    *(("logprobs", value, LOGPROBS) for value in (-2, 2**31, True, 1.0, "1")),
    *(("prompt_logprobs", value, LOGPROBS) for value in (-2, 2**31, True, 1.0)),
    *(("stop", value, STRINGS) for value in ("", ["a", ""], [1], 5, [None])),
    *(("bad_words", value, STRINGS) for value in ("", ["a", ""], [1], 5)),
    *(("stop_token_ids", value, TOKEN_IDS) for value in ([-1], ["1"], [1.0], [True], "12")),
    ("stop_token_ids", 5, "a list of token ids"),
    *(("allowed_token_ids", value, TOKEN_IDS) for value in ([-1], ["1"], [1.0], [None])),
    ("allowed_token_ids", 5, "a list of token ids"),
    ("allowed_token_ids", [], "at least one token, or None to allow all"),
    *(("bad_words_token_ids", value, TOKEN_IDS) for value in ([[-1]], [["1"]], [[1], [1.0]])),
    *(("bad_words_token_ids", value, "a list of lists of token ids, none of them empty") for value in ([[]], 5, [5])),
    *(
        ("logit_bias", value, BIAS)
        for value in (5, [1], {"a": 1}, {" 5": 1}, {"5_0": 1}, {"+5": 1}, {"٥": 1}, {"05": 1})
    ),
    *(("logit_bias", value, TOKEN_IDS) for value in ({-1: 1}, {1.5: 1}, {True: 1}, {None: 1}, {INF: 1}, {"-1": 1})),
    *(("logit_bias", {1: value}, "each bias is a number from -100 to 100") for value in (101, -101, NAN, "a", None)),
    *((name, "yes", BOOL) for name in ("include_stop_str_in_output", "ignore_eos")),
    *((name, 1, BOOL) for name in ("skip_special_tokens", "detokenize")),
]


@pytest.mark.parametrize(("name", "value", "expected"), REFUSED, ids=lambda value: str(value)[:24])
def test_a_value_out_of_range_is_refused_by_name_with_the_range(name: str, value: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"is not valid: {expected}")) as refusal:
        SamplingParams(**{name: value})
    assert str(refusal.value).startswith(f"{name}=")


ACCEPTED: list[tuple[str, Any, Any]] = [
    *(("n", value, value) for value in (1, 1024)),
    *(("temperature", value, value) for value in (0, 0.0, 1, 100)),
    *(("top_p", value, value) for value in (1e-9, 1, 1.0)),
    *(("top_k", value, max(value, 0)) for value in (-1, 0, 1, 10**6)),
    *(("min_p", value, value) for value in (0, 1)),
    *(("seed", value, value) for value in (None, 0, -1, 2**63 - 1, -(2**63))),
    *(("max_tokens", value, value) for value in (None, 1, 2**31 - 1)),
    *(("logprobs", value, value) for value in (None, -1, 0, 1000)),
    ("stop", None, ()),
    ("stop", "end", ("end",)),
    ("stop", ["a", "b"], ("a", "b")),
    ("bad_words", "word", ("word",)),
    ("stop_token_ids", None, ()),
    ("stop_token_ids", [1, 2], (1, 2)),
    ("allowed_token_ids", None, None),
    ("allowed_token_ids", [3], (3,)),
    ("bad_words_token_ids", None, ()),
    ("bad_words_token_ids", [[1, 2], [3]], ((1, 2), (3,))),
    ("logit_bias", None, None),
    ("logit_bias", {"5": 1, 6: -100}, {5: 1.0, 6: -100.0}),
]


@pytest.mark.parametrize(("name", "value", "kept"), ACCEPTED, ids=lambda value: str(value)[:24])
def test_a_value_in_range_is_kept_in_one_form(name: str, value: Any, kept: Any) -> None:
    assert getattr(SamplingParams(**{name: value}), name) == kept


def test_every_field_is_checked_against_nonsense() -> None:
    """No field accepts an object of an unknown kind, and all raise ValueError."""
    for field in fields(SamplingParams):
        with pytest.raises(ValueError, match=field.name):
            SamplingParams(**{field.name: object()})


def test_min_tokens_without_max_tokens_is_only_a_lower_bound() -> None:
    assert SamplingParams(min_tokens=1000, max_tokens=None).min_tokens == 1000


def test_stop_strings_need_text() -> None:
    with pytest.raises(ValueError, match=r"^stop=\('end',\) is not valid: stop strings need detokenize=True"):
        SamplingParams(stop="end", detokenize=False)


def test_parameters_are_values() -> None:
    params = SamplingParams(stop=["a"], logit_bias={1: 2})
    assert params == SamplingParams(stop="a", logit_bias={"1": 2.0})
    with pytest.raises(FrozenInstanceError):
        params.n = 2  # type: ignore[misc]


def test_greedy_is_a_temperature_of_nothing() -> None:
    assert SamplingParams(temperature=0).is_greedy
    assert SamplingParams(temperature=1e-6).is_greedy
    assert not SamplingParams(temperature=1e-4).is_greedy


@pytest.mark.parametrize(
    "given",
    [
        {"logit_bias": {10: 1.0}},
        {"allowed_token_ids": [1, 10]},
        {"stop_token_ids": [10]},
        {"bad_words_token_ids": [[1], [2, 10]]},
    ],
)
def test_token_ids_that_the_model_does_not_have_are_refused_by_name(given: dict[str, Any]) -> None:
    [name] = given
    params = SamplingParams(**given)
    params.check_vocabulary(11)
    with pytest.raises(ValueError, match=rf"^{name}=10 is not valid: the model's token ids end at 9$"):
        params.check_vocabulary(10)


BEAM_REFUSED: list[tuple[str, Any, str]] = [
    *(("beam_width", value, "an integer from 1 to 50") for value in (0, 51, 1.0, None, True)),
    *(("max_tokens", value, "an integer from 1 on") for value in (0, None, 2.0)),
    *(("length_penalty", value, "a number from -10 to 10") for value in (NAN, INF, "1", None, -10.1, 11)),
    *(("early_stopping", value, "True, False or 'never'") for value in ("always", 1, 0, None, [])),
    *((name, 1, BOOL) for name in ("ignore_eos", "skip_special_tokens")),
]


@pytest.mark.parametrize(("name", "value", "expected"), BEAM_REFUSED, ids=lambda value: str(value)[:24])
def test_a_beam_search_out_of_range_is_refused_by_name_with_the_range(name: str, value: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name}=.* is not valid: {re.escape(expected)}"):
        BeamSearchParams(**{"beam_width": 2, "max_tokens": 4, name: value})


@pytest.mark.parametrize("early_stopping", [True, False, "never"])
def test_a_beam_search_in_range_is_kept(early_stopping: bool | str) -> None:
    params = BeamSearchParams(50, 1, length_penalty=-1.5, early_stopping=early_stopping)
    assert (params.beam_width, params.early_stopping, params.length_penalty) == (50, early_stopping, -1.5)
