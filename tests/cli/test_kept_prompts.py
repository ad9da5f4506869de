"""The KV of prompts in the user's cache: found by a restarted server, within its limit; no fault ends a start."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from quire.assembly import start_engine
from quire.cli.serve.kept_prompts import keep_prompts
from quire.config import EngineConfig

GB = 10**9
TIMEOUT_S = 100


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "quire" / "kv"


def give_free_space(monkeypatch: pytest.MonkeyPatch, num_bytes: int) -> None:
    usage = shutil.disk_usage("/")._replace(free=num_bytes)
    monkeypatch.setattr("quire.cli.serve.kept_prompts.shutil.disk_usage", lambda path: usage)


def test_a_server_without_a_directory_keeps_prompts_in_the_user_s_cache(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "quire")
    given = {
        "own": EngineConfig("random:tiny", kv_dir="elsewhere"),
        "limited": EngineConfig("random:tiny", kv_dir_size=GB),
        "none": EngineConfig("random:tiny", enable_prefix_caching=False),
        "plain": EngineConfig("random:tiny"),
        "split": EngineConfig("random:tiny", tensor_parallel_size=2),
    }
    for free, size in ((1000 * GB, 10 * GB), (20 * GB, 2 * GB)):
        give_free_space(monkeypatch, free)
        found = keep_prompts(given)
        assert (found["own"], found["none"]) == (given["own"], given["none"])
        for name, limit in (("plain", size), ("split", size), ("limited", GB)):
            config = found[name]
            assert (config.kv_dir, config.kv_dir_keep_prompts, config.kv_dir_size) == (str(cache), True, limit)
    assert cache.stat().st_mode & 0o077 == 0
    (said,) = caplog.messages  # at the first start only
    assert str(cache) in said
    assert "--no-keep-kv" in said


@pytest.mark.parametrize("fault", ["full", "no directory"])
def test_without_room_a_server_warns_and_keeps_nothing(
    cache: Path, fault: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"plain": EngineConfig("random:tiny")}
    if fault == "full":
        give_free_space(monkeypatch, GB // 10)
    else:
        cache.parent.write_text("a file")
    assert keep_prompts(given) == given
    (said,) = caplog.messages
    assert "not kept on disk" in said


def test_a_damaged_directory_ends_a_start_only_if_it_was_asked_for(
    cache: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for directory in (cache, tmp_path / "own"):
        directory.mkdir(parents=True)
        directory.chmod(0o777)
    engine = start_engine(EngineConfig("random:tiny", num_kv_blocks=16, kv_dir=str(cache), use_tqdm=False))
    assert engine.runner.disk is None  # type: ignore[attr-defined]
    assert "others may write" in caplog.text
    with pytest.raises(ValueError, match="others may write"):
        start_engine(EngineConfig("random:tiny", num_kv_blocks=16, kv_dir=str(tmp_path / "own"), use_tqdm=False))


def test_a_restarted_server_finds_its_prompts(cache: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "QUIRE_KEEP_KV"}
    command = [sys.executable, "-m", "quire", "serve", "--model", "small=random:tiny", "--num-kv-blocks", "64"]
    command += ["--device", "cpu", "--port", "0"]
    body = {"model": "small", "prompt": "Once upon a time " * 10, "max_tokens": 4, "temperature": 0}
    answers, kept = [], []
    for _ in range(2):
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        assert server.stdout is not None
        try:
            found = re.search(r"at (http://\S+)", server.stdout.readline())
            assert found
            answers.append(httpx.post(f"{found[1]}/v1/completions", json=body, timeout=TIMEOUT_S).json())
            server.send_signal(signal.SIGTERM)
            _, log = server.communicate(timeout=TIMEOUT_S)
        finally:
            server.kill()
            server.communicate()
        kept += re.findall(r"kv_dir: (\d+) blocks", log)
    assert kept == ["0", "10"], "whole blocks of a prompt of 170 tokens"
    assert answers[0]["choices"] == answers[1]["choices"]
    assert answers[0]["usage"]["prompt_tokens"] == 170
