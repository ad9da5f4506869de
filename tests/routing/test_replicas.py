"""The replica router minimizes the predicted TTFT; the autoscaler grows at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quire.forecast import Forecast
from quire.routing import RoutingError
from quire.routing.replicas import POLICIES, Autoscaler, Autoscaling, ReplicaRouter, Residency, RoutedRequest

KEYS = [bytes([number]) for number in range(8)]
IDLE = Forecast(chunk=100, decode_s=0.1, token_s=1e-3)  # 100 ms per step and 1 ms per token


def router(policy: str, *names: str, **given: int) -> ReplicaRouter:
    made = ReplicaRouter(policy)
    for name in names:
        made.add(name, block_size=10, **given)
    return made


def send(made: ReplicaRouter, request_id: str, keys: list[bytes] | None = None, now: float = 0.0) -> str | None:
    routed = made.route(RoutedRequest(request_id, 100, keys or []), now)
    return None if routed is None else routed.replica


def test_round_robin_and_least_loaded() -> None:
    assert [send(router("round-robin", "a", "b"), "1")] == ["a"]
    turns = router("round-robin", "a", "b")
    assert [send(turns, str(number)) for number in range(3)] == ["a", "b", "a"]
    made = router("least-loaded", "a", "b")
    assert [send(made, str(number)) for number in range(3)] == ["a", "b", "a"]
    made.end("a", "0")
    made.end("a", "2")
    assert send(made, "3") == "a"
    made.report("b", 1.0, Forecast(num_running=5), taken=["1"])  # mostly other routers' requests
    assert [send(made, str(number)) for number in range(4, 8)] == ["a"] * 4


def test_a_prefix_is_gone_to_until_its_replica_is_much_busier() -> None:
    made = router("prefix", "a", "b")
    assert send(made, "0", KEYS[:4]) == "a"
    routed = made.route(RoutedRequest("1", 100, [*KEYS[:3], b"other"]), 0.0)
    assert routed is not None
    assert (routed.replica, routed.num_resident) == ("a", 30)
    assert send(made, "2", [b"unknown"]) == "b", "the least loaded one"
    went = [send(made, f"again {number}", KEYS[:4]) for number in range(20)]
    assert went[0] == "a"
    assert "b" in went
    for name in ("a", "b"):
        made.remove(name)


def test_slo_weighs_a_prefix_against_a_queue() -> None:
    made = router("slo", "a", "b")
    for name in ("a", "b"):
        made.report(name, 0.0, IDLE)
    made.replicas["b"].residency.store(KEYS)
    routed = made.route(RoutedRequest("0", 90, KEYS), 0.0)
    assert routed is not None
    assert (routed.replica, routed.num_resident) == ("b", 80)
    assert routed.ttft_s == pytest.approx(0.1 + 0.01)
    made.report("b", 1.0, replace(IDLE, num_running=1, queued_tokens=1000.0), taken=["0"])
    assert send(made, "1", KEYS, now=1.0) == "a", "computing is sooner than waiting"
    assert made.soonest_ttft_s(10, 1.0) > 0.2, "what was sent there counts before it reports"


@pytest.mark.parametrize("policy", POLICIES)
def test_who_serves_nothing_or_drains_gets_no_requests(policy: str) -> None:
    made = router(policy, "a", "b", stage=0)
    assert send(made, "0") is None
    made.report("b", 0.0, stage=1)
    assert send(made, "1", KEYS) == "b"
    assert made.route(RoutedRequest("2", 100, KEYS, min_stage=2), 0.0) is None
    assert made.replicas["b"].residency.count_prefix(KEYS) == (8 if policy in ("prefix", "slo") else 0)
    made.report("b", 1.0, stage=2)
    assert made.replicas["b"].residency.count_prefix(KEYS) == 0, "another stage computes other KV"
    made.drain("b")
    assert send(made, "3") is None
    assert made.remove("b") == ["1"]
    made.end("b", "1")
    made.report("b", 2.0, IDLE)


def test_a_residency_drops_the_least_recent_prompts_and_their_ends_first() -> None:
    known = Residency(6)
    known.store(KEYS[:4])
    known.store([b"x", b"y", b"z"])
    assert (len(known), known.count_prefix(KEYS)) == (6, 3)
    known.store(KEYS[:1])
    known.store([b"u", b"v", b"w"])
    assert known.count_prefix(KEYS) == 1
    known.clear()
    assert known.count_prefix(KEYS) == 0


def test_replicas_follow_the_load() -> None:
    scaler = Autoscaler(Autoscaling(0, 4, target_requests=10, ttft_s=1.0, idle_s=5.0))
    assert scaler.decide(0.0, 0, 0, 0) == 0
    assert scaler.decide(1.0, 1, 0, 0) == 1
    assert scaler.decide(2.0, 5, 1, 0, ttft_s=9.0) == 1, "one is coming already"
    assert scaler.decide(3.0, 5, 0, 1, ttft_s=9.0) == 2, "the first token would be late"
    assert scaler.decide(4.0, 99, 0, 2) == 4
    assert scaler.decide(8.0, 15, 0, 4) == 4, "four were wanted a while ago"
    assert scaler.decide(9.5, 15, 0, 4) == 2
    assert scaler.decide(20.0, 0, 0, 2) == 0


def test_a_mistake_is_named() -> None:
    with pytest.raises(RoutingError, match="'fastest' is none of round-robin"):
        ReplicaRouter("fastest")
    with pytest.raises(RoutingError, match="expected 0 <= MIN <= MAX"):
        Autoscaling(3, 2)
    with pytest.raises(RoutingError, match="above 0"):
        Autoscaling(target_requests=0)
