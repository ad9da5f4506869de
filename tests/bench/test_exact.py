"""`quire bench exact`: equal bits in every way and format, and what it says where they are not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.harness import checkpoint
from kernel_levels import EMULATED, use_emulated_amx
from parameters import quick
from quire.bench import exact
from quire.bench.bench_settings import ExactSettings
from quire.bench.exact import DIFFERENT, EQUAL, NOT_TRIED, OTHER_SUMS, Answer, ExactBench, Outcome, compare
from quire.config import EngineConfig
from quire.kernels.loaded import load_kernels, runnable_levels

MODELS = ("llama", "qwen2", "qwen3", "gpt2", "opt", "qwen3_5", "lfm2")
FORMATS = ({"dtype": "float32"}, {"dtype": "bfloat16"}, {"dtype": "bfloat16", "quantization": "int8"},
           {"dtype": "float32", "quantization": "int4"})  # fmt: skip
ALMOST_ALL = "batch,chunks,mixed,device,host,disk,swap,recompute,resume,drafts,threads"


def config(model: str, **options: Any) -> EngineConfig:
    return EngineConfig(str(checkpoint(model)), device="cpu", num_threads=2, skip_tokenizer_init=True, **options)


@pytest.mark.parametrize(
    ("model", "options"),
    quick(
        [("qwen2", FORMATS[1]), ("gpt2", FORMATS[3]), ("qwen3_5", FORMATS[0])],
        [*zip(MODELS, FORMATS, strict=False), ("qwen3_5", FORMATS[0]), ("lfm2", FORMATS[1])],
    ),
)
@pytest.mark.usefixtures("_needs_kernels")
def test_all_bits_are_equal_in_every_way(model: str, options: dict[str, str], tmp_path: Path) -> None:
    settings = ExactSettings(ways=ALMOST_ALL, num_prompts=4, prompt_len="45-100", output_len=8)  # type: ignore[arg-type]
    assert exact.run(config(model, **options), settings, tmp_path / "exact.json")
    figures = json.loads((tmp_path / "exact.json").read_text())["figures"]
    assert [figure["verdict"] for figure in figures] == [EQUAL] * 11


@pytest.fixture
def _needs_kernels() -> None:
    if load_kernels().functions is None:
        pytest.skip("torch's arithmetic depends on the number of rows")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("level", [*runnable_levels(), *([EMULATED] if "avx512bf16" in runnable_levels() else [])])
def test_all_bits_are_equal_at_every_level(level: str) -> None:
    """Run with the level's kernels, in a process of its own, since the level is chosen once."""
    program = f"import sys; sys.path.insert(0, 'tests'); from bench.test_exact import run_matrix; run_matrix({level!r})"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "QUIRE_KERNELS": "amx" if level == EMULATED else level},
        text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" equal ") == len(MODELS) * len(FORMATS) * len(ALMOST_ALL.split(","))


def run_matrix(level: str) -> None:
    """Compare all models and formats; raise AssertionError where bits differ."""
    if level == EMULATED:
        use_emulated_amx()
    settings = ExactSettings(ways=ALMOST_ALL, num_prompts=4, prompt_len="45-300", output_len=8)  # type: ignore[arg-type]
    for model in MODELS:
        for options in FORMATS:
            assert exact.run(config(model, **options), settings, None), (model, options)


@pytest.mark.usefixtures("_needs_kernels")
def test_a_value_that_depends_on_the_batch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ExactSettings(ways="batch,chunks", num_prompts=3, prompt_len="45-60", output_len=4)  # type: ignore[arg-type]
    bench = ExactBench(config("llama", dtype="float32"), settings)
    expected = bench.alone()
    usual = bench.loaded.model.compute_logits

    def depends_on_rows(hidden: torch.Tensor, *rest: Any) -> torch.Tensor:
        return usual(hidden, *rest) * (1.0 + 1e-6 * (hidden.shape[0] > 1))

    monkeypatch.setattr(bench.loaded.model, "compute_logits", depends_on_rows)
    figure = compare("batch", expected, bench.ways["batch"]())
    assert figure["verdict"] == DIFFERENT
    assert figure["differ"] == 3
    assert compare("chunks", expected, bench.ways["chunks"]())["verdict"] == EQUAL


def test_draft_models_draft_where_drafts_are_compared() -> None:
    options = {"speculative_model": "int8", "speculative_tokens": 3}
    bench = ExactBench(config("llama", **options), ExactSettings(ways="drafts", num_prompts=2, output_len=9))  # type: ignore[arg-type]
    assert compare("drafts", bench.alone(), bench.ways["drafts"]())["verdict"] == EQUAL


def test_a_way_that_did_not_happen_is_no_success() -> None:
    answer, other = Answer([1, 2], bytes(16)), Answer([1, 3], bytes(16))
    assert compare("swap", [answer], Outcome([answer], "0 preemptions", 0))["verdict"] == NOT_TRIED
    assert compare("ranks", [answer], Outcome([other], "2 processes"))["verdict"] == OTHER_SUMS
    figure = compare("disk", [answer, answer], Outcome([answer, other], ""))
    assert (figure["verdict"], figure["differ"], figure["other_tokens"], figure["first"]) == (DIFFERENT, 1, 1, 1)


@pytest.mark.parametrize(
    ("given", "message"), [({"ways": "bach"}, "ways=bach is none of batch"), ({"ways": "stages"}, "needs pack")]
)
def test_wrong_options_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ExactSettings(**given)


def test_prompts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"make 650 tokens, and .* takes 512: lower one"):
        ExactBench(config("llama"), ExactSettings(prompt_len="45-600", output_len=50))  # type: ignore[arg-type]
