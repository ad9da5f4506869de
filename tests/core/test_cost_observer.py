"""What steps and transfers tell the cost model: those that failed too."""

from __future__ import annotations

import logging

import pytest

from quire.core.cost_model import CostModel
from quire.core.cost_observer import CostObserver
from quire.core.costs import StepShape
from quire.core.recovery_log import RecoveryLog
from quire.outputs import TransferReport

STEP = StepShape(4, 4, 0.0, 2000)
BLOCK_BYTES = 1000


def observer_of(num_transfers: int = 8) -> CostObserver:
    observer = CostObserver(CostModel(), RecoveryLog())
    for _ in range(num_transfers):
        observer.note(STEP, 0.01, [report("save"), report("load")])
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
            observer.note(STEP, 0.01, [report(kind, has_failed=True)])
        assert model.is_link_usable
        for _ in range(50):
            observer.note(STEP, 0.01, [report(kind, has_failed=True), report(other)])
            assert not model.is_link_usable
            assert model.is_failing(kind)
            assert not model.is_failing(other)
        assert len(caplog.messages) == 1
        assert f"swap: {kind}s go on failing" in caplog.text
        for _ in range(3):
            observer.note(STEP, 0.01, [report(kind)])
            assert model.is_link_usable
        assert len(caplog.messages) == 2
        assert f"swap: a {kind} has arrived whole" in caplog.text


def test_a_failure_now_and_then_closes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    observer = observer_of()
    for _ in range(20):
        observer.note(STEP, 0.01, [report("save", has_failed=True), report("save", has_failed=True), report("save")])
        assert observer.model.is_link_usable
    assert not caplog.messages


def test_what_failed_says_nothing_about_the_links_speed() -> None:
    observer = observer_of()
    before = observer.model.to_dict()
    slow = report("save", has_failed=True)
    slow.copy_s = 100.0
    observer.note(StepShape(0, 0, 0.0, 0), 0.0, [slow])
    assert observer.model.to_dict() == before


def test_a_link_that_nobody_has_measured_is_not_to_be_used() -> None:
    assert not observer_of(num_transfers=3).model.is_link_usable
    assert observer_of(num_transfers=4).model.is_link_usable
