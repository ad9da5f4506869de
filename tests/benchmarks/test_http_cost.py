"""The HTTP cost benchmark on the smallest model: every case yields numbers, of any size."""

from __future__ import annotations

import json
import math

import pytest

from benchmarks.http_cost import HttpSettings, measure_http_cost
from benchmarks.stream_client import Stream
from process_pool import fork_spawned
from quire.config import EngineConfig

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(*token_ids: int) -> bytes:
    return b"data: " + json.dumps({"choices": [{"token_ids": token_ids}]}).encode() + b"\n\n"


class FakeConnection:
    pass


def read(*pieces: bytes) -> Stream:
    """Read a stream whose pieces arrive at seconds 0, 1, 2..."""
    stream = Stream(FakeConnection())  # type: ignore[arg-type]
    for second, piece in enumerate(pieces):
        stream.take(piece, float(second))
    return stream


def test_a_token_came_when_the_last_byte_of_its_chunk_did() -> None:
    whole = HEAD + chunk(event()) + chunk(event(5)) + chunk(event(6, 7)) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
    assert read(whole).token_s() == [0, 0, 0]
    cut = whole.index(b"[6") + 1  # within an event
    stream = read(whole[:10], whole[10:cut], whole[cut:])
    assert stream.is_ended
    assert stream.token_s() == [1, 2, 2]
    assert stream.gaps(0, 2) == [(1, 1), (1, 2)]


def test_a_stream_that_was_refused_or_cut_off_is_no_measurement() -> None:
    with pytest.raises(RuntimeError, match="429"):
        read(b"HTTP/1.1 429 Too Many Requests\r\n\r\n").events()
    with pytest.raises(RuntimeError, match="before its answer"):
        read(HEAD + chunk(event(5)) + b"0\r\n\r\n").events()


@pytest.mark.slow
def test_every_case_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    fork_spawned(monkeypatch, "benchmarks.http_cost")
    config = EngineConfig("random:tiny", num_threads=1)
    settings = HttpSettings(2, 4, 150, 3, body_size=500_000, runs=1, settle_s=0)
    figures = measure_http_cost(config, settings)
    assert len(figures) == 6
    for figure in figures:
        numbers = [value["median"] for value in figure.values() if isinstance(value, dict)]
        assert all(math.isfinite(number) for number in numbers)
        assert figure["step_s"]["median"] > 0
    assert "added_s" in figures[1]
    assert "tpot_ratio" in figures[2]
    assert all(figure["itl_p99_ratio"]["median"] > 0 and figure["num_bodies"]["median"] >= 1 for figure in figures[3:])
    assert all(figure["target"].endswith(("met", "missed")) for figure in figures[1:])
