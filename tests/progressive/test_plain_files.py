"""Plain files in a pack with planes are read where that takes less time, and are the same model."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from typer.testing import CliRunner

from command_line import app
from progressive.models import make_model
from quire import LLM, SamplingParams
from quire.loading.planes import choice
from quire.loading.planes.choice import PLAIN
from quire.loading.reading.checkpoint_reading import read_checkpoint
from quire.progressive.packs.pack import pack
from quire.progressive.packs.verify import verify
from quire.progressive.stage_plan import StagePlan


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    pack(str(make_model(tmp_path / "model")), StagePlan(3, ((0, 1, 2),), 1), tmp_path / "pack", use_tqdm=False)
    result = CliRunner().invoke(
        app, ["stages", "unpack", str(tmp_path / "pack"), "--out", str(tmp_path / "pack" / PLAIN)]
    )
    assert result.exit_code == 0, result.output
    return tmp_path / "pack"


def test_the_faster_files_are_read(
    packed: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert choice._decoding_rate(packed) > 0
    assert choice._read_rate([packed / PLAIN / "model.safetensors"], 5.0) == 5.0
    monkeypatch.setattr(choice, "_decoding_rate", lambda directory: 1e3)
    reading = read_checkpoint(packed)
    assert (reading.directory, reading.manifest) == (packed / PLAIN, None)
    assert read_checkpoint(packed, last_stage=1).directory == packed
    assert read_checkpoint(packed, bandwidth=100.0).directory == packed, "the link is slower than the decoder"
    monkeypatch.setattr(choice, "_decoding_rate", lambda directory: 1e15)
    monkeypatch.setattr(choice, "_read_rate", lambda files, bandwidth: 1e6)
    assert read_checkpoint(packed).manifest is not None, "planes are fewer bytes"


def test_both_are_the_same_model(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, params = [], SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, logprobs=1)
    for rate in (1e3, 1e15):
        monkeypatch.setattr(choice, "_decoding_rate", lambda directory, rate=rate: rate)
        llm = LLM(str(packed), num_kv_blocks=64, use_tqdm=False, device="cpu", skip_tokenizer_init=True)
        (output,) = llm.generate([{"prompt_token_ids": [1, 5, 9, 2]}], params, use_tqdm=False)
        found.append((output.outputs[0].token_ids, output.outputs[0].logprobs and output.outputs[0].logprobs[:]))
    assert found[0] == found[1]


def test_other_files_are_ignored(
    packed: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "_decoding_rate", lambda directory: 1e3)
    assert verify(packed) == []
    weights = packed / PLAIN / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with caplog.at_level(logging.WARNING, "quire"):
        assert read_checkpoint(packed).directory == packed
    assert "has other files than the pack" in caplog.text
