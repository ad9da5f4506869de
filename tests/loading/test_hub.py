"""Hub models are downloaded with the user's options and one progress display, here from a hub on this machine."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from huggingface_hub import constants

from checkpoints import make_checkpoint
from quire.config import EngineConfig, HubOptions
from quire.loading import ModelLoadError, resolve_model
from quire.loading.progress import load_listener
from quire.outputs import LoadProgress

_DEFAULT = constants.ENDPOINT
_SHAS = {"main": "a" * 40, "v2": "b" * 40}


@dataclass
class Hub:
    files: Path
    tokens: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    made = Hub(tmp_path / "repository")
    made.files.mkdir()
    make_checkpoint("qwen3", made.files)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.asked.append(self.path)
            made.tokens.add(self.headers.get("authorization", ""))
            names = sorted(file.name for file in made.files.iterdir())
            if found := re.search(r"/revision/(\w+)", self.path):
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
                self.answer((made.files / self.path.split("?")[0].rpartition("/")[2]).read_bytes())

        do_HEAD = do_GET

        def answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Type", "application/json")
            self.send_header("ETag", f'"{abs(hash(body)):032x}"')
            self.send_header("X-Repo-Commit", next((sha for sha in _SHAS.values() if sha in self.path), ""))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

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
