"""The document prefill benchmark: it computes ahead where steps wait for weights, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.document_prefill import LOADS, DocumentPrefillSettings, compare, find


@pytest.mark.parametrize("machine", ["roofline", "cpu", "cps-paper"])
def test_waiting_requests_gain_where_steps_have_tokens_to_spare_and_streams_lose_nothing(machine: str) -> None:
    load = replace(LOADS[2], document_tokens=512)
    figures = compare(find(machine), load, DocumentPrefillSettings(num_requests=40, seeds=2))
    if machine == "cps-paper":
        assert figures["share"]["max"] == 0.0
        assert figures["ttft_mean_ratio"]["min"] == figures["ttft_mean_ratio"]["max"] == 1.0
    else:
        assert figures["share"]["min"] > 0.0
        assert figures["ttft_mean_ratio"]["max"] < 1.0
    assert figures["itl_p99_ratio"]["max"] <= 1.05
