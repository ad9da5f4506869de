"""KV on disk with coded exponents: fewer bytes, the same tokens; coded where reading fewer bytes saves time."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.documents import NUM_FULL, DocumentLLM, ask, cached
from engine.harness import drive, greedy_params, outputs
from parameters import in_turns
from quire.tiers.store.offline import NamespaceStats, list_namespaces

NUM_TOKENS = 12


def store(directory: Path, name: str, dtype: str, coding: str) -> tuple[NamespaceStats, list[int]]:
    """Keep the document. Returns the directory's content and the tokens that were computed."""
    llm = DocumentLLM(name, directory, dtype=dtype, kv_dir_coding=coding)
    job = ask(0, greedy_params(NUM_TOKENS))
    drive(llm, [job])
    shown = llm.engine.snapshot()
    llm.close()
    (stats,) = list_namespaces(directory)
    assert shown.disk_bytes == pytest.approx(sum(path.stat().st_size for path in directory.glob("*/*.seg")), rel=0.1)
    return stats, outputs(job)[0]


@pytest.mark.parametrize(("name", "dtype"), in_turns(["llama", "qwen3", "qwen3_5"], ["bfloat16", "float32"]))
def test_coded_blocks_are_smaller_and_give_the_same_tokens(name: str, dtype: str, tmp_path: Path) -> None:
    coded, computed = store(tmp_path / "on", name, dtype, "on")
    plain, _ = store(tmp_path / "off", name, dtype, "off")
    assert 0 < coded.num_coded <= coded.num_blocks == plain.num_blocks
    assert plain.num_coded == 0
    assert coded.num_bytes < plain.num_bytes
    for directory, coding in (("on", "off"), ("off", "on"), ("on", "auto")):
        llm = DocumentLLM(name, tmp_path / directory, dtype=dtype, kv_dir_coding=coding)
        job = ask(0, greedy_params(NUM_TOKENS))
        drive(llm, [job])
        assert sum(cached(job).values()) == NUM_FULL
        assert outputs(job)[0] == computed
        llm.close()


@pytest.mark.parametrize(("bytes_per_s", "is_coded"), [(1e6, True), (1e12, False), (None, False)])
def test_loads_that_are_slower_than_decoding_have_blocks_coded_whatever_the_store_has_measured(
    bytes_per_s: float | None, is_coded: bool, tmp_path: Path
) -> None:
    llm = DocumentLLM("llama", tmp_path, dtype="bfloat16")
    llm.store._writer._pays_to_code = False  # type: ignore[attr-defined]
    for _ in range(10 if bytes_per_s else 0):
        llm.engine.cost_model.observe_transfer("load", 1 << 23, (1 << 23) / bytes_per_s, tier="disk")  # type: ignore[operator]
    drive(llm, [ask(0)])
    llm.close()
    (stats,) = list_namespaces(tmp_path)
    assert (stats.num_coded > 0) == is_coded


def test_loads_of_coded_blocks_teach_the_link_their_stored_bytes(tmp_path: Path) -> None:
    stats, _ = store(tmp_path, "llama", "bfloat16", "on")
    llm = DocumentLLM("llama", tmp_path, dtype="bfloat16")
    link = llm.engine.runner.disk.worker  # type: ignore[attr-defined]
    link.bandwidth = 20_000
    reports = []
    poll = link.poll
    link.poll = lambda **options: reports.append(poll(**options)) or reports[-1]
    drive(llm, [ask(0)])
    loads = [each for some in reports for each in some if each.kind == "load"]
    moved, saved = sum(each.num_bytes for each in loads), sum(each.saved_bytes for each in loads)
    assert moved + saved == NUM_FULL // 4 * stats.block_bytes
    assert saved > 0.1 * moved
    assert sum(each.coding_s for each in loads) > 0
    assert sum(each.copy_s for each in loads) == pytest.approx(moved / link.bandwidth, rel=0.1), "of stored bytes"
    assert llm.engine.cost_model.stored_share == pytest.approx(moved / (moved + saved), abs=0.1)
    llm.close()


def test_a_key_has_a_namespace_of_its_own_and_gives_the_same_tokens(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    key = tmp_path / "key"
    key.write_bytes(bytes(32))
    key.chmod(0o600)
    tokens, found = [], []
    for options in ({}, {"kv_dir_key": str(key)}, {"kv_dir_key": str(key)}):
        llm = DocumentLLM("llama", tmp_path / "kv", **options)
        job = ask(0, greedy_params(NUM_TOKENS))
        drive(llm, [job])
        found.append(sum(cached(job).values()))
        tokens.append(outputs(job)[0])
        llm.close()
    assert found == [0, 0, NUM_FULL]
    assert tokens[0] == tokens[1] == tokens[2]
    assert {bool(each.facts["encrypted_by"]) for each in list_namespaces(tmp_path / "kv")} == {False, True}
