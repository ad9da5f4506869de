"""Engines with a KV cache in 8 bits: options, memory, the disk tier, and the answers' distance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.harness import Job, drive, greedy_params, make_llm, outputs, random_ids
from kernel_levels import needs_kernels
from quire import LLM
from quire.runner.model_runner import ModelRunner

PROMPT = random_ids(90, 5)


def answer(llm: LLM, **options: object) -> tuple[list[int], int]:
    job = Job(PROMPT, greedy_params(16, **options))
    drive(llm, [job])
    return outputs(job)[0], job.output.num_cached_tokens


def runner_of(llm: LLM) -> ModelRunner:
    assert isinstance(llm.engine.runner, ModelRunner)
    return llm.engine.runner


@needs_kernels
def test_a_block_takes_a_byte_a_number_and_a_scale_a_row() -> None:
    layouts = [runner_of(make_llm("llama", kv_cache_dtype=dtype)).cache for dtype in ("auto", "int8")]
    plain, quantized = (cache.blocks[0].nbytes for cache in layouts)
    layer = layouts[0].layout.layers[0]
    num_rows = 2 * layer.num_kv_heads * layouts[0].layout.block_size * len(layouts[0].layout.layers)
    assert quantized == plain // 4 + 4 * num_rows


@needs_kernels
@pytest.mark.parametrize("name", ["llama", "mistral-window", "deepseek3", "qwen3_5"])
def test_log_probabilities_are_close_to_those_of_a_plain_cache(name: str) -> None:
    """As close as bfloat16 comes, or closer; and not equal, or the cache would not be in 8 bits."""
    found = []
    for options in ({}, {"kv_cache_dtype": "int8"}, {"dtype": "bfloat16"}):
        job = Job(PROMPT, greedy_params(1, prompt_logprobs=1))
        drive(make_llm(name, **options), [job])
        given = job.output.prompt_logprobs
        assert given is not None
        found.append(np.array([each[token].logprob for each, token in zip(given[1:], PROMPT[1:], strict=True)]))
    plain, quantized, short = found
    assert 0 < np.abs(quantized - plain).mean() < 2 * np.abs(short - plain).mean()


@needs_kernels
def test_blocks_on_disk_serve_the_next_engine_and_no_plain_one(tmp_path: Path) -> None:
    options = {"kv_dir": str(tmp_path), "kv_dir_keep_prompts": True, "block_size": 8}
    first = make_llm("llama", kv_cache_dtype="int8", **options)
    expected, _ = answer(first)
    first.engine.close()
    again = make_llm("llama", kv_cache_dtype="int8", **options)
    tokens, num_cached = answer(again)
    again.engine.close()
    assert tokens == expected
    assert num_cached >= 80
    plain = make_llm("llama", **options)
    assert answer(plain)[1] == 0
    plain.engine.close()


def test_where_it_is_not_available_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"kv_cache_dtype=int8 needs .*dtype bfloat16 or float32, not float16"):
        make_llm("llama", dtype="float16", kv_cache_dtype="int8")
    monkeypatch.setenv("QUIRE_KERNELS", "none")
    with pytest.raises(ValueError, match=r"kv_cache_dtype=int8 needs .*QUIRE_KERNELS"):
        make_llm("llama", kv_cache_dtype="int8")
    with pytest.raises(ValueError, match="auto, int8"):
        make_llm("llama", kv_cache_dtype="fp8")
