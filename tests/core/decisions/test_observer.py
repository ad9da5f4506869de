"""Reports of steps and transfers to the cost model, failed ones included."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence

import pytest

from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.cost_observer import CostObserver
from quire.core.decisions.costs import StepShape
from quire.core.decisions.recovery_log import RecoveryLog
from quire.outputs import TransferReport

STEP = StepShape(4, 4, 0.0, 2000)
BLOCK_BYTES = 1000


def observer_of(num_transfers: int = 8) -> CostObserver:
    observer = CostObserver(CostModel(), RecoveryLog())
    for _ in range(num_transfers):
        observer.observe(STEP, 0.01, [report("save"), report("load")])
    return observer


def report(kind: str, *, has_failed: bool = False, num_blocks: int = 4) -> TransferReport:
    op_ids = list(range(num_blocks))
    return TransferReport(kind, op_ids, num_blocks * BLOCK_BYTES, 0.01, op_ids[-1:] if has_failed else [])


@pytest.mark.parametrize("kind", ["save", "load"])
def test_a_link_that_goes_on_failing_is_not_to_be_used_until_something_has_arrived_whole(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    observer = observer_of()
    model, other = observer.model, {"save": "load", "load": "save"}[kind]
    with caplog.at_level(logging.WARNING, logger="quire"):
        for _ in range(2):
            observer.observe(STEP, 0.01, [report(kind, has_failed=True)])
        assert model.is_link_usable
        for _ in range(50):
            observer.observe(STEP, 0.01, [report(kind, has_failed=True), report(other)])
            assert not model.is_link_usable
            assert model.is_failing(kind)
            assert not model.is_failing(other)
        assert len(caplog.messages) == 1
        assert f"swap: {kind}s keep failing" in caplog.text
        for _ in range(3):
            observer.observe(STEP, 0.01, [report(kind)])
            assert model.is_link_usable
        assert len(caplog.messages) == 2
        assert f"swap: a {kind} has succeeded again" in caplog.text


def test_a_failure_now_and_then_closes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    observer = observer_of()
    for _ in range(20):
        observer.observe(STEP, 0.01, [report("save", has_failed=True), report("save", has_failed=True), report("save")])
        assert observer.model.is_link_usable
    assert not caplog.messages


def test_what_failed_says_nothing_about_the_links_speed() -> None:
    observer = observer_of()
    before = observer.model.to_dict()
    slow = report("save", has_failed=True)
    slow.copy_s = 100.0
    observer.observe(StepShape(0, 0, 0.0, 0), 0.0, [slow])
    assert observer.model.to_dict() == before


def test_what_was_given_up_says_nothing_at_all() -> None:
    observer = observer_of()
    before = observer.model.to_dict()
    for _ in range(10):
        observer.observe(STEP, 0.01, [TransferReport("load", [1, 2], 0, 0.0, is_cancelled=True)])
    assert observer.model.is_link_usable
    assert observer.model.to_dict()["links"] == before["links"]


def run_of(seconds: Sequence[float]) -> list[TransferReport]:
    """A run of one-block pieces on the link, each of this duration."""
    last = len(seconds) - 1
    return [
        TransferReport("load", [at], BLOCK_BYTES, each, continues=at > 0, has_more=at < last)
        for at, each in enumerate(seconds)
    ]


@pytest.mark.parametrize("num_blocks", [1, 4, 40])
def test_the_model_learns_what_whole_transfers_cost_from_reports_of_their_pieces(num_blocks: int) -> None:
    observer = observer_of(0)
    for _ in range(30):
        for piece in run_of([0.003] + [0.001] * (num_blocks - 1)):
            observer.observe(STEP, 0.01, [piece])
    truth = 0.002 + num_blocks * 0.001
    assert observer.model.load(num_blocks * BLOCK_BYTES) == pytest.approx(truth, rel=0.1)


def test_a_thread_that_is_woken_late_and_catches_up_is_no_change_of_the_link() -> None:
    observer, draw = observer_of(0), random.Random(1)
    model = observer.model
    for _ in range(300):
        seconds, now = [], 0.0
        for at in range(30):
            end = max(now, (at + 1) * 0.001) + draw.choice([1e-5] * 7 + [0.004])
            seconds.append(end - now)
            now = end
        observer.observe(STEP, 0.01, run_of(seconds))
        whole_s = now
    assert model.num_refreshes == 0
    assert model.load(30 * BLOCK_BYTES) == pytest.approx(whole_s, rel=0.2)


def test_a_link_that_becomes_slow_during_a_run_is_known_before_its_end() -> None:
    observer = observer_of(0)
    for _ in range(10):
        observer.observe(STEP, 0.01, run_of([0.001] * 40))
    pieces = run_of([0.001] * 12 + [0.012] * 28)
    observer.observe(STEP, 0.01, pieces[:21])
    assert observer.model.load(20 * BLOCK_BYTES) == pytest.approx(0.24, rel=0.35)


def test_what_is_left_of_a_run_whose_end_was_given_up_counts_where_it_was_all() -> None:
    observer = observer_of(0)
    pieces = run_of([0.001] * 40)
    observer.observe(STEP, 0.01, [pieces[0], TransferReport("load", [1], 0, 0.0, is_cancelled=True)])
    assert observer.model.links["host"].loads.num_observed == 1
    observer.observe(STEP, 0.01, pieces[:1])
    assert observer.model.links["host"].loads.num_observed == 1, "it is not over"
    observer.observe(STEP, 0.01, pieces[:1])
    assert observer.model.links["host"].loads.num_observed == 2, "another has begun"


def test_a_link_that_nobody_has_measured_is_not_to_be_used() -> None:
    assert not observer_of(num_transfers=3).model.is_link_usable
    assert observer_of(num_transfers=4).model.is_link_usable
