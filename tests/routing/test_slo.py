"""The policy slo: the best model whose engine is predicted to meet the SLO."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from quire.forecast import Forecast
from quire.outputs import LoadProgress
from quire.routing import SLO, Choice, Router, RoutingConfig, RoutingError

MODELS = {"large": "chat", "small": "mini"}
#: A step takes 100 ms, plus 1 ms for each of up to 100 prompt tokens.
IDLE = Forecast(chunk=100, decode_s=0.1, token_s=1e-3)
QUICK = replace(IDLE, decode_s=0.01, token_s=1e-4)
#: 16 sequences run, and no further one starts before one of them ends: one in a second.
FULL = replace(IDLE, num_running=16, free_seats=0, answer_tokens=160.0, tokens_per_seq=500.0)


def router(**given: float) -> Router:
    return Router(RoutingConfig("slo", MODELS, slo=SLO(**given)))


def test_a_request_waits_for_the_step_under_way_and_for_the_prompts_before_its_own() -> None:
    assert IDLE.predict(50).ttft_s == pytest.approx(0.15)
    assert IDLE.predict(150).ttft_s == pytest.approx(0.35), "two steps"
    assert IDLE.predict(150, num_cached=100).ttft_s == pytest.approx(0.15)
    busy = replace(IDLE, num_running=2, queued_tokens=150.0)
    assert busy.predict(50).ttft_s == pytest.approx(0.2 + 0.05 + 0.1 + 0.05), "a whole step, then 50 before its own 50"
    assert busy.later(0.05, 0, 0).predict(50).ttft_s == pytest.approx(0.35)
    assert busy.later(0.05, 1, 100).predict(50).ttft_s == pytest.approx(0.55), "what was sent since comes before it"
    found = replace(busy, found_share=0.5).later(0.05, 1, 100)
    assert found.predict(50).ttft_s == pytest.approx(0.5), "of whose KV about half will be there"


def test_who_finds_no_seat_or_no_blocks_waits_for_others_to_end() -> None:
    assert FULL.seconds_to_an_end == pytest.approx(1.0)
    found = replace(FULL, num_waiting=3, free_seats=-3).predict(50)
    assert found.ttft_s == pytest.approx(4 + 0.15)
    assert found.spread_s == pytest.approx(2.0)
    assert replace(FULL, free_seats=9, free_tokens=-950).predict(50).ttft_s == pytest.approx(2 + 0.15)


def test_prompts_that_come_meanwhile_slow_tokens_down() -> None:
    half_full = replace(IDLE, num_running=7, free_seats=9, answer_tokens=80.0, prompt_tokens=200.0)
    assert half_full.predict(50).tpot_s == pytest.approx(0.1 + 8 / 80 * 200 * 1e-3)


def test_the_best_model_that_keeps_the_slo_is_taken_and_where_none_does_the_best() -> None:
    forecasts = {"chat": IDLE, "mini": QUICK}
    chosen = router(ttft_s=0.5, tpot_s=0.2).route("Why?", num_tokens=150, forecasts=forecasts)
    assert (chosen.model, chosen.role, chosen.policy) == ("chat", "large", "slo")
    assert "TTFT 0.35 s of 0.5 s, TPOT 0.1 s of 0.2 s" in chosen.why
    assert router(ttft_s=0.3).route("Why?", num_tokens=150, forecasts=forecasts).model == "mini"
    assert router(tpot_s=0.05).route("Why?", num_tokens=150, forecasts=forecasts).model == "mini"
    lost = router(ttft_s=0.01).route("Why?", num_tokens=150, forecasts=forecasts)
    assert lost.model == "chat"
    assert "none" in lost.why
    assert lost.numbers["small: TTFT s"] == pytest.approx(0.035)
    own = router(ttft_s=0.01).route("Why?", num_tokens=150, slo=SLO(ttft_s=0.1), forecasts=forecasts)
    assert own.model == "mini", "a request's own limits come before the configured ones"


def test_what_hangs_on_others_is_predicted_with_care() -> None:
    forecasts = {"chat": FULL, "mini": QUICK}  # 1.15 s, with a spread of one
    assert router(ttft_s=3.0).route("?", num_tokens=50, forecasts=forecasts).model == "mini"
    assert router(ttft_s=3.2).route("?", num_tokens=50, forecasts=forecasts).model == "chat"


def test_an_idle_model_that_is_believed_to_be_slow_is_tried_now_and_then() -> None:
    slo = router(tpot_s=0.05)
    ages = [30, 70, 70, 110, 130, 130, 250]
    asked = [slo.route("?", forecasts={"chat": IDLE.later(age, 0, 0), "mini": QUICK}).role for age in ages]
    assert [age for age, role in zip(ages, asked, strict=True) if role == "large"] == [70, 130, 250]


def test_a_model_that_takes_no_requests_is_passed_over() -> None:
    slo = router(ttft_s=5.0)
    assert slo.needs_forecasts
    assert slo.route("?", forecasts={"chat": None, "mini": QUICK}).model == "mini"
    assert slo.route("?").model == "chat"


def test_limits_and_ranks_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "routing.yaml"
    path.write_text("policy: slo\nmodels: {a: x, b: y}\nslo: {ttft_s: 0.5, quality: {a: 1, b: 2}}\n")
    config = RoutingConfig.from_file(path)
    assert (config.slo, Router(config).route("?").model) == (SLO(0.5), "y")
    for wrong, message in (("{ttft_s: 0}", "above 0"), ("{quality: {a: 1}}", "quality is of a"), ("{e2e: 1}", "'e2e'")):
        path.write_text(f"policy: slo\nmodels: {{a: x, b: y}}\nslo: {wrong}\n")
        with pytest.raises(RoutingError, match=message):
            Router(RoutingConfig.from_file(path))


def test_a_key_may_have_an_slo_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "routing.yaml"
    file.write_text("policy: slo\nmodels: {large: chat, small: mini}\nslo: {ttft_s: 9, keys: {key-1: {ttft_s: 0.1}}}\n")
    router = Router(RoutingConfig.from_file(file))
    forecasts = {"chat": IDLE, "mini": QUICK}

    def chosen(key_id: str, slo: SLO | None = None) -> str:
        return router.route("why?", num_tokens=50, slo=slo, key_id=key_id, forecasts=forecasts).model

    assert [chosen("key-1"), chosen("key-2"), chosen("key-1", SLO(ttft_s=9))] == ["mini", "chat", "chat"]
    file.write_text("policy: slo\nmodels: {large: chat}\nslo: {keys: {key-1: fast}}\n")
    with pytest.raises(RoutingError, match="slo: keys: key-1 should be a mapping"):
        RoutingConfig.from_file(file)


def staged(quality: object, waits: dict[int, float], ttft_s: float | None, **forecasts: Forecast) -> Choice:
    """Route with a model `large` that loads in stages; by default only it takes requests."""
    config = RoutingConfig("slo", MODELS, slo=SLO(ttft_s), quality={"large": quality, "small": 60})  # type: ignore[dict-item]
    known = {"chat": IDLE, "mini": None} | forecasts
    return Router(config).route("Why?", num_tokens=50, forecasts=known, stage_waits={"chat": waits})


def test_a_loading_model_answers_now_or_at_the_best_stage_that_comes_in_time() -> None:
    waits, quality = {1: 0.0, 2: 4.0, 3: 20.0}, [50, 76, 79]
    chosen = {limit: staged(quality, waits, limit) for limit in (1.0, 4.1, 4.2, 20.2)}
    assert [choice.min_stage for choice in chosen.values()] == [1, 1, 2, 3]
    assert chosen[4.2].why.endswith("TTFT 4.15 s of 4.2 s, TPOT 0.1 s, waiting for stage 2")
    assert chosen[4.2].numbers["large, stage 3: TTFT s"] == pytest.approx(20.15)
    assert staged(quality, {2: 0.0, 3: 3.0}, 3.2).min_stage == 3
    assert staged(quality, {3: 0.0}, 1.0).min_stage == 1
    assert staged(79, waits, 60.0).min_stage == 1, "without ranks of stages it never waits"
    assert staged(quality, waits, None).min_stage == 1, "nor without a limit of the TTFT"
    assert staged(quality, waits, 0.1).min_stage == 1, "and what is late anyway answers now"


def test_another_model_answers_before_a_poor_stage_does() -> None:
    waits, quality = {1: 0.0, 2: 4.0}, [50, 76]
    found = [staged(quality, waits, limit, mini=QUICK) for limit in (1.0, 5.0)]
    assert [(choice.role, choice.min_stage) for choice in found] == [("small", 1), ("large", 2)]


def test_ranks_of_stages_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "routing.yaml"
    path.write_text("policy: slo\nmodels: {a: x, b: y}\nslo: {quality: {a: [1, 3], b: 2}}\n")
    config = RoutingConfig.from_file(path)
    assert config.quality == {"a": [1, 3], "b": 2}
    assert Router(config).route("?").model == "x", "by the last stage"
    path.write_text("policy: slo\nmodels: {a: x, b: y}\nslo: {quality: {a: [1, good], b: 2}}\n")
    with pytest.raises(RoutingError, match="quality: a: stage: 2 should be a number, got 'good'"):
        RoutingConfig.from_file(path)


def test_waits_for_stages_follow_from_the_bytes_that_are_missing() -> None:
    load = LoadProgress(1, 3, 60, 100, 20.0, stage_bytes=(50, 70, 100))
    assert load.stage_waits == {1: 0.0, 2: pytest.approx(5.0), 3: pytest.approx(20.0)}
    assert replace(load, seconds_left=None).stage_waits == {1: 0.0}
    assert replace(load, stage=3, bytes_loaded=100, seconds_left=0.0).stage_waits == {3: 0.0}
    assert LoadProgress(1, 1, 9, 9).stage_waits == {1: 0.0}
