"""Load statistics, compared with hand calculations."""

from __future__ import annotations

import pytest

from quire.bench.bench_settings import parse_goodput
from quire.bench.serving.latencies import distribution, is_good, serving_figures
from quire.bench.serving.load_client import LoadResult, RequestOutcome


def outcome(arrival: float, token_s: list[float], counted: int | None = None, **more: object) -> RequestOutcome:
    made = RequestOutcome(arrival, 10, 4, sent_s=arrival + 0.25, token_s=token_s, num_counted_tokens=counted)
    made.finish_reason = "length"
    for name, value in more.items():
        setattr(made, name, value)
    return made


TWO = [
    # due at 1, first token after 1 s, then gaps of 0.5 s: 4 tokens in 2.5 s
    outcome(1.0, [2.0, 2.5, 3.0, 3.5], counted=4),
    # due at 2, first token after 2 s; 2 chunks brought 5 tokens in 4 s
    outcome(2.0, [4.0, 6.0], counted=5),
]


def result(outcomes: list[RequestOutcome], wall_s: float = 10.0) -> LoadResult:
    return LoadResult(outcomes, wall_s, [0.001, 0.003], cpu_s=1.0)


def test_every_latency_by_hand() -> None:
    figures = serving_figures(result(TWO))
    assert figures["ttft_s"]["mean"] == 1.5
    assert figures["ttft_s"]["p50"] == 1.5
    assert figures["ttft_s"]["p90"] == pytest.approx(1.9)
    assert figures["ttft_s"]["p99"] == pytest.approx(1.99)
    # (E2EL - TTFT) / (n - 1): 1.5 / 3 and 2 / 4
    assert figures["tpot_s"]["mean"] == pytest.approx(0.5)
    # every single gap: 0.5, 0.5, 0.5, 2
    assert figures["itl_s"]["mean"] == pytest.approx(0.875)
    assert figures["itl_s"]["max"] == 2.0
    assert figures["e2el_s"]["mean"] == pytest.approx((2.5 + 4.0) / 2)
    # E2EL over output tokens: 2.5 / 4 and 4 / 5
    assert figures["normalised_latency_s"]["mean"] == pytest.approx((0.625 + 0.8) / 2)


def test_throughput_is_over_the_whole_load() -> None:
    figures = serving_figures(result(TWO))
    assert figures["req_s"] == {"median": 0.2, "min": 0.2, "max": 0.2}
    assert figures["out_tok_s"]["median"] == 0.9
    assert figures["total_tok_s"]["median"] == 2.9
    assert (figures["in"], figures["out"], figures["out_got"]) == (20, 8, 9)
    assert (figures["requests"], figures["completed"], figures["errors"]) == (2, 2, {})
    assert figures["offered_rate"] == 1.0


def test_the_client_s_own_lag_is_part_of_the_figures() -> None:
    client = serving_figures(result(TWO))["client"]
    assert client["send_lag_s"]["mean"] == 0.25
    assert client["loop_lag_s"]["max"] == 0.003
    # Without that lag, latencies would have looked so much shorter.
    assert client["cpu_share"] == 0.1


def test_errors_are_counted_by_kind_and_their_requests_left_out_of_latencies() -> None:
    failed = [outcome(0.0, [9.0], error=kind, error_message="x") for kind in ("timeout", "http_429", "timeout")]
    figures = serving_figures(result([*TWO, *failed]))
    assert figures["errors"] == {"timeout": 2, "http_429": 1}
    assert (figures["requests"], figures["completed"]) == (5, 2)
    assert figures["ttft_s"]["mean"] == 1.5
    assert figures["out_got"] == 9


def test_where_nothing_was_answered_nothing_is_made_up() -> None:
    figures = serving_figures(result([outcome(0.0, [], error="connect", error_message="x")]), {"ttft": 1.0})
    assert figures["ttft_s"] is None
    assert figures["normalised_latency_s"] is None
    assert figures["req_s"]["median"] == 0
    assert figures["goodput"] == {"limits_s": {"ttft": 1.0}, "req_s": 0.0, "share": 0.0}


def test_goodput_counts_requests_within_every_limit_of_all_that_were_sent() -> None:
    failed = outcome(0.0, [0.1], error="timeout", error_message="x")
    for limits, good in (
        ({"ttft": 1.0}, 1),
        ({"ttft": 2.0}, 2),
        ({"ttft": 2.0, "tpot": 0.4}, 0),
        ({"tpot": 0.5, "e2el": 3.0}, 1),
    ):
        goodput = serving_figures(result([*TWO, failed]), limits)["goodput"]
        assert goodput["req_s"] == pytest.approx(good / 10)
        assert goodput["share"] == pytest.approx(good / 3)


def test_an_answer_of_one_token_has_no_tpot_and_none_that_is_too_long() -> None:
    single = outcome(0.0, [1.0], counted=1)
    figures = serving_figures(result([single]))
    assert figures["tpot_s"] is None
    assert figures["itl_s"] is None
    assert is_good(single, {"tpot": 0.001})


def test_who_counted_the_tokens_is_said() -> None:
    unknown = outcome(0.0, [1.0, 2.0])
    assert unknown.num_output_tokens == 2
    assert serving_figures(result(TWO))["token_counts"] == "usage"
    assert serving_figures(result([unknown]))["token_counts"] == "chunks"
    assert serving_figures(result([*TWO, unknown]))["token_counts"] == "both"


def test_percentiles_are_linear_between_neighbours() -> None:
    found = distribution(range(101))
    assert found is not None
    assert (found["p50"], found["p90"], found["p99"], found["median"]) == (50, 90, 99, 50)
    assert distribution([1.0, 2.0])["p90"] == pytest.approx(1.9)  # type: ignore[index]
    assert distribution([]) is None


def test_limits_are_read_in_milliseconds() -> None:
    assert parse_goodput("ttft:500, tpot:100,e2el:2000.5") == {"ttft": 0.5, "tpot": 0.1, "e2el": 2.0005}


@pytest.mark.parametrize("text", ["", "ttft", "ttft:", "ttft:-1", "ttft:0", "ttft:nan", "itl:5", "ttft=5"])
def test_limits_that_say_nothing_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected limits in ms such as ttft:500,tpot:100"):
        parse_goodput(text)
