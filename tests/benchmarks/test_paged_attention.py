"""The PagedAttention figures: reservations hold what they should, and every figure has the paper's order."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from benchmarks.paged_attention import figures
from benchmarks.paged_attention.__main__ import main
from benchmarks.paged_attention.figures import FIGURES, PagedAttentionSettings, draw
from benchmarks.paged_attention.lengths import MAX_MODEL_LEN, PRESETS, draw_lengths
from benchmarks.paged_attention.machine import a100
from benchmarks.paged_attention.reservation import SYSTEMS, BuddyAllocator, ReservingKVCacheManager, tokens_to_reserve
from benchmarks.paged_attention.service import Decoding, Service, make_arrivals
from benchmarks.paged_attention.study import Load, Sweep
from benchmarks.script import make_app
from parameters import in_turns
from quire.bench.plots import save_plot
from quire.config import SchedulerConfig

TINY = PagedAttentionSettings(scale=0.08, num_slots=13_000, workers=1)


@pytest.fixture(autouse=True)
def _few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "_SHARES", (0.5,))
    monkeypatch.setattr(figures, "_SAMPLES", (Decoding(6), Decoding(4, is_beam=True)))


@given(st.integers(1, 100), st.lists(st.one_of(st.integers(1, 40), st.none()), max_size=60))
def test_pieces_of_the_buddy_allocator_never_overlap_and_merge_again(size: int, steps: list[int | None]) -> None:
    memory, held = BuddyAllocator(size), dict[int, int]()
    for wanted in steps:
        if wanted is None and held:
            memory.release(next(iter(held)))
            held.pop(next(iter(held)))
        elif wanted is not None and (start := memory.allocate(wanted)) is not None:
            held[start] = wanted
            assert start + wanted <= size
            assert all(one + held[one] <= other for one, other in pairwise(sorted(held)))
    for start in held:
        memory.release(start)
    assert memory.num_held == 0
    assert memory.allocate(1 << (size.bit_length() - 1)) is not None


def test_a_reservation_is_what_the_paper_says() -> None:
    reserved = [tokens_to_reserve(system, 100, 25, 2048) for system in ("oracle", "pow2", "max", "static")]
    assert reserved == [125, 132, 2048, 2048]
    with pytest.raises(ValueError, match="system='paged' is not known"):
        tokens_to_reserve("paged", 1, 1, 2048)


@pytest.mark.parametrize("name", PRESETS)
def test_drawn_lengths_have_the_means_of_their_preset(name: str) -> None:
    lengths, preset = draw_lengths(name, 4000), PRESETS[name]
    assert fmean(lengths.prompt) - preset.prefix == pytest.approx(preset.prompt, rel=0.06)
    assert fmean(lengths.output) == pytest.approx(preset.output, rel=0.06)
    assert max(p + o for p, o in zip(lengths.prompt, lengths.output, strict=True)) <= MAX_MODEL_LEN


@pytest.mark.parametrize(
    ("system", "decoding"), in_turns(list(SYSTEMS), [Decoding(), Decoding(3), Decoding(3, is_beam=True)])
)
def test_every_system_serves_all_requests_and_a_reservation_is_never_outgrown(system: str, decoding: Decoding) -> None:
    config = SchedulerConfig(num_blocks=512, max_num_batched_tokens=8192, max_num_seqs=64, enable_prefix_caching=False)
    service = Service(system, a100(), config, decoding)
    arrivals = make_arrivals(draw_lengths("alpaca", 30), 20.0)
    for arrival in arrivals:
        service.add(arrival)
    batches = []
    while service.has_steps:
        service.step()
        service.scheduler.check_integrity()
        batches.append({request.request_id for request in service.scheduler.queue.running})
        if isinstance(kv := service.scheduler.kv, ReservingKVCacheManager):
            assert kv.pool.num_used <= kv.memory.num_held <= config.num_blocks
            assert service.scheduler.counts.preemptions == 0
    assert sorted(service.ended) == list(range(30))
    if system == "static":  # no request joins a batch that runs
        assert all(not later - earlier for earlier, later in pairwise(batches) if earlier)
        assert len(set(service.ended.values())) == sum(not batch for batch in batches)


def test_the_sustained_rate_lies_between_the_runs_around_the_latency() -> None:
    load = Load("paged", "alpaca")
    points = [{"rate": rate, "normalised_s": latency} for rate, latency in ((1.0, 0.1), (4.0, 0.4))]
    assert Sweep(load, 3.0, points).sustained(0.2) == pytest.approx(2.0)
    assert Sweep(load, 3.0, points).sustained(0.5) is None


def _panels(number: int, tmp_path: Path) -> dict[str, list[dict[str, Any]]]:
    """Run a figure at tiny scale and draw it. Returns its figures by panel."""
    report = FIGURES[number](replace(TINY, scale=0.4) if number == 16 else TINY)  # short requests: more fill the pool
    save_plot(tmp_path / "figure.svg", lambda figure: draw(figure, number, report))
    panels: dict[str, list[dict[str, Any]]] = {}
    for each in report.figures:
        panels.setdefault(each["panel"], []).append(each)
    return panels


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "name"),
    [(13, "batched"), *product((12, 14, 16), ["capacity"])],
)
def test_paged_kv_serves_most_then_oracle_power_of_two_and_maximum(number: int, name: str, tmp_path: Path) -> None:
    for panel, rows in _panels(number, tmp_path).items():
        values = [row[name] for row in rows]
        assert values == sorted(values, reverse=True), f"{panel}: {[(row['name'], row[name]) for row in rows]}"
        assert values[0] > 1.5 * values[3], panel  # the maximum


def test_conversations_make_all_reservations_equal_and_paged_kv_serves_more(tmp_path: Path) -> None:
    (rows,) = _panels(17, tmp_path).values()
    paged, *reserved = [row["capacity"] for row in rows]
    assert len(set(reserved)) == 1  # 1,024 tokens and an answer round up to 2,048
    assert paged > 1.1 * reserved[0]


@pytest.mark.slow
def test_larger_blocks_waste_more_and_never_serve_faster(tmp_path: Path) -> None:
    for panel, rows in _panels(18, tmp_path).items():
        wasted = [row["wasted"] for row in rows]
        assert wasted == sorted(wasted), panel
        assert wasted[0] == 0 < wasted[-1]
        assert rows[-1]["normalised_s"] >= rows[4]["normalised_s"], panel


def test_the_command_writes_a_file_for_each_figure(tmp_path: Path) -> None:
    options = ["--figure", "13,18", "--scale", "0.01", "--workers", "1", "--json", str(tmp_path / "paged.json")]
    result = CliRunner().invoke(make_app(main), options)
    assert result.exit_code == 0, result.output
    assert "the paper" in result.output
    assert [len(json.loads((tmp_path / f"paged-{n}.json").read_text())["figures"]) for n in (13, 18)] == [10, 18]
    assert "figure=15 is not known" in CliRunner().invoke(make_app(main), ["--figure", "15"]).output
