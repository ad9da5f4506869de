"""What is sent between processes arrives as it was."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from quire.engine_messages import (
    Abort,
    Finished,
    Heartbeat,
    ModelState,
    Preempted,
    Progress,
    RequestFailed,
    Resumed,
    Started,
    StateReport,
    StepReport,
)
from quire.engine_wire import dump, load
from quire.outputs import CompletionOutput, Delta, Logprob, RequestOutput

OUTPUT = RequestOutput("a", None, [1, 2], [CompletionOutput(0, "x", [5], finish_reason="length")], finished=True)
EVENTS = [
    (1, Started([1, 2], 1)),
    (1, Preempted()),
    (1, Resumed()),
    (1, Progress([Delta(0, "é", [3]), Delta(1, "", [4, 5], [{4: Logprob(-0.5, 1, "x")}], "stop", 7)])),
    (1, Finished(OUTPUT)),
]


@pytest.mark.parametrize(
    "message",
    [Heartbeat(3), Abort(1, "a"), StateReport(ModelState.FAILED, "why"), StepReport(), StepReport(EVENTS, [OUTPUT])],
)
def test_a_message_arrives_as_it_was(message: Any) -> None:
    assert load(dump(message)) == message


def test_errors_and_log_records_arrive_too() -> None:
    [(key, error)] = load(dump(StepReport([(2, RequestFailed("it broke"))]))).events
    assert (key, type(error), str(error)) == (2, RequestFailed, "it broke")
    record = load(dump(logging.makeLogRecord({"msg": "hello", "name": "quire"})))
    assert (record.name, record.getMessage()) == ("quire", "hello")
