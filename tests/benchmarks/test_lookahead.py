"""The lookahead benchmark: the same requests with and without it, and its report."""

from __future__ import annotations

from pathlib import Path

from benchmarks.document_kv import DocumentBench
from benchmarks.lookahead import LookaheadBench, LookaheadSettings, experiment_config, make_report
from engine.documents import DocumentLLM, SpareCosts
from quire.bench.workload import poisson_arrivals
from quire.config import EngineConfig


def test_requests_queue_for_a_seat_and_get_the_same_tokens_with_lookahead_and_without(tmp_path: Path) -> None:
    settings = LookaheadSettings(num_requests=4, document_tokens=16, question_tokens=2, output_len=4, seats=1)
    config = experiment_config(EngineConfig("llama"), settings)
    assert (config.max_num_seqs, config.num_kv_blocks, config.dtype) == (1, 6, "float32")
    llm = DocumentLLM("llama", tmp_path, max_num_seqs=1)
    bench = LookaheadBench(DocumentBench(llm.engine, settings.of_documents, tmp_path), settings)
    bench.prepare()
    pair = {is_ahead: bench.play([0.0, 0.0, 0.0, 0.001], is_ahead=is_ahead) for is_ahead in (False, True)}
    assert [played.cached for played in pair.values()] == [{"disk": 4 * 16}] * 2
    assert pair[True].tokens == pair[False].tokens
    assert len(set(map(tuple, pair[True].tokens))) > 1
    due_s = poisson_arrivals(settings.num_requests, 2.0, settings.seed)
    assert (due_s[0], len(due_s), due_s) == (0.0, 4, sorted(due_s))
    report = make_report(config, settings, bench, 2.0, [pair])
    assert [figure["lookahead"] for figure in report.figures] == ["off", "on"]
    assert report.more["ratios"]["ttft_s"]["median"] > 0
    llm.close()


def test_documents_that_are_nowhere_are_computed_with_lookahead_and_give_the_same_tokens(tmp_path: Path) -> None:
    settings = LookaheadSettings(
        num_requests=4, document_tokens=16, question_tokens=2, output_len=12, seats=1, computed=True
    )
    llm = DocumentLLM("llama", tmp_path, max_num_seqs=1)
    bench = LookaheadBench(DocumentBench(llm.engine, settings.of_documents, tmp_path), settings)
    bench.prepare()
    llm.engine.scheduler.decider.costs = SpareCosts(1.0, 0.0)
    without, ahead = (bench.play([0.0] * 4, is_ahead=is_ahead) for is_ahead in (False, True))
    assert (without.num_computed, ahead.num_computed) == (0, 3 * 16)
    assert ahead.tokens == without.tokens
    llm.close()
