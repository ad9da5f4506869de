"""Hub models are downloaded with the user's options and one progress display, here from a hub on this machine."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from huggingface_hub import constants

from checkpoints import make_checkpoint
from gguf_files import write_gguf
from quire.config import EngineConfig, HubOptions
from quire.gguf_header import gguf_parts
from quire.loading import ModelLoadError, resolve_model
from quire.loading.hub import NotDownloadedError
from quire.loading.on_disk import stored_models
from quire.loading.progress import load_listener
from quire.outputs import LoadProgress

_DEFAULT = constants.ENDPOINT
_SHAS = {"main": "a" * 40, "v2": "b" * 40}


@dataclass
class Hub:
    files: Path
    tokens: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    ranges: list[str] = field(default_factory=list)
    cut: int | None = None  #: bytes after which a file's transfer breaks off
    held: threading.Event | None = None  #: what the next cut transfer waits for instead
    refusal: str = ""  #: an error code in place of any answer


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    made = Hub(tmp_path / "repository")
    made.files.mkdir()
    make_checkpoint("qwen3", made.files)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.asked.append(self.path)
            made.tokens.add(self.headers.get("authorization", ""))
            names = sorted(file.relative_to(made.files).as_posix() for file in made.files.rglob("*") if file.is_file())
            if made.refusal:
                self.send_response(403 if made.refusal == "GatedRepo" else 404)
                self.send_header("X-Error-Code", made.refusal)
                self.send_header("Content-Length", "0")
                self.end_headers()
            elif found := re.search(r"/revision/(\w+)", self.path):
                if found[1] not in _SHAS:
                    self.send_response(404)
                    self.send_header("X-Error-Code", "RevisionNotFound")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.answer(json.dumps({"id": "org/tiny", "sha": _SHAS[found[1]], "siblings": []}).encode())
            elif "/tree/" in self.path:
                files = [(made.files / name).stat().st_size for name in names]
                each = [{"type": "file", "path": n, "size": s, "oid": n} for n, s in zip(names, files, strict=True)]
                self.answer(json.dumps(each).encode())
            else:
                self.answer((made.files / re.split(r"/resolve/\w+/", self.path.split("?")[0])[1]).read_bytes())

        do_HEAD = do_GET

        def answer(self, body: bytes) -> None:
            etag, start = f'"{hashlib.sha256(body).hexdigest()}"', 0
            if given := self.headers.get("range"):
                made.ranges.append(given)
                start = int(given.removeprefix("bytes=").rstrip("-"))
            self.send_response(206 if given else 200)
            if given:
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            body = body[start:]
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Type", "application/json")
            self.send_header("ETag", etag)
            self.send_header("X-Repo-Commit", next((sha for sha in _SHAS.values() if sha in self.path), ""))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body if made.cut is None else body[: made.cut])
                if made.cut is not None and len(body) > made.cut:
                    made.cut = None
                    if made.held is not None:
                        self.wfile.flush()
                        made.held.wait(60)
                    self.connection.close()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(_DEFAULT, endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    yield made
    server.shutdown()
    server.server_close()


def test_revision_directory_and_token_reach_the_hub(hub: Hub, tmp_path: Path) -> None:
    config = EngineConfig(model="org/tiny", revision="v2", download_dir=str(tmp_path / "to"), hf_token="secret")
    source = resolve_model(config.model, hub=config.hub)
    assert source.path is not None
    assert source.path.is_relative_to(tmp_path / "to")
    assert source.path.name == _SHAS["v2"]
    assert (source.path / "model.safetensors").read_bytes() == (hub.files / "model.safetensors").read_bytes()
    assert "Bearer secret" in hub.tokens
    assert "secret" not in repr(config)
    assert config.as_json()["hf_token"] == "given"


def test_a_download_reports_its_bytes_and_writes_no_bars_of_its_own(
    hub: Hub, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[LoadProgress] = []
    listening = load_listener.set(seen.append)
    try:
        resolve_model("org/tiny", hub=HubOptions(download_dir=str(tmp_path / "to")))
    finally:
        load_listener.reset(listening)
    assert {progress.phase for progress in seen} == {"download"}
    assert max(progress.bytes_loaded for progress in seen) >= (hub.files / "model.safetensors").stat().st_size
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_a_missing_revision_is_named(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="no revision 'v9' on the hub"):
        resolve_model("org/tiny", hub=HubOptions(revision="v9", download_dir=str(tmp_path / "to")))


def test_the_gguf_file_of_a_quantization_is_all_that_is_downloaded(hub: Hub, tmp_path: Path) -> None:
    for encoding, name in (("Q8_0", "tiny-q8_0.gguf"), ("F32", "F16/tiny-F16.gguf")):
        (hub.files / name).parent.mkdir(exist_ok=True)
        write_gguf(hub.files, hub.files / name, encoding, split=20 if "F16" in name else 0)
    (hub.files / "mmproj-tiny-Q8_0.gguf").write_bytes(b"GGUF")
    options = HubOptions(download_dir=str(tmp_path / "to"))
    with pytest.raises(NotDownloadedError, match="quire pull"):
        resolve_model("org/tiny:Q8_0", hub=options, with_weights=False)
    source = resolve_model("org/tiny:q8_0", hub=options)
    assert source.path is not None
    assert source.path.name == "tiny-q8_0.gguf"
    assert source.config.architecture == "Qwen3ForCausalLM"
    assert not list((tmp_path / "to").rglob("*.safetensors"))
    assert [each.name for each in (tmp_path / "to").rglob("*.gguf")] == ["tiny-q8_0.gguf"]
    assert resolve_model("org/tiny:Q8_0", hub=options, with_weights=False).path == source.path
    parts = resolve_model("org/tiny:F16", hub=options).path
    assert parts is not None
    assert len(gguf_parts(parts)) > 1
    with pytest.raises(ModelLoadError, match="no GGUF model Q2_K; it has F16, Q8_0"):
        resolve_model("org/tiny:Q2_K", hub=options)
    found = {each.name: each for each in stored_models(options.download_dir, [])}
    assert found["org/tiny:Q8_0"].format == "GGUF Q8_0"
    assert found["org/tiny:Q8_0"].num_bytes == (hub.files / "tiny-q8_0.gguf").stat().st_size
    assert found["org/tiny:F16"].num_bytes == sum(each.stat().st_size for each in gguf_parts(parts))
    for name in ("config.json", "model.safetensors"):  # a repository of GGUF files only
        (hub.files / name).unlink()
    again = resolve_model("org/tiny", hub=HubOptions(download_dir=str(tmp_path / "other"))).path
    assert again is not None
    assert again.name == "tiny-q8_0.gguf"


def test_a_broken_transfer_continues_where_it_ended(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 4096)
    options, size = HubOptions(download_dir=str(tmp_path / "to")), (hub.files / "model.safetensors").stat().st_size
    hub.cut = size // 2
    source = resolve_model("org/tiny", hub=options)
    (given,) = hub.ranges
    assert size // 4 < int(given.removeprefix("bytes=").rstrip("-")) <= size // 2
    assert source.path is not None
    assert (source.path / "model.safetensors").read_bytes() == (hub.files / "model.safetensors").read_bytes()
    assert [each.format for each in stored_models(options.download_dir, [])] == ["safetensors float32"]
    hub.asked.clear()
    resolve_model("org/tiny", hub=options)
    assert not [path for path in hub.asked if "/resolve/" in path], "what is complete is not downloaded again"


_PULL = """
from huggingface_hub import constants
constants.DOWNLOAD_CHUNK_SIZE = 4096
from quire.cli.main import main
main()
"""


@pytest.mark.parametrize("damage", [False, True])
def test_a_new_process_continues_the_download_of_a_killed_one(damage: bool, hub: Hub, tmp_path: Path) -> None:
    weights, to = (hub.files / "model.safetensors").read_bytes(), tmp_path / "to"
    hub.cut, hub.held = len(weights) // 2, threading.Event()
    pull = [sys.executable, "-c", _PULL, "pull", "org/tiny", "--download-dir", str(to)]
    killed = subprocess.Popen(pull, env={**os.environ, "HF_ENDPOINT": constants.ENDPOINT, "HF_HUB_OFFLINE": "0"})
    parts: list[Path] = []
    while killed.poll() is None and not (parts and parts[0].stat().st_size > len(weights) // 4):
        time.sleep(0.01)
        with suppress(FileNotFoundError):  # a temporary directory has gone
            parts = list(to.rglob(hashlib.sha256(weights).hexdigest() + ".incomplete"))
    killed.kill()
    killed.wait()
    hub.held.set()
    begun = parts[0].stat().st_size
    assert parts[0].read_bytes() == weights[:begun]
    options = HubOptions(download_dir=str(to))
    if damage:
        parts[0].write_bytes(bytes(begun))
        with pytest.raises(ModelLoadError, match=r"damaged where an earlier download ended; download it again"):
            resolve_model("org/tiny", hub=options)
    source = resolve_model("org/tiny", hub=options)
    assert source.path is not None
    assert (source.path / "model.safetensors").read_bytes() == weights
    assert hub.ranges == [f"bytes={begun}-"]
    assert not parts[0].exists()


@pytest.mark.parametrize(
    ("refusal", "message"),
    [("GatedRepo", "is gated on the hub: accept its licence"), ("RepoNotFound", "nor a model on the hub")],
)
def test_a_gated_and_a_missing_model_say_what_to_do(refusal: str, message: str, hub: Hub, tmp_path: Path) -> None:
    hub.refusal = refusal
    for name in ("org/tiny", "org/tiny:Q4_K_M"):
        with pytest.raises(ModelLoadError, match=message):
            resolve_model(name, hub=HubOptions(download_dir=str(tmp_path / "to")))


def test_without_the_hub_the_cache_serves(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_gguf(hub.files, hub.files / "tiny-Q8_0.gguf", "Q8_0")
    options = HubOptions(download_dir=str(tmp_path / "to"))
    found = [resolve_model(name, hub=options).path for name in ("org/tiny", "org/tiny:Q8_0")]
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert [resolve_model(name, hub=options).path for name in ("org/tiny", "org/tiny:Q8_0")] == found
    with pytest.raises(ModelLoadError, match="HF_HUB_OFFLINE is set"):
        resolve_model("org/other", hub=options)
    with pytest.raises(ModelLoadError, match="no GGUF model Q4_0; it has Q8_0"):
        resolve_model("org/tiny:Q4_0", hub=options)


def test_models_of_ollama_and_lm_studio_are_found_where_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = make_checkpoint("llama", tmp_path / "checkpoint")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    root, studio = tmp_path / ".ollama" / "models", tmp_path / ".lmstudio" / "models" / "org" / "tiny"
    manifest = root / "manifests" / "registry.ollama.ai" / "library" / "tiny" / "1b"
    for each in (root / "blobs", manifest.parent, studio):
        each.mkdir(parents=True)
    blob = write_gguf(checkpoint, root / "blobs" / "sha256-aa", "Q8_0")
    (root / "blobs" / "sha256-bb").write_text(json.dumps({"file_type": "Q8_0"}))
    layers = [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:aa"}]
    manifest.write_text(json.dumps({"config": {"digest": "sha256:bb"}, "layers": layers}))
    manifest.with_name("broken").write_text('{"layers": [{}]}')
    file = write_gguf(checkpoint, studio / "tiny-F16.gguf", "F16")
    found = list(stored_models(str(tmp_path / "none"), [tmp_path / "checkpoint"]))
    assert [(each.name, each.format, each.place) for each in found] == [
        (str(checkpoint), "safetensors float32", "directory"),
        ("tiny:1b", "GGUF Q8_0", "ollama"),
        (str(file), "GGUF F16", "LM Studio"),
    ]
    source = resolve_model("tiny:1b")
    assert source.path == blob
    assert source.config.architecture == "LlamaForCausalLM"
    with pytest.raises(ModelLoadError, match="ollama has none of that name"):
        resolve_model("tiny:3b")
