"""Models behind http:// and s3:// load as from a directory, whatever happens on the way: one test per fault."""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from checkpoints import make_checkpoint
from quire.loading import ModelLoadError, find_model, load_model, remote, resolve_model
from quire.loading.checkpoint import read_headers
from quire.loading.digest import hash_checkpoint
from quire.loading.errors import UnreadableError
from quire.loading.known_digest import checkpoint_digest
from quire.loading.layer_loader import LayerLoader
from quire.loading.reading.checkpoint_reading import begin_reading, read_checkpoint
from quire.models.base import CausalLM
from quire.models.linear.layer import Linear
from quire.models.linear.panel_weight import PanelWeight
from quire.models.parallel import ParallelGroup
from quire.ops.arrays import as_tensor
from quire.progressive.packs.pack import pack
from quire.progressive.stage_plan import StagePlan
from range_server import Fault, RangeServer, serve_directory
from ranks import on_ranks

pytest.importorskip("obstore")
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


@pytest.fixture(autouse=True)
def _root_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client does not start without them."""
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint("llama", tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def packed(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack of two stages, the first with an adapter."""
    place = tmp_path_factory.mktemp("packed")
    name = "base_model.model.model.layers.0.self_attn.v_proj"  # [32, 64]
    halves = {f"{name}.lora_A.weight": torch.ones(2, 64), f"{name}.lora_B.weight": torch.ones(32, 2)}
    (place / "adapter").mkdir()
    save_file(halves, place / "adapter" / "adapter_model.safetensors")
    (place / "adapter" / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 4}))
    plan = StagePlan(3, ((0, 2), (1,)))
    pack(str(original), plan, place / "pack", adapters={1: place / "adapter"}, use_tqdm=False)
    return place / "pack"


@pytest.fixture
def server(
    original: Path, packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[RangeServer]:
    """Serves bucket/plain and bucket/pack by HTTP and S3. Reads are small and fail early."""
    shutil.copytree(original, tmp_path / "root" / "bucket" / "plain")
    shutil.copytree(packed, tmp_path / "root" / "bucket" / "pack")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("quire.loading.reading.reader.PIECE_BYTES", 16384)
    is_stalling = "stall" in request.node.name
    monkeypatch.setitem(remote._TIMEOUTS, "read_timeout", "400ms" if is_stalling else "10s")
    pauses = {"init_backoff": timedelta(milliseconds=10), "max_backoff": timedelta(milliseconds=20)}
    retries = {"max_retries": 3, "retry_timeout": timedelta(seconds=20), "backoff": pauses}
    monkeypatch.setattr(remote, "_RETRIES", retries)
    monkeypatch.setattr("quire.loading.layer_loader._FIRST_RETRY_S", 0.05)
    with serve_directory(tmp_path / "root") as served:
        monkeypatch.setenv("AWS_ENDPOINT_URL", served.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        yield served


@pytest.fixture(params=["http", "s3"])
def place(request: pytest.FixtureRequest, server: RangeServer) -> str:
    """The URL of the directory with both checkpoints."""
    return f"{server.url}/bucket" if request.param == "http" else "s3://bucket"


def weights_of(model: CausalLM) -> dict[str, torch.Tensor]:
    arrays = dict[str, Any]()
    for path, module in model.named_modules("model"):
        arrays |= {f"{path}.{name}": array for name, array in module.named_parameters()}
        if isinstance(module, Linear) and isinstance(module.packed, PanelWeight):
            arrays[path] = module.packed._packed
    return {name: as_tensor(array).clone() for name, array in arrays.items()}


def assert_equal(model: CausalLM, other: Path) -> None:
    found, expected = weights_of(model), weights_of(load_model(resolve_model(str(other)), use_tqdm=False))
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def loader_of(url: str) -> LayerLoader:
    source = resolve_model(url)
    assert source.path is not None
    return LayerLoader(source, reading=read_checkpoint(source.path), retries=True)


def test_a_checkpoint_loads_by_parallel_ranges_and_only_small_files_are_stored(
    place: str, server: RangeServer, original: Path, tmp_path: Path
) -> None:
    source = resolve_model(f"{place}/plain/")
    assert source.path is not None
    assert_equal(load_model(source, use_tqdm=False), original)
    ranges = {wanted for method, path, wanted in server.asked if path.endswith("model.safetensors") and method == "GET"}
    assert len(ranges) > 8
    stored = [file for file in (tmp_path / "cache").rglob("*") if file.is_file()]
    assert {file.name for file in stored} <= {*os.listdir(original), remote.LISTING} - {"model.safetensors"}
    assert hash_checkpoint(source.path) == hash_checkpoint(original)


def test_a_second_start_fetches_no_small_file_again_until_one_changes(place: str, server: RangeServer) -> None:
    first = resolve_model(f"{place}/plain")
    server.asked.clear()
    assert resolve_model(f"{place}/plain").path == first.path
    assert {method for method, *_ in server.asked} == {"HEAD"}
    config = server.directory / "bucket" / "plain" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"rope_theta": 5000.0}))
    changed = resolve_model(f"{place}/plain")
    assert changed.path != first.path
    assert changed.hf_config["rope_theta"] == 5000.0


