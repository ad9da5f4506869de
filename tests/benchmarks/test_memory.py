"""The memory study: small cases by hand, and the closed forms against step-by-step counts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.memory import (
    MemorySettings,
    clip,
    next_power_of_two,
    run,
    study,
    waste_of_blocks,
    waste_of_reservation,
)
from quire.bench.workload import Lengths


def waste_of_steps(steps: list[tuple[int, int]]) -> float:
    """Compute the waste from (used, allocated) tokens of each step."""
    return 1 - sum(used for used, _ in steps) / sum(allocated for _, allocated in steps)


REQUESTS = st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), min_size=1, max_size=5)


def tokens(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def steps_of(prompt: int, output: int, reserve: Callable[[int], int]) -> Iterator[tuple[int, int]]:
    """Return (used, reserved) for each step of an engine."""
    for k in range(1, output + 1):
        used = prompt + k - 1
        yield used, reserve(used)


def test_one_request_by_hand() -> None:
    # 3 prompt tokens and 3 generated ones: three steps with 3, 4 and 5 tokens, 12 in all.
    prompt, output = tokens(3), tokens(3)
    assert waste_of_reservation(prompt, output, tokens(8)) == pytest.approx((1 - 12 / 24, 1 - 5 / 8))
    # Blocks of 4 hold 4, 4 and 8 tokens.
    assert waste_of_blocks(prompt, output, 4) == pytest.approx((1 - 12 / 16, 1 - 5 / 8))
    # Blocks of 1 waste nothing.
    assert waste_of_blocks(prompt, output, 1) == (0, 0)


def test_two_requests_count_by_the_memory_that_they_hold() -> None:
    # The second lives for one step with 8 tokens: 12 + 8 used of 16 + 8 in blocks of 4.
    time_weighted, at_completion = waste_of_blocks(tokens(3, 8), tokens(3, 1), 4)
    assert time_weighted == pytest.approx(1 - 20 / 24)
    assert at_completion == pytest.approx(1 - 13 / 16)


def test_all_policies_of_one_request_by_hand() -> None:
    result = study(Lengths([3], [3]), max_model_len=16, block_sizes=(4,))
    by_name = {waste.policy: (waste.time_weighted, waste.at_completion) for waste in result.wastes}
    assert by_name["max_model_len"] == pytest.approx((1 - 12 / 48, 1 - 5 / 16))
    assert by_name["power of two"] == pytest.approx((1 - 12 / 24, 1 - 5 / 8))  # 6 -> 8
    assert by_name["output's power"] == pytest.approx((1 - 12 / 21, 1 - 5 / 7))  # 3 + (3 -> 4)
    assert by_name["oracle"] == pytest.approx((1 - 12 / 18, 1 - 5 / 6))
    assert by_name["blocks of 4"] == pytest.approx((1 - 12 / 16, 1 - 5 / 8))
    assert (result.num_requests, result.num_clipped) == (1, 0)


@given(REQUESTS, st.sampled_from([1, 2, 3, 7, 16, 64]))
def test_the_closed_form_for_blocks_counts_every_step(requests: list[tuple[int, int]], size: int) -> None:
    steps = [step for p, o in requests for step in steps_of(p, o, lambda used: -(-used // size) * size)]
    time_weighted, _ = waste_of_blocks(tokens(*(p for p, _ in requests)), tokens(*(o for _, o in requests)), size)
    assert time_weighted == pytest.approx(waste_of_steps(steps))


@given(REQUESTS)
def test_the_closed_form_for_reservations_counts_every_step(requests: list[tuple[int, int]]) -> None:
    steps = [step for p, o in requests for step in steps_of(p, o, lambda used, total=p + o: total)]
    prompt, output = tokens(*(p for p, _ in requests)), tokens(*(o for _, o in requests))
    time_weighted, _ = waste_of_reservation(prompt, output, prompt + output)
    assert time_weighted == pytest.approx(waste_of_steps(steps))


@given(REQUESTS)
def test_smaller_blocks_that_divide_larger_ones_never_waste_more(requests: list[tuple[int, int]]) -> None:
    prompt, output = tokens(*(p for p, _ in requests)), tokens(*(o for _, o in requests))
    wastes = [waste_of_blocks(prompt, output, size)[0] for size in (1, 2, 4, 8, 16, 32)]
    assert wastes == sorted(wastes)


def test_requests_beyond_the_limit_are_cut_and_counted() -> None:
    prompt, output, num_clipped = clip(tokens(10, 90, 100, 500, 60), tokens(20, 30, 1, 7, 40), 100)
    assert prompt.tolist() == [10, 90, 99, 99, 60]
    assert output.tolist() == [20, 10, 1, 1, 40]
    assert num_clipped == 3


def test_the_next_power_of_two_is_exact() -> None:
    values = [1, 2, 3, 4, 5, 1023, 1024, 1025, 2**40, 2**40 + 1]
    assert next_power_of_two(tokens(*values)).tolist() == [1, 2, 4, 4, 8, 1024, 1024, 2048, 2**40, 2**41]


@pytest.mark.parametrize("given", [{"max_model_len": "1"}, {"block_size": "16,0"}])
def test_limits_that_hold_nothing_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="must be at least"):
        MemorySettings(Path("trace.csv"), **given)  # type: ignore[arg-type]


def test_a_run_prints_a_table_and_writes_json_and_a_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.csv"
    rows = [f"2023-11-16 18:00:{i:02d},{1000 + 90 * i},{10 + i}\n" for i in range(20)]
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(rows))
    run(MemorySettings(trace), json_path=tmp_path / "waste.json", plot_path=tmp_path / "waste.png")
    printed = capsys.readouterr().out
    assert "blocks of 16" in printed
    assert "SOSP '23" in printed
    data = json.loads((tmp_path / "waste.json").read_text())
    assert data["benchmark"] == "memory"
    assert data["machine"]["cores"] >= 1
    limits = {figure["max_model_len"] for figure in data["figures"]}
    assert limits == {2048, 4096}  # the paper's, and the first without truncation
    assert {"policy", "max_model_len", "time_weighted", "at_completion"} == set(data["figures"][0])
    assert (tmp_path / "waste.png").read_bytes().startswith(b"\x89PNG")
