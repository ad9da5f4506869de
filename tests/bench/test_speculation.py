"""`quire bench speculation`: scripted drafts are right as often as asked, and no answer changes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from quire.bench.bench_settings import SpeculationSettings
from quire.bench.speculation import SpeculationBench, make_figures, run
from quire.config import EngineConfig

CONFIG = EngineConfig("random:tiny", dtype="float32", device="cpu", num_kv_blocks=64, use_tqdm=False)


def test_scripted_drafts_are_right_at_their_rate(tmp_path: Path) -> None:
    settings = SpeculationSettings(num_prompts=1, output_len=30, runs=2, verify=(3,), acceptance=(1.0,))
    bench = SpeculationBench(CONFIG, settings)
    ways = bench.ways()
    ways[2].always = True
    bench.measure(ways, lambda done, name: None)
    off, wrong, right, own = make_figures(ways)
    bench.engine.close()
    assert [each["drafts"] for each in (off, wrong, right, own)] == ["off", "verify 3", "scripted 1", "own"]
    assert off["accepted_share"] is None
    assert wrong["accepted_share"] == 0.0
    assert right["accepted_share"] == 1.0
    assert ways[1].verified >= 2 * 26 * 3, "wrong drafts are verified to the end"
    assert off["tokens_per_step"] == wrong["tokens_per_step"] == 1.0
    assert right["tokens_per_step"] > 4
    assert all(each["ratio"]["median"] > 0 for each in (off, wrong, right, own))


def test_prompts_of_a_file_with_answers_in_json(tmp_path: Path) -> None:
    file, out = tmp_path / "prompts.jsonl", tmp_path / "out.json"
    schema = {"type": "object", "properties": {"a_long_name": {"type": "integer"}}, "required": ["a_long_name"]}
    file.write_text("\n".join([json.dumps({"prompt": "one two"}), json.dumps({"prompt": "x", "schema": schema})]))
    run(CONFIG, SpeculationSettings(prompts=file, output_len=20, runs=1), out)
    assert [figure["drafts"] for figure in json.loads(out.read_text())["figures"]] == ["off", "own"]
    file.write_text('{"prompt": "one"}\n[]\n')
    with pytest.raises(ValueError, match=r"prompts\.jsonl, line 2: .*expected"):
        SpeculationBench(CONFIG, SpeculationSettings(prompts=file))
    file.write_text("")
    for wrong, message in ((file, "has no prompts"), (tmp_path / "other", "cannot read .*other: No such file")):
        with pytest.raises(ValueError, match=message):
            SpeculationBench(CONFIG, SpeculationSettings(prompts=wrong))


def test_a_draft_model_may_be_scripted_too() -> None:
    settings = SpeculationSettings(num_prompts=1, output_len=30, runs=1, verify=(), acceptance=(1.0, 0.0))
    bench = SpeculationBench(replace(CONFIG, speculative_model="random:tiny"), settings)
    ways = bench.ways()
    bench.engine.scheduler.speculator.costs = None
    bench.measure(ways, lambda done, name: None)
    found = {each["drafts"]: each["accepted_share"] for each in make_figures(ways)}
    bench.engine.close()
    assert found["model, 1 right"] == 1.0
    assert found["model, 0 right"] == 0.0
    assert found["own"] is not None
