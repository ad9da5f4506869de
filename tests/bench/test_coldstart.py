"""The cold start benchmark against a fake server: requests, results and the order of runs."""

from __future__ import annotations

import json
import os
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from benchmarks.coldstart.picture import draw
from benchmarks.coldstart.quality import read_quality, when_each_serves
from benchmarks.coldstart.running import StreamCost, run_alone, run_while_loading
from benchmarks.coldstart.study import Comparison, ComparisonSettings, add_streams, add_targets
from quire.bench.bench_settings import ColdStartSettings
from quire.bench.coldstart import cold_server as cold
from quire.bench.coldstart.cold_start_report import PHASES, make_report
from quire.bench.coldstart.coldstart import ColdStart, ColdStartBench, WeightSizes
from quire.bench.plots import save_plot
from quire.config import EngineConfig
from quire.progressive.packs.pack import pack
from quire.progressive.stage_plan import StagePlan
from quire.system.page_cache import drop_pages
from weights import write_model

#: Replaces `python -m quire serve`: refuses once, then answers, and reaches its second stage after two requests.
SERVER = """
import json, os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

options = sys.argv[1:]
model = options[options.index("--model") + 1].partition("=")[2]
num_stages = 2 if os.path.exists(os.path.join(model, "quire-stages.json")) else 1
state = {"asked": 0, "looks": 0}

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        state["looks"] += 1
        card = {"id": "measured", "state": "loading" if state["looks"] == 1 else "ready", "max_model_len": 48}
        if num_stages > 1:
            is_whole = state["asked"] > 1 and state["looks"] > 8
            card |= {"num_stages": 2, "stage": 0 if state["looks"] == 1 else 1 + is_whole}
        self.reply(200, json.dumps({"data": [card]}).encode())

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        state["asked"] += 1
        if state["asked"] == 1 and state["looks"] < 2:
            return self.reply(503, b"{}")
        phases = "imports 0.5 s, config 0.25 s, weights 1.0 s, first step 0.125 s"
        print("INFO cold start:", phases, file=sys.stderr, flush=True)
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for token in range(body["max_tokens"]):
            self.send(b"data: " + json.dumps({"choices": [{"token_ids": [token]}]}).encode() + b"\\n\\n")
            time.sleep(0.005)
        self.send(b"data: [DONE]\\n\\n")
        self.send(b"")

    def send(self, data):
        self.wfile.write(b"%x\\r\\n%s\\r\\n" % (len(data), data))

    def reply(self, status, data):
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass

assert os.environ["QUIRE_BLOCK_SIZE"] == "8"
ThreadingHTTPServer(("127.0.0.1", int(options[options.index("--port") + 1])), Handler).serve_forever()
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EngineConfig:
    """A model of two layers, its pack, and the fake server."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cold, "POLL_S", 0.01)
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    monkeypatch.setattr(cold, "SERVE", [sys.executable, str(script)])
    directory = write_model(tmp_path / "model", num_layers=2)
    pack(str(directory), StagePlan(2, ((0,), (1,))), tmp_path / "pack", use_tqdm=False)
    return EngineConfig(str(directory), block_size=8, use_tqdm=False)


def test_ways_take_turns_and_each_starts_a_server_with_its_options(model: EngineConfig, tmp_path: Path) -> None:
    pack(model.model, StagePlan(2, ((1,), (0,))), tmp_path / "other", use_tqdm=False)
    settings = ComparisonSettings(
        pack=f"{tmp_path / 'pack'},{tmp_path / 'other'}",  # type: ignore[arg-type]
        modes="at-once,overlap,staged,transformers",  # type: ignore[arg-type]
        storage_bandwidth="125MB",  # type: ignore[arg-type]
        runs=2,
    )
    bench = Comparison(model, settings)
    first_turn = ["at-once", "overlap", "pack", "other"]
    assert [mode for mode, _ in bench._plan()] == [*first_turn, *first_turn[1:], first_turn[0]]
    assert 0 < bench.sizes.share_left_out("pack") < 1
    assert set(bench.sizes.first_bytes) == {"pack", "other"}
    assert bench.server_options("other", 125e6)[0].model == str(tmp_path / "other")
    assert bench.server_options("overlap", 125e6)[1] == ["--storage-bandwidth", "125000000", "--load-overlap"]
    start = bench.start("pack", 125e6)
    assert start.phases == {"imports": 0.5, "config": 0.25, "weights": 1.0, "first step": 0.125}
    assert start.listening_s is not None
    assert 0 < start.listening_s < start.ttft_s
    assert list(start.stages) == [1, 2]
    assert start.full_s == start.stages[2]


def test_the_parts_of_a_start_add_up_to_its_first_token() -> None:
    config = EngineConfig("quire-mini", num_kv_blocks=64, use_tqdm=False)
    with closing(cold.ColdServer(config, ["--device", "cpu"])) as server:
        ttft_s = server.first_token([30])
        phases = server.wait_phases(30)
        assert server.listening_s is not None
    assert tuple(phases) == PHASES
    assert all(seconds >= 0 for seconds in phases.values())
    assert sum(phases.values()) < ttft_s + 0.1  # ages of processes are known to a hundredth of a second


