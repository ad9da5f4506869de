"""The open loop sends every request on time and measures true times.

The clock is virtual, so times are exact; bytes on real sockets are tested with the command.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest

from quire.bench.serving.load_client import LoadClient, LoadResult, PreparedRequest, RequestOutcome
from quire.client.server_address import ServerAddress
from virtual_time import VirtualLoop, run_in_virtual_time

ENDPOINT = ServerAddress.of("http://server")
TOKEN = {"choices": [{"index": 0, "text": "a", "finish_reason": None}]}
END = {"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}
Steps = list[tuple[float, Any]]  #: seconds to wait, then what to send: an event's data, bytes, or an error


def usage(count: int) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": count}}


def answer(first: float, *gaps: float) -> Steps:
    tokens: Steps = [(wait, TOKEN) for wait in (first, *gaps)]
    return [*tokens, (0.0, END), (0.0, usage(len(tokens))), (0.0, "[DONE]")]


class Stream(httpx.AsyncByteStream):
    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for wait, said in self._steps:
            await asyncio.sleep(wait)
            if isinstance(said, Exception):
                raise said
            if isinstance(said, dict):
                said = json.dumps(said)
            yield said if isinstance(said, bytes) else f"data: {said}\n\n".encode()


Server = Callable[[VirtualLoop, dict[str, Any]], Awaitable[httpx.Response]]


def play(server: Server, requests: list[PreparedRequest], **options: Any) -> LoadResult:
    async def main(loop: VirtualLoop) -> LoadResult:
        async def handle(request: httpx.Request) -> httpx.Response:
            return await server(loop, json.loads(request.content))

        client = LoadClient(ENDPOINT, ENDPOINT.completions_url, transport=httpx.MockTransport(handle), **options)
        return await client.run(requests)

    return run_in_virtual_time(main)


def saying(*answers: Steps, status: int = 200) -> Server:
    """Answer the n-th request with the n-th answer."""

    async def serve(loop: VirtualLoop, body: dict[str, Any]) -> httpx.Response:
        return httpx.Response(status, stream=Stream(answers[body["n"]]))

    return serve


def due(*arrivals: float) -> list[PreparedRequest]:
    return [PreparedRequest(at, json.dumps({"n": n}).encode(), 7, 3) for n, at in enumerate(arrivals)]


def test_every_token_has_its_time() -> None:
    result = play(saying(answer(0.5, 0.1, 0.2), answer(1.0)), due(1.0, 2.0))
    first, second = result.outcomes
    assert first.token_s == pytest.approx([1.5, 1.6, 1.8])
    assert (first.num_prompt_tokens, first.num_counted_tokens, first.finish_reason) == (7, 3, "length")
    assert second.token_s == pytest.approx([3.0])
    assert first.error is second.error is None
    assert result.wall_s == pytest.approx(3.0)


def test_requests_are_sent_when_they_are_due_whatever_became_of_those_before() -> None:
    arrivals = [0.0, 0.25, 0.5, 0.5, 3.0]
    result = play(saying(*[answer(100.0)] * 5), due(*arrivals))
    assert [outcome.sent_s for outcome in result.outcomes] == pytest.approx(arrivals)
    assert [outcome.token_s[0] for outcome in result.outcomes] == pytest.approx([at + 100 for at in arrivals])


def test_the_order_in_which_requests_are_given_does_not_matter() -> None:
    result = play(saying(answer(1.0), answer(1.0)), due(2.0, 1.0))
    assert [outcome.sent_s for outcome in result.outcomes] == pytest.approx([1.0, 2.0])


def test_a_client_that_is_held_up_shows_its_lag_and_latencies_count_from_the_due_time() -> None:
    async def holds_the_loop(loop: VirtualLoop, body: dict[str, Any]) -> httpx.Response:
        if body["n"] == 0:
            loop.pass_time(2.0)  # blocks the client's event loop
        return httpx.Response(200, stream=Stream(answer(0.5)))

    result = play(holds_the_loop, due(1.0, 1.5))
    late = result.outcomes[1]
    assert late.sent_s == pytest.approx(3.0)  # 1.5 s after it was due
    assert late.token_s[0] - late.arrival_s == pytest.approx(2.0)  # not 0.5
    assert max(result.loop_lag_s) == pytest.approx(2.0, abs=0.03)


def test_comments_and_pieces_that_cut_events_anywhere_change_nothing() -> None:
    data = f"data: {json.dumps(TOKEN)}\n\n".encode()
    steps = [(0.5, b": preempted\n\n" + data[:9]), (0.25, data[9:] + data), (0.25, END), (0.0, "[DONE]")]
    [outcome] = play(saying(steps), due(0.0)).outcomes
    assert outcome.token_s == pytest.approx([0.75, 0.75])


def test_chunks_count_where_there_is_no_usage() -> None:
    [outcome] = play(saying([(0.1, TOKEN), (0.1, TOKEN), (0.0, END)]), due(0.0)).outcomes
    assert outcome.num_counted_tokens is None
    assert outcome.num_output_tokens == 2


@pytest.mark.parametrize(
    ("steps", "kind", "words"),
    [
        ([(0.1, TOKEN), (9.0, TOKEN)], "timeout", "within 5 s"),
        ([(0.1, TOKEN), (0.1, httpx.ReadError("reset"))], "disconnected", "reset"),
        ([(0.1, httpx.RemoteProtocolError("cut off"))], "disconnected", "cut off"),
        ([(0.1, TOKEN), (0.0, {"error": {"message": "the step failed"}})], "stream_error", "the step failed"),
        ([(0.1, TOKEN)], "truncated", "ended before the answer did"),
        ([(0.1, END)], "no_tokens", "no token"),
        ([(0.1, "<html>")], "not_sse", "not JSON"),
        ([(0.1, RuntimeError("a bug"))], "RuntimeError", "a bug"),
    ],
)
def test_every_way_to_fail_has_its_kind_and_the_others_go_on(steps: Steps, kind: str, words: str) -> None:
    failed, fine = play(saying(steps, answer(1.0)), due(0.0, 0.05), timeout_s=5.0).outcomes
    assert failed.error == kind
    assert words in str(failed.error_message)
    assert fine.error is None
    assert fine.token_s == pytest.approx([1.05])


def test_a_refusal_is_counted_by_its_status_with_the_server_s_words() -> None:
    async def refuse(loop: VirtualLoop, body: dict[str, Any]) -> httpx.Response:
        return httpx.Response(429, json={"error": {"message": "too many of you"}})

    [outcome] = play(refuse, due(0.0)).outcomes
    assert (outcome.error, outcome.is_complete) == ("http_429", False)
    assert "too many of you" in str(outcome.error_message)


def test_nobody_there_is_an_error_of_each_request() -> None:
    async def refuse(loop: VirtualLoop, body: dict[str, Any]) -> httpx.Response:
        raise httpx.ConnectError("refused")

    assert [outcome.error for outcome in play(refuse, due(0.0, 1.0)).outcomes] == ["connect", "connect"]


def test_the_deadline_counts_from_when_a_request_was_due() -> None:
    result = play(saying(answer(1e6)), due(3.0), timeout_s=5.0)
    assert result.outcomes[0].error == "timeout"
    assert result.wall_s == pytest.approx(8.0)


def test_a_watcher_sees_how_far_it_is() -> None:
    seen: list[tuple[int, int, int]] = []
    play(
        saying(answer(1.0), [(1.0, "<html>")]),
        due(0.0, 1.5),
        watch=lambda client: seen.append((client.num_sent, client.num_ended, client.num_failed)),
    )
    assert seen[0] == (1, 0, 0)
    assert (1, 1, 0) in seen
    assert (2, 1, 0) in seen


def test_outcomes_know_how_many_tokens_they_have() -> None:
    assert RequestOutcome(0.0, 1, 1, token_s=[1.0, 2.0], num_counted_tokens=5).num_output_tokens == 5
