"""The promotion benchmark: streams through all stages under each policy, and its report."""

from __future__ import annotations

import random

from benchmarks.promotion import HeldStages, LayersOut, PromotionSettings, _make_engine, make_report, play
from engine.harness import make_llm
from quire.assembly import load


def test_streams_go_through_the_stages_and_none_waits_for_nothing() -> None:
    settings = PromotionSettings(num_requests=4, input_len=12, output_len=9, layers_out=1, stages=2)
    config = make_llm("llama").config
    loaded = load(config)
    source = LayersOut(loaded.model, settings.layers_out, settings.stages)
    assert source.in_place == [(0, 2), (0, 1, 2)]
    played = {}
    for policy in ("pin", "recompute"):
        held = HeldStages(source)
        engine = _make_engine(config, loaded, held, source.manifest(loaded.model), policy)
        due_s = sorted([0.0, *(random.Random(1).random() / 1e3 for _ in range(3))])
        played[policy] = [play(engine, held, settings, due_s)]
        assert engine.stage == 2
    (pinned,), (recomputed,) = played.values()
    assert (pinned.num_failed, pinned.num_pinned, pinned.num_recomputed) == (0, 4, 0)
    assert (recomputed.num_failed, recomputed.num_pinned, recomputed.num_recomputed) == (0, 0, 4)
    assert pinned.recompute_s == 0 < recomputed.recompute_s
    assert max(pinned.most_steps, recomputed.most_steps) <= 2
    report = make_report(config, settings, 1.0, 2, played)
    assert [figure["policy"] for figure in report.figures] == ["pin", "recompute"]