def test_ranks_read_their_parts(place: str, original: Path) -> None:
    def load(group: ParallelGroup) -> dict[str, torch.Tensor]:
        return weights_of(load_model(resolve_model(f"{place}/plain"), use_tqdm=False, group=group))

    def load_local(group: ParallelGroup) -> dict[str, torch.Tensor]:
        return weights_of(load_model(resolve_model(str(original)), use_tqdm=False, group=group))

    for found, expected in zip(on_ranks(2, load), on_ranks(2, load_local), strict=True):
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_stages_of_a_pack_arrive_in_order_and_the_last_is_the_original(
    place: str, server: RangeServer, packed: Path
) -> None:
    reading = begin_reading(f"{place}/pack")
    assert reading is not None
    ready: list[int] = []
    with LayerLoader(resolve_model(f"{place}/pack"), reading=reading) as loader:
        loader.on_stage = ready.append
        loader.start()
        loader.wait_stage(2)
        assert ready == [1, 2]
        assert_equal(loader.model, packed)
    got = [path.rpartition("/")[2] for method, path, _ in server.asked if method == "GET" and "0000" in path]
    assert got.index(SECOND) > 0, "the first group is asked for first"


def test_a_connection_that_is_cut_is_resumed_behind_the_bytes_that_arrived(
    place: str, server: RangeServer, original: Path
) -> None:
    server.faults["model.safetensors"] = Fault("cut", times=3, after=9000)
    assert_equal(load_model(resolve_model(f"{place}/plain"), use_tqdm=False), original)
    assert server.faults["model.safetensors"].times == 0
    ranges = [wanted for _, path, wanted in server.asked if path.endswith("model.safetensors") and wanted]
    starts = [int(each.removeprefix("bytes=").split("-")[0]) for each in ranges]
    assert any(start % 16384 for start in starts[2:])


def test_a_server_that_stalls_is_asked_again(place: str, server: RangeServer, original: Path) -> None:
    server.faults["model.safetensors"] = Fault("stall", times=2, after=9000)
    assert_equal(load_model(resolve_model(f"{place}/plain"), use_tqdm=False), original)


def test_a_server_that_is_overloaded_is_asked_again(place: str, server: RangeServer, original: Path) -> None:
    server.faults["model.safetensors"] = Fault(503, times=3)
    assert_equal(load_model(resolve_model(f"{place}/plain"), use_tqdm=False), original)


@pytest.mark.parametrize("kind", ["cut", "stall", 503, 403])
def test_a_lasting_fault_of_the_first_stage_ends_the_start_and_names_the_file(
    server: RangeServer, place: str, kind: str | int
) -> None:
    server.faults[FIRST] = Fault(kind, after=9000)
    with loader_of(f"{place}/pack") as loader:
        loader.start()
        with pytest.raises(UnreadableError, match=f"{place}/pack/{FIRST}"):
            loader.wait_stage(1)


@pytest.mark.parametrize("kind", ["cut", "stall", 503, 403])
def test_a_fault_of_a_later_stage_leaves_the_first_in_service_until_it_ends(
    server: RangeServer, place: str, packed: Path, kind: str | int
) -> None:
    server.faults[SECOND] = Fault(kind, after=9000)
    with loader_of(f"{place}/pack") as loader:
        loader.start()
        loader.wait_stage(1)
        until(lambda: loader.progress().error)
        assert loader.stage_ready == 1
        server.faults.clear()
        loader.wait_stage(2)
        assert_equal(loader.model, packed)


def until(is_so: object, seconds: float = 20.0) -> None:
    assert callable(is_so)
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_wrong_bytes_never_serve_and_are_read_again_at_once(place: str, server: RangeServer, packed: Path) -> None:
    server.faults[SECOND] = Fault("flip", times=1, after=9000)
    with loader_of(f"{place}/pack") as loader:
        loader.start()
        loader.wait_stage(2)
        assert server.faults[SECOND].times == 0
        assert_equal(loader.model, packed)


def test_wrong_bytes_of_the_first_stage_end_the_start(place: str, server: RangeServer) -> None:
    server.faults[FIRST] = Fault("flip", after=9000)
    with loader_of(f"{place}/pack") as loader:
        loader.start()
        with pytest.raises(ModelLoadError, match=f"{FIRST} is damaged"):
            loader.wait_stage(1)


def test_a_file_that_is_damaged_on_the_server_is_read_again_once_it_is_repaired(
    place: str, server: RangeServer, packed: Path
) -> None:
    file = server.directory / "bucket" / "pack" / SECOND
    good = file.read_bytes()
    file.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with loader_of(f"{place}/pack") as loader:
        loader.start()
        loader.wait_stage(1)
        until(lambda: len([1 for method, path, _ in server.asked if path.endswith(SECOND) and method == "HEAD"]) > 3)
        assert loader.stage_ready == 1
        file.write_bytes(good)
        loader.wait_stage(2)
        assert_equal(loader.model, packed)


