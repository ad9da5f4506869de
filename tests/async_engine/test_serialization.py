"""Messages between processes survive pickling."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from typing import Any

import pytest

from quire.async_engine.messages import (
    Abort,
    Finished,
    FrameReader,
    Heartbeat,
    ModelState,
    Preempted,
    Progress,
    RequestFailed,
    Resumed,
    Started,
    StateReport,
    StepReport,
    dump,
    frame,
    load,
)
from quire.forecast import Forecast
from quire.outputs import CompletionOutput, Delta, Logprob, RecoveryStats, RequestOutput, Stats

OUTPUT = RequestOutput("a", None, [1, 2], [CompletionOutput(0, "x", [5], finish_reason="length")], finished=True)
EVENTS = [
    (1, Started([1, 2], {"device": 1})),
    (1, Preempted()),
    (1, Resumed()),
    (1, Progress([Delta(0, "é", [3]), Delta(1, "", [4, 5], [{4: Logprob(-0.5, 1, "x")}], "stop", 7)])),
    (1, Finished(OUTPUT)),
]
RECOVERY = RecoveryStats(preemptions=Counter(swap=2), seconds=defaultdict(float, swap=0.5), errors=[("swap", 0.1)])
STATS = Stats(
    step_id=1, num_running=2, num_waiting=3, num_blocks=10, swap_bytes=100, recovery=RECOVERY, forecast=Forecast(1.5)
)


@pytest.mark.parametrize(
    "message",
    [
        Heartbeat(3),
        Abort(1, "a"),
        StateReport(ModelState.FAILED, "why"),
        StepReport(),
        StepReport(EVENTS, [OUTPUT], STATS, [1, 2]),
    ],
)
def test_a_message_arrives_as_it_was(message: Any) -> None:
    assert load(dump(message)) == message


def test_errors_and_log_records_arrive_too() -> None:
    [(key, error)] = load(dump(StepReport([(2, RequestFailed("it broke"))]))).events
    assert (key, type(error), str(error)) == (2, RequestFailed, "it broke")
    record = load(dump(logging.makeLogRecord({"msg": "hello", "name": "quire"})))
    assert (record.name, record.getMessage()) == ("quire", "hello")


@pytest.mark.parametrize("size", [1, 7, 8, 9, 100, 10_000])
def test_messages_are_found_however_their_stream_is_cut(size: int) -> None:
    messages: list[Any] = [Heartbeat(3), StepReport(EVENTS, [OUTPUT], STATS), Abort(1, "a" * 3000), Heartbeat(4)]
    stream = b"".join(map(frame, messages))
    reader = FrameReader()
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert [message for piece in pieces for message in reader.feed(piece)] == messages