def test_streams_that_run_meanwhile_count_until_the_next_stage(model: EngineConfig, tmp_path: Path) -> None:
    settings = ComparisonSettings(pack=(tmp_path / "pack",), running=2)
    config, options = Comparison(model, settings).server_options("pack", float("inf"))
    tpot_s, full_s = run_while_loading(config, options, 2, 8)
    assert tpot_s is not None
    assert tpot_s >= 0.005
    assert full_s > 0
    assert (run_alone(config, 2, 8) or 0) >= 0.005


def test_a_server_that_does_not_start_is_told_with_its_last_words(
    model: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cold, "SERVE", [sys.executable, "-c", "raise SystemExit('no such thing')"])
    with closing(cold.ColdServer(model, [])) as server, pytest.raises(RuntimeError, match="no such thing"):
        server.first_token([1])


def _starts() -> list[ColdStart]:
    phases = {"imports": 2.0, "weights": 3.0}
    return [
        ColdStart("at-once", 1e8, 10.0, 9.5, phases),
        ColdStart("pack", 1e8, 8.0, 9.9, phases),
        ColdStart("pack", 1e8, 7.0, 10.0, phases),
        ColdStart("at-once", 1e8, 10.0, 10.0, phases),
    ]


def test_targets_are_judged_by_ratios_of_the_same_turn(tmp_path: Path) -> None:
    sizes = WeightSizes("m", int(4e8), {"pack": int(3e8)}, "ext4")
    settings = ComparisonSettings(storage_bandwidth="100MB", runs=2)  # type: ignore[arg-type]
    report = make_report(sizes, settings, _starts())
    add_targets(report, sizes, _starts())
    add_streams(report, settings, [StreamCost(4, 1e8, 0.12, 0.1, 11.0)])
    figure = next(each for each in report.figures if each["mode"] == "pack")
    assert figure["gain"] == pytest.approx({"median": 0.25, "min": 0.2, "max": 0.3})
    assert figure["gain_target"] == pytest.approx(0.95 * 0.25 * 4.0 / 10.0)
    notes = "\n".join(report.notes)
    assert "25.0% sooner, target 9.5%: kept" in notes
    assert "whole after 1.021 of at once, target 1.05: kept" in notes
    assert "TPOT 1.200 of without loading, target 1.1: missed" in notes
    assert json.loads(json.dumps(report.as_json()))["starts"][0]["ttft_s"] == 10.0
    save_plot(tmp_path / "bars.svg", lambda figure: draw(figure, report.title, _starts()))
    assert "first step" in (tmp_path / "bars.svg").read_text()


def test_pages_of_files_are_dropped(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(os.urandom(1 << 20))
    assert drop_pages([file]) in (0.0, 1.0), "a tmpfs keeps them all"


def test_what_makes_no_sense_is_refused(model: EngineConfig, tmp_path: Path) -> None:
    def refused(words: str, **settings: Any) -> None:
        with pytest.raises(ValueError, match=words):
            Comparison(model, ComparisonSettings(**settings))

    refused("modes=fast is none of", modes="fast")
    refused("give --pack", running=4)
    other = write_model(tmp_path / "other", seed=1, num_layers=2)
    pack(str(other), StagePlan(2, ((0,), (1,))), tmp_path / "others", use_tqdm=False)
    refused("is a pack of sha256:", pack=(tmp_path / "others",))
    refused("another mode or pack is named pack", pack=(tmp_path / "pack", tmp_path / "pack"))
    with pytest.raises(ValueError, match="quire save"):
        ColdStartBench(EngineConfig("random:tiny"), ColdStartSettings())


def test_the_quality_of_answers_over_time_is_that_of_the_stage_that_serves(tmp_path: Path) -> None:
    rows = [
        {"stage": 1, "kind": "bare", "exact_match": 60.0},
        {"stage": 1, "kind": "healed", "exact_match": 70.0},
        {"stage": 2, "kind": "full", "exact_match": 80.0},
        {"stage": 2, "kind": "control", "exact_match": 99.0},
    ]
    (tmp_path / "quality.json").write_text(json.dumps({"results": rows}))
    assert read_quality(tmp_path / "quality.json") == {1: 70.0, 2: 80.0}
    staged = ColdStart("staged", 1e6, 3.0, 5.0, stages={1: 2.5, 2: 4.9})
    assert when_each_serves([staged], 2) == {1: 3.0, 2: 5.0}
    assert when_each_serves([ColdStart("at-once", 1e6, 6.0, 5.5)], 2) == {2: 6.0}
    (tmp_path / "quality.json").write_text("[]")
    with pytest.raises(ValueError, match=r"no figures of `benchmarks\.stage_quality"):
        read_quality(tmp_path / "quality.json")