@pytest.mark.parametrize("has_etags", [True, False])
def test_an_object_that_changes_during_loading_is_refused(place: str, server: RangeServer, has_etags: bool) -> None:
    server.has_etags = has_etags
    file = server.directory / "bucket" / "plain" / "model.safetensors"
    source = resolve_model(f"{place}/plain")

    def change(name: str, start: int) -> None:
        if name == file.name and start > 100_000:
            server.on_get = lambda name, start: None
            data = bytearray(file.read_bytes())
            data[-1] ^= 1
            changed = file.with_suffix(".new")  # requests meanwhile see the file before or after
            changed.write_bytes(data)
            os.utime(changed, (2e9, 2e9))
            changed.replace(file)

    server.on_get = change
    with pytest.raises(ModelLoadError, match=r"plain/model.safetensors changed after loading started"):
        load_model(source, use_tqdm=False)


def test_a_changed_object_has_another_directory_and_another_digest(place: str, server: RangeServer) -> None:
    first = resolve_model(f"{place}/plain").path
    assert first is not None
    digest = checkpoint_digest(first, use_tqdm=False)
    file = server.directory / "bucket" / "plain" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    second = resolve_model(f"{place}/plain").path
    assert second is not None
    assert second != first
    assert checkpoint_digest(second, use_tqdm=False) != digest


def test_a_server_without_ranges_is_refused_by_name(server: RangeServer, original: Path) -> None:
    server.has_ranges = False
    with pytest.raises(ModelLoadError, match="ignores range requests"):
        load_model(resolve_model(f"{server.url}/bucket/plain"), use_tqdm=False)


def test_access_denied_names_the_credentials(place: str, server: RangeServer, caplog: pytest.LogCaptureFixture) -> None:
    server.denies_missing = True  # S3 without the right to list a bucket
    with caplog.at_level(logging.WARNING, "quire"):
        assert resolve_model(f"{place}/plain").hf_config
    assert "access denied" in caplog.text
    server.denied = {"config.json"}
    with pytest.raises(ModelLoadError, match=r"config.json: access denied; (check AWS_ACCESS_KEY_ID|allow)"):
        resolve_model(f"{place}/plain")


def test_file_names_stay_inside_and_sizes_are_bounded(
    place: str, server: RangeServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pack_index = server.directory / "bucket" / "pack" / "model.safetensors.index.json"
    for name in ("../plain/model.safetensors", "/etc/passwd"):
        pack_index.write_text(json.dumps({"weight_map": {"a": name}}))
        source = resolve_model(f"{place}/pack")
        assert source.path is not None
        with pytest.raises(ModelLoadError, match="outside of the model's directory"):
            read_headers(source.path)
    monkeypatch.setattr(remote, "_MAX_SMALL_BYTES", 50)
    with pytest.raises(ModelLoadError, match="bytes, more than 50"):
        resolve_model(f"{place}/plain")
    assert not list((tmp_path / "cache").rglob(".new-*"))


@pytest.mark.parametrize(
    "url", ["https://", "http://host/model?token=1", "https://user:word@host/model", "s3://bucket/../x", "https://h/#a"]
)
def test_a_url_that_is_no_directory_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ModelLoadError, match="a remote model is https://HOST/DIRECTORY") as raised:
        find_model(url)
    assert "word@" not in str(raised.value)


def test_without_the_library_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelLoadError, match=r"pip install 'quire-llm\[remote\]'"):
        find_model("s3://bucket/model")


def test_a_missing_model_and_an_unreachable_server_are_told_apart(place: str) -> None:
    with pytest.raises(ModelLoadError, match=r"has no config.json; name the directory"):
        resolve_model(f"{place}/nothing")
    with pytest.raises(ModelLoadError, match=r"config.json cannot be read .*check the network"):
        resolve_model("http://127.0.0.1:9/model")


def test_the_directory_of_a_stranger_cannot_name_a_server(server: RangeServer, original: Path, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    shutil.copy(original / "config.json", stranger)
    file = remote.RemoteFile(f"{server.url}/bucket/plain", "model.safetensors", 100, None, 0)
    (stranger / remote.LISTING).write_text(json.dumps({"files": {file.name: vars(file)}}))
    with pytest.raises(ModelLoadError, match="contains no weights"):
        read_headers(stranger)
    assert not server.asked


def test_moto_serves_a_model_from_s3(packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moto = pytest.importorskip("moto.server")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    service = moto.ThreadedMotoServer(port=0, verbose=False)
    service.start()
    try:
        host, port = service.get_host_and_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        import boto3

        client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1")
        client.create_bucket(Bucket="models")
        for file in packed.rglob("*"):
            if file.is_file():
                client.upload_file(str(file), "models", f"a/pack/{file.relative_to(packed)}")
        with loader_of("s3://models/a/pack") as loader:
            loader.start()
            loader.wait_stage(2)
            assert_equal(loader.model, packed)
        source = resolve_model("s3://models/a/pack")
        client.upload_file(str(packed / "config.json"), "models", f"a/pack/{FIRST}")
        assert source.path is not None
        with pytest.raises(ModelLoadError, match="changed after loading started"):
            read_headers(source.path)
        with pytest.raises(ModelLoadError, match=r"config.json"):
            resolve_model("s3://nobody/pack")
    finally:
        service.stop()
