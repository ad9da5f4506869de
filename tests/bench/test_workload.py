"""Workload files mean the same to every engine, and invalid ones are rejected by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.bench.workload import (
    Lengths,
    Workload,
    WorkloadRequest,
    fixed_lengths,
    make_workload,
    read_trace,
    read_workload,
    uniform_lengths,
    write_workload,
)


def write(path: Path, data: object) -> Path:
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def test_a_workload_reads_back_as_it_was_written(tmp_path: Path) -> None:
    workload = Workload("W", [WorkloadRequest([300, 301], 5, 0.25), WorkloadRequest([302], 1)], note="two")
    write_workload(workload, tmp_path / "w.json")
    assert read_workload(tmp_path / "w.json") == workload


def test_without_arrivals_a_file_has_only_what_every_engine_reads(tmp_path: Path) -> None:
    write_workload(Workload("W", [WorkloadRequest([300], 2)]), tmp_path / "w.json")
    data = json.loads((tmp_path / "w.json").read_text())
    assert data["requests"] == [{"prompt_token_ids": [300], "max_tokens": 2}]
    assert data["greedy"] is True
    assert data["ignore_eos"] is True


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{", "is not JSON"),
        ([], "is not a workload"),
        ({"requests": []}, "has no requests"),
        ({"requests": [{"prompt_token_ids": [1]}]}, "request 0: max_tokens is None"),
        ({"requests": [{"prompt_token_ids": [1], "max_tokens": 0}]}, "request 0: max_tokens is 0"),
        ({"requests": [{"prompt_token_ids": [1], "max_tokens": True}]}, "max_tokens is True"),
        ({"requests": [{"prompt_token_ids": [], "max_tokens": 1}]}, "at least one token id"),
        ({"requests": [{"prompt_token_ids": [-1], "max_tokens": 1}]}, "integers from 0 on"),
        ({"requests": [{"prompt_token_ids": [1.5], "max_tokens": 1}]}, "integers from 0 on"),
        ({"requests": [{"prompt_token_ids": [1], "max_tokens": 1}, 3]}, "request 1 is int"),
        ({"requests": [{"prompt_token_ids": [1], "max_tokens": 1, "arrival_s": -1}]}, "arrival_s is -1"),
        ({"requests": [{"prompt_token_ids": [1], "max_tokens": 1, "n": 2}]}, "unknown field 'n'"),
        ({"requests": [{"prompt_token_ids": [1], "max_tokens": 1}], "greedy": 1}, "greedy is 1"),
        ({"requests": [{"prompt_token_ids": [1], "max_tokens": 1}], "rate": 1}, "unknown field 'rate'"),
    ],
)
def test_a_bad_workload_is_refused_by_name(tmp_path: Path, data: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_workload(write(tmp_path / "w.json", data))


def test_a_missing_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No such file"):
        read_workload(tmp_path / "none.json")


def test_each_repetition_moves_every_id_by_977_within_the_range() -> None:
    workload = Workload("W", [WorkloadRequest([300, 15_899, 5_000], 4)])
    assert workload.shifted(0) == workload
    assert workload.shifted(1).requests[0].prompt_token_ids == [1_277, 1_276, 5_977]
    assert workload.shifted(2).requests[0].prompt_token_ids == [2_254, 2_253, 6_954]


@given(st.lists(st.lists(st.integers(300, 15_899), min_size=1, max_size=6), min_size=2, max_size=4), st.integers(1, 50))
def test_shifting_keeps_what_prompts_share_and_moves_every_token(prompts: list[list[int]], repetition: int) -> None:
    workload = Workload("W", [WorkloadRequest(prompt, 1) for prompt in prompts])
    shifted = [request.prompt_token_ids for request in workload.shifted(repetition).requests]
    for before, after in zip(prompts, shifted, strict=True):
        assert all(300 <= token < 15_900 for token in after)
        assert all(a != b for a, b in zip(before, after, strict=True))
    for i in range(len(prompts) - 1):
        same_before = [a == b for a, b in zip(prompts[i], prompts[i + 1], strict=False)]
        same_after = [a == b for a, b in zip(shifted[i], shifted[i + 1], strict=False)]
        assert same_before == same_after


def test_lengths_are_drawn_from_ranges_with_both_ends_and_by_seed() -> None:
    lengths = uniform_lengths(500, (2, 4), (1, 3), seed=1)
    assert set(lengths.prompt) == {2, 3, 4}
    assert set(lengths.output) == {1, 2, 3}
    assert lengths == uniform_lengths(500, (2, 4), (1, 3), seed=1)
    assert lengths != uniform_lengths(500, (2, 4), (1, 3), seed=2)
    assert fixed_lengths(3, 7, 2) == Lengths([7, 7, 7], [2, 2, 2])


@pytest.mark.parametrize("ranges", [((0, 1), (1, 1)), ((2, 1), (1, 1)), ((1, 1), (0, 4))])
def test_ranges_that_hold_no_request_are_refused(ranges: tuple[tuple[int, int], tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="expected 1 <= low <= high"):
        uniform_lengths(1, *ranges)


def test_a_made_workload_has_the_lengths_and_the_shared_prefix_asked_for() -> None:
    lengths = Lengths([10, 12], [3, 4], [0.0, 1.5])
    workload = make_workload("M", lengths, shared_prefix=8, seed=3)
    first, second = workload.requests
    assert (len(first.prompt_token_ids), first.max_tokens, first.arrival_s) == (10, 3, 0.0)
    assert (len(second.prompt_token_ids), second.max_tokens, second.arrival_s) == (12, 4, 1.5)
    assert first.prompt_token_ids[:8] == second.prompt_token_ids[:8]
    assert (workload.num_prompt_tokens, workload.num_output_tokens) == (22, 7)
    with pytest.raises(ValueError, match="does not fit in a prompt of 10"):
        make_workload("M", lengths, shared_prefix=11)


def test_a_trace_gives_lengths_in_the_order_of_arrival(tmp_path: Path) -> None:
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:50.9951690,396,109\n"
        "2023-11-16 18:15:46.6805900,374,44\n"
    )
    lengths = read_trace(write(tmp_path / "trace.csv", text))
    assert (lengths.prompt, lengths.output) == ([374, 396], [44, 109])
    assert lengths.arrival_s == pytest.approx([0.0, 4.314579], abs=1e-6)
    assert len(lengths.first(1)) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time,in,out\n", "has no column TIMESTAMP"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "has no requests"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,x,4\n", "line 2"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,4\n", "line 2"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,4,4\n", "line 2.*noon"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,4,0\n", "at least one prompt token"),
    ],
)
def test_a_bad_trace_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_trace(write(tmp_path / "trace.csv", text))
