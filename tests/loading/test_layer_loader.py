"""Layer-wise loading: the first stage serves before the rest arrives, and the last one is the original."""

from __future__ import annotations

import gc
import json
import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import xxhash
from safetensors.torch import load_file, save_file

from checkpoints import make_checkpoint
from quire.loading import ModelLoadError, load_model, resolve_model
from quire.loading.digest import hash_checkpoint
from quire.loading.layer_loader import LayerLoader
from quire.loading.modules.fill import fill_random
from quire.loading.modules.units import Unit
from quire.loading.progress import load_listener
from quire.loading.reading.checkpoint_reading import CheckpointReading
from quire.loading.reading.reader import ByteReader
from quire.loading.stage_manifest import (
    ADAPTER_FILES,
    LayerGroup,
    PackedFile,
    Stage,
    StageManifest,
    adapter_files,
)
from quire.models.base import CausalLM
from quire.models.parallel import ALONE, ParallelGroup
from quire.models.registry import build_model
from quire.models.stages import PassLayer
from quire.ops.arrays import as_tensor
from quire.outputs import LoadProgress
from ranks import on_ranks
from tensors import logits_of_tokens

GROUPS = ((0, 2), (1,))


def pack(directory: Path, groups: tuple[tuple[int, ...], ...] = GROUPS) -> StageManifest:
    """Split a single-file checkpoint into one file per group."""
    tensors = load_file(directory / "model.safetensors")
    (directory / "model.safetensors").unlink()
    index, files, layer_groups = {}, {}, []
    for number, group in enumerate(groups):
        name = f"model-{number + 1:05}-of-{len(groups):05}.safetensors"
        of_group = tuple(f".{layer}." for layer in group)
        mine = {
            key: tensor
            for key, tensor in tensors.items()
            if any(part in key for part in of_group) or (not number and ".layers." not in key)
        }
        save_file(mine, directory / name, metadata={"format": "pt"})
        data = (directory / name).read_bytes()
        files[name] = PackedFile(name, len(data), "", xxhash.xxh3_128_hexdigest(data))
        layer_groups.append(LayerGroup(name, group))
        index |= dict.fromkeys(mine, name)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    stages = [
        Stage(number, tuple(sorted(layer for group in groups[:number] for layer in group)))
        for number in range(1, len(groups) + 1)
    ]
    config = json.loads((directory / "config.json").read_text())
    return StageManifest(
        directory, config["architectures"][0], 3, "float32", "sha256:0", tuple(layer_groups), tuple(stages), files
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return make_checkpoint("llama", tmp_path)


def loader_of(
    directory: Path, *, manifest: StageManifest | None = None, bandwidth: float | None = None, **options: Any
) -> LayerLoader:
    reading = CheckpointReading(directory, manifest=manifest, bandwidth=bandwidth)
    return LayerLoader(resolve_model(str(directory)), reading=reading, **options)


@torch.inference_mode()
def logits(model: CausalLM, on_layer: Callable[[int], None] = lambda index: None) -> torch.Tensor:
    """Return the logits of three tokens that attend to themselves only."""
    ids = torch.tensor([5, 6, 7])

    def attend(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        on_layer(layer)
        return v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)

    return logits_of_tokens(model, ids, torch.arange(3), attend)


def test_a_turn_lasts_while_pieces_have_arrived(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, releases = ByteReader.start, list[int]()

    def read_all(reader: ByteReader) -> None:
        start(reader)
        for thread in reader._threads:
            thread.join()

    monkeypatch.setattr("quire.loading.reading.reader.PIECE_BYTES", 4096)
    monkeypatch.setattr(ByteReader, "start", read_all)
    with loader_of(directory) as loader:
        monkeypatch.setattr(loader.throttle, "release", lambda: releases.append(loader.progress().bytes_loaded))
        loader.start()
        loader.wait_stage(1)
    assert releases == [loader.bytes_until(1)]


def test_stages_arrive_one_after_the_other_and_the_last_is_the_original(directory: Path) -> None:
    expected = logits(load_model(resolve_model(str(directory)), use_tqdm=False))
    manifest = pack(directory)
    ready: list[int] = []
    with loader_of(directory, manifest=manifest) as loader:
        loader.on_stage = ready.append
        loader.start()
        loader.wait_stage(2)
        first, last = loader.stage(1), loader.stage(2)
        assert ready == [1, 2]
        assert isinstance(first.layers[1], PassLayer)
        assert first.layers[0] is last.layers[0] is loader.layer(0)
        loader.model.switch_to(first)
        assert not torch.equal(logits(loader.model), expected)
        loader.model.switch_to(last)
        assert torch.equal(logits(loader.model), expected)
        progress = loader.progress()
        assert progress.bytes_loaded == progress.bytes_total == manifest.stage_bytes(2)


def test_a_forward_pass_goes_through_layers_as_they_arrive(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = logits(load_model(resolve_model(str(directory)), use_tqdm=False))
    may_go_on = threading.Event()
    finish = Unit.finish

    def finish_when_told(unit: Unit, name: str) -> None:
        if unit.layer == 1:
            may_go_on.wait()
        finish(unit, name)

    monkeypatch.setattr(Unit, "finish", finish_when_told)
    with loader_of(directory) as loader:
        loader.start()
        loader.wait_input()
        loader.model.switch_to(loader.arriving_stage(1))
        assert loader.stage_ready == 0
        passed: list[int] = []

        def let_go_on(layer: int) -> None:
            passed.append(layer)
            if layer == 0:
                may_go_on.set()

        assert torch.equal(logits(loader.model, let_go_on), expected)
        assert passed == [0, 1, 2]
        assert loader.model.waited_s > 0
        assert loader.pending_memory() == 0


def test_a_layer_that_cannot_be_loaded_raises_in_the_forward_pass_that_waits_for_it(directory: Path) -> None:
    tensors = load_file(directory / "model.safetensors")
    tensors["model.layers.2.mlp.down_proj.weight"][0, 0] = float("nan")
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    with loader_of(directory) as loader:
        loader.start()
        loader.wait_input()
        loader.model.switch_to(loader.arriving_stage(1))
        with pytest.raises(ModelLoadError, match=r"model.layers.2.mlp.down_proj.weight in .* NaN"):
            logits(loader.model)
        assert "NaN" in str(loader.progress().error)


def shrink(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 5000)


def flip(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-3, os.SEEK_END)
        file.write(b"\0")


@pytest.mark.parametrize(("corrupt", "message"), [(shrink, "ends at byte"), (flip, "its checksum differs")])
def test_a_first_stage_that_changes_while_it_is_read_is_refused(
    directory: Path, corrupt: Callable[[Path], None], message: str
) -> None:
    manifest = pack(directory)
    with loader_of(directory, manifest=manifest) as loader:
        corrupt(directory / manifest.groups[0].file)
        loader.start()
        with pytest.raises(ModelLoadError, match=rf"{manifest.groups[0].file} .*{message}"):
            loader.wait_stage(1)


@pytest.mark.parametrize("corrupt", [shrink, flip, Path.unlink])
def test_a_later_stage_that_cannot_be_read_is_tried_again_while_the_first_is_served(
    directory: Path, corrupt: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quire.loading.layer_loader._FIRST_RETRY_S", 0.01)
    expected = logits(load_model(resolve_model(str(directory)), use_tqdm=False))
    manifest = pack(directory)
    file = directory / manifest.groups[1].file
    whole = file.read_bytes()
    told: list[LoadProgress] = []
    has_failed = threading.Event()

    def listen(progress: LoadProgress) -> None:
        told.append(progress)
        if progress.error:
            has_failed.set()

    token = load_listener.set(listen)
    with loader_of(directory, manifest=manifest, retries=True) as loader:
        load_listener.reset(token)
        corrupt(file)
        loader.start()
        has_failed.wait()
        loader.set_served_stage(1)
        assert loader.stage_ready == 1
        assert file.name in str(loader.progress().error)
        assert loader.progress().stage == 1
        logits_of_first = _at(loader, 1)
        if file.exists():  # its inode differs, whatever the clock says
            file.rename(file.with_suffix(".old"))
        file.write_bytes(whole)
        loader.wait_stage(2)
        assert torch.equal(_at(loader, 2), expected)
        assert torch.equal(_at(loader, 1), logits_of_first)
        assert loader.progress().error is None
        assert loader.progress().bytes_loaded == loader.progress().bytes_total
    assert told[-1].bytes_loaded == told[-1].bytes_total


def test_a_file_of_other_content_is_not_read_again_before_it_has_changed(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quire.loading.layer_loader._FIRST_RETRY_S", 0.001)
    manifest = pack(directory)
    flip(directory / manifest.groups[1].file)
    looked: list[bool] = []
    readers: list[int] = []
    has_looked = threading.Event()
    has_changed, make_reader = CheckpointReading.has_changed, CheckpointReading._make_reader

    def look(reading: CheckpointReading, group: int) -> bool:
        looked.append(has_changed(reading, group))
        if len(looked) == 3:
            has_looked.set()
        return looked[-1]

    def count(reading: CheckpointReading, first_group: int) -> ByteReader:
        readers.append(first_group)
        return make_reader(reading, first_group)

    monkeypatch.setattr(CheckpointReading, "has_changed", look)
    monkeypatch.setattr(CheckpointReading, "_make_reader", count)
    with loader_of(directory, manifest=manifest, retries=True) as loader:
        loader.start()
        has_looked.wait()
    assert looked[:3] == [False] * 3
    assert readers == [0]


def with_adapter(manifest: StageManifest, number: int) -> StageManifest:
    """Return a stage with an adapter of its first layer."""
    folder = manifest.directory / "adapter"
    folder.mkdir()
    module = "base_model.model.model.layers.0.self_attn.v_proj"  # [32, 64]
    save_file(
        {f"{module}.lora_A.weight": torch.full((2, 64), 1.1), f"{module}.lora_B.weight": torch.full((32, 2), 1.1)},
        folder / ADAPTER_FILES[0],
    )
    (folder / ADAPTER_FILES[1]).write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 4}))
    files = dict(manifest.files)
    for name in adapter_files("adapter"):
        data = (manifest.directory / name).read_bytes()
        files[name] = PackedFile(name, len(data), "", xxhash.xxh3_128_hexdigest(data))
    stages = list(manifest.stages)
    stages[number - 1] = replace(stages[number - 1], adapter="adapter", adapter_digest="0" * 64)
    return replace(manifest, files=files, stages=tuple(stages))


def test_each_rank_of_a_group_gets_its_parts_of_the_stages_and_of_their_adapters(directory: Path) -> None:
    manifest = with_adapter(pack(directory), 1)

    def run(group: ParallelGroup) -> list[torch.Tensor]:
        with loader_of(directory, manifest=manifest, group=group) as loader:
            loader.start()
            return [_at(loader, number) for number in (1, 2)]

    expected = run(ALONE)
    assert not torch.allclose(expected[0], expected[1])
    for found in on_ranks(2, run):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_stage_whose_adapter_is_not_what_was_packed_is_left_out_and_the_last_is_reached(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = logits(load_model(resolve_model(str(directory)), use_tqdm=False))
    manifest = with_adapter(pack(directory, ((0,), (2,), (1,))), 2)
    with loader_of(directory, manifest=manifest) as loader:
        loader.start()
        loader.wait_stage(3)
        adapter = weakref.ref(loader.stage(2).adapter)
        assert adapter() is not None
        loader.set_served_stage(3)
        assert adapter() is None
        with pytest.raises(ValueError, match="stage 2 was dropped because a later one is served"):
            loader.stage(2)
    flip(directory / "adapter" / ADAPTER_FILES[0])
    told: list[LoadProgress] = []
    ready: list[int] = []
    token = load_listener.set(told.append)
    with loader_of(directory, manifest=manifest, retries=True) as loader:
        load_listener.reset(token)
        loader.on_stage = ready.append
        loader.start()
        loader.wait_stage(3)
        with pytest.raises(ModelLoadError, match=f"{ADAPTER_FILES[0]} is damaged"):
            loader.stage(2)
        assert torch.equal(_at(loader, 3), expected)
        assert loader.progress().bytes_loaded == manifest.stage_bytes(3)
    assert ready == [1, 3]
    assert "stage 2 is left out: " in str([progress.error for progress in told])
    assert len([record for record in caplog.records if "stage 2 is left out" in record.message]) == 1
    with loader_of(directory, manifest=manifest) as loader:
        loader.start()
        with pytest.raises(ModelLoadError, match=f"{ADAPTER_FILES[0]} is damaged"):
            loader.wait_stage(3)


def test_waiting_for_all_stages_raises_the_error_of_a_broken_one(directory: Path) -> None:
    manifest = pack(directory)
    flip(directory / manifest.groups[1].file)
    with loader_of(directory, manifest=manifest) as loader:
        loader.start()
        with pytest.raises(ModelLoadError, match=f"{manifest.groups[1].file} is damaged"):
            loader.wait_stage(2)


def _at(loader: LayerLoader, stage: int) -> torch.Tensor:
    loader.model.switch_to(loader.stage(stage))
    return logits(loader.model)


def test_a_pack_of_other_files_is_refused_before_anything_is_read(directory: Path, tmp_path: Path) -> None:
    manifest = pack(directory)
    first, second = (manifest.groups[i].file for i in (0, 1))
    swapped = replace(manifest, groups=(LayerGroup(first, (0, 1)), LayerGroup(second, (2,))))
    with pytest.raises(ModelLoadError, match=rf"expects layers \[0, 1\] in {first}, which contains \[0, 2\]"):
        loader_of(directory, manifest=swapped)
    with pytest.raises(ModelLoadError, match=r"is of a OtherModel with 3 layers"):
        loader_of(directory, manifest=replace(manifest, architecture="OtherModel"))
    with (directory / second).open("ab") as file:
        file.write(b"0")
    with pytest.raises(ModelLoadError, match="truncated or another file"):
        loader_of(directory, manifest=manifest)


def test_a_report_that_takes_long_is_not_overtaken_by_a_newer_one(directory: Path) -> None:
    told: list[int] = []
    is_within, may_go_on = threading.Event(), threading.Event()

    def listen(progress: LoadProgress) -> None:
        if progress.stage == 1:
            is_within.set()
            may_go_on.wait()
        told.append(progress.stage)

    token = load_listener.set(listen)
    with loader_of(directory, manifest=pack(directory)) as loader:
        load_listener.reset(token)
        loader.start()
        loader.wait_stage(2)
        slow = threading.Thread(target=loader.set_served_stage, args=(1,))
        slow.start()
        is_within.wait()
        newer = threading.Thread(target=loader.set_served_stage, args=(2,))
        newer.start()
        newer.join(0.05)  # it would be finished by now
        may_go_on.set()
        slow.join()
        newer.join()
    assert told[-1] == 2


def test_closing_ends_waiting_calls(directory: Path) -> None:
    manifest = pack(directory)
    loader = loader_of(directory, manifest=manifest, bandwidth=1)  # one byte per second: never
    loader.start()
    waiting = threading.Thread(target=loader.close)
    waiting.start()
    with pytest.raises(ModelLoadError, match="was stopped before"):
        loader.wait_stage(1)
    waiting.join()


def test_a_closed_loader_calls_and_keeps_no_listener(directory: Path) -> None:
    manifest = pack(directory)
    flip(directory / manifest.groups[1].file)

    class Engine:
        """An engine that knows its loader, and is known by it."""

        def __init__(self) -> None:
            self.is_told = threading.Event()
            token = load_listener.set(self.take)
            self.loader = loader_of(directory, manifest=manifest, retries=True)
            load_listener.reset(token)
            self.loader.on_stage = self.take
            self.loader.start()

        def take(self, what: LoadProgress | int) -> None:
            if isinstance(what, LoadProgress) and what.error is not None:
                self.is_told.set()

    threads = set(threading.enumerate())
    engine = Engine()
    engine.is_told.wait()
    loader = engine.loader
    loader.close()
    known = weakref.ref(engine)
    del engine
    gc.collect()
    assert known() is None
    assert set(threading.enumerate()) <= threads
    loader.set_served_stage(1)


def test_random_weights_arrive_as_they_were_made_before(directory: Path) -> None:
    model = load_model(resolve_model("random:tiny"), seed=4, use_tqdm=False, dtype="float32")
    views = build_model(model.config, torch.float32, "cpu").checkpoint_tensors()
    fill_random(views, std=model.config.initializer_range, seed=4)
    ids = torch.arange(model.config.vocab_size)
    assert torch.equal(views["model.embed_tokens.weight"], as_tensor(model.embed_tokens(ids.numpy())))
    assert torch.equal(views["model.norm.weight"], as_tensor(model.norm.weight))


def test_the_digest_is_taken_while_the_bytes_pass(directory: Path) -> None:
    tensors = load_file(directory / "model.safetensors")
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)  # counts, although unused
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    with loader_of(directory, computes_digest=True) as loader:
        loader.start()
        loader.wait_stage(1)
        assert loader.digest == hash_checkpoint(directory)


@pytest.mark.parametrize("interrupted", ["quire-load", "quire-read"])
def test_ctrl_c_while_a_thread_starts_stays_ctrl_c(
    directory: Path, monkeypatch: pytest.MonkeyPatch, interrupted: str
) -> None:
    start = threading.Thread.start

    def start_or_interrupt(thread: threading.Thread) -> None:
        if thread.name.startswith(interrupted):
            raise KeyboardInterrupt
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_interrupt)
    with pytest.raises(KeyboardInterrupt), loader_of(directory) as loader:
        loader.start()
