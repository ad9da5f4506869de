"""Packs with bit planes: the same bits come back, read in any way, and damage is an error before anything is served."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xxhash
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from checkpoints import make_checkpoint
from command_line import app
from kernel_levels import needs_kernels
from parameters import quick
from quire.kernels.planes import FORMATS, join_words, split_words
from quire.loading import ModelLoadError, known_digest, resolve_model
from quire.loading.checkpoint import read_headers
from quire.loading.digest import hash_checkpoint
from quire.loading.layer_loader import LayerLoader
from quire.loading.planes.index import original_file, plane_index
from quire.loading.reading.checkpoint_reading import read_checkpoint
from quire.loading.reading.reader import ByteReader, runs_in_order_of_use
from quire.loading.save import save_model
from quire.loading.stage_manifest import PLANES_FILE, STAGES_FILE, read_stage_manifest
from quire.models.base import CausalLM
from quire.models.linear.truncation import PlainWeight
from quire.models.parallel import ALONE
from quire.progressive.packs import plane_files
from quire.progressive.packs.pack import pack
from quire.progressive.packs.plane_files import unpack
from quire.progressive.packs.verify import verify
from quire.progressive.stage_plan import StagePlan
from range_server import serve_directory
from ranks import load, on_ranks
from tensors import logits_of_tokens, tensors_of

DTYPES = {"BF16": torch.bfloat16, "F32": torch.float32, "F16": torch.float16}
WHOLE = ((0, 1, 2),)


@pytest.fixture(autouse=True)
def _small_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(plane_files, "CHUNK_BYTES", 8000)
    monkeypatch.setattr("quire.loading.reading.reader.PIECE_BYTES", 8192)


def make(directory: Path, name: str = "llama", dtype: torch.dtype = torch.bfloat16) -> Path:
    make_checkpoint(name, directory)
    tensors = {key: each.to(dtype) for key, each in load_file(directory / "model.safetensors").items()}
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"dtype": str(dtype).removeprefix("torch.")}))
    return directory


def pack_planes(original: Path, out: Path, bits: int, groups: tuple[tuple[int, ...], ...] = WHOLE) -> Path:
    pack(str(original), StagePlan(3, groups, bits), out, use_tqdm=False)
    return out


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("original") / "model")


def loaded(directory: Path, group: Any = ALONE, **options: Any) -> CausalLM:
    return load(directory, group, dtype="auto", **options)


def same(a: CausalLM, b: CausalLM) -> bool:
    found, expected = tensors_of(a), tensors_of(b)
    return found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in found)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps weights in rows, so that tests see their tensors."""
    monkeypatch.setattr("quire.models.linear.layer.pack_weight", lambda weight, **_: None)


# -- the same bits -----------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(data=st.data(), dtype=st.sampled_from([*FORMATS]), size=st.sampled_from([1, 7, 8, 9, 31, 1023, 1025]))
@pytest.mark.parametrize("level", [None, "none", "generic"])
def test_any_words_are_joined_from_their_planes(data: st.DataObject, dtype: str, size: int, level: str | None) -> None:
    form = FORMATS[dtype]
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    words = random.integers(0, 1 << 8 * form.item_bytes, (3, size), np.uint64).astype(f"u{form.item_bytes}")
    top_bits = data.draw(st.integers(1, 1 + form.head_bits))
    exponents, top, rest = (np.frombuffer(each, np.uint8) for each in split_words(words, form, top_bits))
    string = "".join(f"{each:08b}"[::-1] for each in top[: len(top) // 3])[: size * top_bits]
    fields = [int(string[i : i + top_bits][::-1], 2) for i in range(0, len(string), top_bits)]
    shift = 8 * form.item_bytes - 1
    assert [field >> (top_bits - 1) for field in fields] == [*(words[0] >> shift)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUIRE_KERNELS", level) if level else patch.delenv("QUIRE_KERNELS", raising=False)
        whole, first, second = np.empty_like(words), np.empty_like(words), np.empty_like(words)
        join_words(whole, form, top_bits, exponents, top, rest)
        join_words(first, form, top_bits, exponents, top, None)
        join_words(second, form, top_bits, None, None, rest)
    assert np.array_equal(whole, words)
    missing = (1 << (form.head_bits + 1 - top_bits + 8 * form.low_bytes)) - 1
    assert np.array_equal(first, words & np.array(~missing & (1 << 8 * form.item_bytes) - 1, words.dtype))
    assert np.array_equal(first | second, words)


@pytest.mark.parametrize(
    ("name", "dtype", "bits"),
    [
        ("llama", "BF16", 7),
        ("llama-tied", "BF16", 1),
        ("gpt2", "F32", 0),
        pytest.param("opt-350m", "F32", 7, marks=pytest.mark.slow),
        ("qwen2", "F16", 7),
        ("gpt-oss-window", "BF16", 1),
        pytest.param("deepseek2", "BF16", 1, marks=pytest.mark.slow),
    ],
)
def test_a_pack_unpacks_to_the_original_files(name: str, dtype: str, bits: int, tmp_path: Path) -> None:
    original = make(tmp_path / "model", name, DTYPES[dtype])
    packed = pack_planes(original, tmp_path / "pack", bits)
    assert verify(packed) == []
    assert hash_checkpoint(packed) == hash_checkpoint(original) == read_stage_manifest(packed).weights
    unpack(packed, tmp_path / "unpacked")
    files = {file.name: file.read_bytes() for file in original.iterdir()}
    assert {file.name: file.read_bytes() for file in (tmp_path / "unpacked").iterdir()} == files
    apart = {name for name, parts in plane_index(packed).coded_files.items() if len(parts) > 1}
    stacks = ("kv_b_proj.weight", "experts.gate_up_proj", "experts.down_proj")
    assert bits == 7 or apart >= {name for name in read_headers(original) if name.endswith(stacks)}
    assert known_digest.known_digest(packed, known_digest.stat_weights(packed)) == hash_checkpoint(original)


def test_shards_and_their_index_come_back_and_a_pack_can_be_packed_again(original: Path, tmp_path: Path) -> None:
    save_model(resolve_model(str(original)), tmp_path / "shards", shard_bytes=50_000, use_tqdm=False)
    files = {file.name: file.read_bytes() for file in (tmp_path / "shards").iterdir()}
    assert len([name for name in files if name.endswith(".safetensors")]) > 2
    packed = pack_planes(tmp_path / "shards", tmp_path / "pack", 2, ((0, 2), (1,)))
    assert [group.layers for group in read_stage_manifest(packed).groups] == [(0, 2), (1,), (0, 1, 2)]
    again = pack_planes(packed, tmp_path / "again", 7)
    unpack(again, tmp_path / "unpacked")
    assert {file.name: file.read_bytes() for file in (tmp_path / "unpacked").iterdir()} == files


def test_most_weights_take_two_thirds_of_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    manifest = pack("quire-mini", StagePlan(16, (tuple(range(16)),), 1), tmp_path / "pack", use_tqdm=False)
    whole = sum(entry.num_bytes for entry in read_headers(tmp_path / "pack").values())
    assert manifest.stage_bytes(1) < 0.30 * whole
    assert manifest.stage_bytes(2) < 0.67 * whole


# -- loading -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("level", ["", "none"])
@pytest.mark.parametrize("bits", [7, 1])
def test_a_pack_loads_as_the_original(
    bits: int, level: str, original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = pack_planes(original, tmp_path / "pack", bits)
    monkeypatch.setenv("QUIRE_KERNELS", level)
    assert same(loaded(packed), loaded(original))
    assert same(load(packed, ALONE, dtype="float32"), load(original, ALONE, dtype="float32"))


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("name", quick(["llama", "gpt2"], ["llama", "gpt2", "mixtral"]))
def test_each_rank_loads_its_part(name: str, tmp_path: Path) -> None:
    original = make(tmp_path / "model", name)
    packed = pack_planes(original, tmp_path / "pack", 1)
    for a, b in zip(*(on_ranks(2, lambda group, of=of: loaded(of, group)) for of in (original, packed)), strict=True):
        assert same(a, b)


def test_a_rank_reads_only_the_chunks_with_its_rows(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plane_files, "CHUNK_BYTES", 3000)
    packed = pack_planes(original, tmp_path / "pack", 7)
    entry = read_headers(packed)["model.embed_tokens.weight"]
    file = original_file(entry.file)
    assert file is not None
    half = (entry.start + entry.end) // 2
    assert file.stored_bytes(entry.start, half) < 0.6 * file.stored_bytes(entry.start, entry.end)


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_any_range_is_read_as_from_the_original(data: st.DataObject, original: Path, tmp_path_factory: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plane_files, "CHUNK_BYTES", 3000)
        patch.setattr("quire.loading.reading.reader.PIECE_BYTES", 8192)
        packed = pack_planes(original, tmp_path_factory.mktemp("packs") / "pack", data.draw(st.sampled_from([1, 7])))
        content = (original / "model.safetensors").read_bytes()
        file = original_file(packed / "model.safetensors")
        assert file is not None
        assert file.num_bytes == len(content)
        entries = data.draw(st.lists(st.sampled_from(sorted(read_headers(packed).values(), key=str)), unique=True))
        reader = ByteReader(runs_in_order_of_use(entries), uses_direct_io=data.draw(st.booleans()))
        reader.start()
        while (piece := reader.next_piece()) is not None:
            assert piece.data == content[piece.start : piece.end]
            reader.release(piece)
        reader.close()


def _load_stages(directory: Path) -> None:
    with LayerLoader(resolve_model(str(directory)), reading=read_checkpoint(directory)) as loader:
        loader.start()
        loader.wait_stage(loader.last_stage)


def test_layer_groups_arrive_one_after_the_other(original: Path, tmp_path: Path) -> None:
    packed = pack_planes(original, tmp_path / "pack", 7, ((0, 2), (1,)))
    with LayerLoader(resolve_model(str(packed)), reading=read_checkpoint(packed)) as loader:
        loader.start()
        loader.wait_stage(2)
        assert loader.num_stages == 2
        assert loader.stage(2).layers[1] is loader.model.layers[1]


def test_bandwidth_counts_stored_bytes(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = pack_planes(original, tmp_path / "pack", 7)
    costs: list[int] = []
    monkeypatch.setattr("quire.loading.reading.reader.Pace.begin", lambda self, size: costs.append(size) or 0.0)
    loaded(packed)
    stored = sum((packed / group.file).stat().st_size for group in read_stage_manifest(packed).groups)
    assert 0.8 * stored < sum(costs) <= stored


def test_a_remote_pack_is_read_by_ranges(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    monkeypatch.setattr(plane_files, "CHUNK_BYTES", 50_000)  # each chunk's connection loads the root certificates
    pack_planes(original, tmp_path / "root" / "pack", 1)
    with serve_directory(tmp_path / "root") as server:
        source = resolve_model(f"{server.url}/pack")
        assert source.path is not None
        assert hash_checkpoint(source.path) == hash_checkpoint(original)
        with LayerLoader(source, reading=read_checkpoint(source.path)) as loader:
            loader.start()
            loader.wait_stage(1)


# -- damage ------------------------------------------------------------------------------------------------------------

FIRST, SECOND = "planes-00001-of-00002.safetensors", "planes-00002-of-00002.safetensors"


@pytest.fixture
def packed(original: Path, tmp_path: Path) -> Path:
    return pack_planes(original, tmp_path / "pack", 1)


def _edit_index(directory: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the index of planes, and the checksum in the manifest with it."""
    values = json.loads((directory / PLANES_FILE).read_text())
    change(values)
    content = json.dumps(values).encode()
    (directory / PLANES_FILE).write_bytes(content)
    manifest = json.loads((directory / STAGES_FILE).read_text())
    next(each for each in manifest["files"] if each["name"] == PLANES_FILE).update(
        xxh3=xxhash.xxh3_128_hexdigest(content), num_bytes=len(content)
    )
    (directory / STAGES_FILE).write_text(json.dumps(manifest))


def _change(directory: Path, name: str, at: float) -> None:
    content = bytearray((directory / name).read_bytes())
    content[int(at * (len(content) - 1))] ^= 4
    (directory / name).write_bytes(content)


def _exchange_planes(directory: Path) -> None:
    """Exchange the planes of two projections of one shape."""
    for file in (directory / FIRST, directory / SECOND):
        tensors = load_file(file)
        a, b = (f"model.layers.{i}.mlp.up_proj.weight" for i in (0, 1))
        size = min(len(tensors[a]), len(tensors[b]))
        a_, b_ = tensors[a][:size].clone(), tensors[b][:size].clone()
        tensors[a][:size], tensors[b][:size] = b_, a_
        start = file.read_bytes()
        length = 8 + int.from_bytes(start[:8], "little")
        header = json.loads(start[8:length])
        content = bytearray(start)
        for name in (a, b):
            first, last = header[name]["data_offsets"]
            content[length + first : length + last] = tensors[name].numpy().tobytes()
        file.write_bytes(content)


def _bomb(directory: Path) -> None:
    """Replace a frame by one that states and expands to a hundred times more, with valid checksums."""
    name = "model.layers.0.mlp.up_proj.weight"
    content = bytearray((directory / FIRST).read_bytes())
    length = 8 + int.from_bytes(content[:8], "little")
    start = length + json.loads(content[8:length])[name]["data_offsets"][0]
    frame = zstandard.ZstdCompressor().compress(bytes(10**8))

    def change(values: dict[str, Any]) -> None:
        chunk = values["tensors"][name]["chunks"][0]
        size, chunk[0] = chunk[1], min(chunk[0], len(frame))
        content[start : start + chunk[0]] = frame[: chunk[0]]
        chunk[2] = xxhash.xxh3_64_hexdigest(bytes(content[start : start + size]))

    _edit_index(directory, change)
    (directory / FIRST).write_bytes(content)


def _tensor(name: str, key: str, to: Any) -> Callable[[Path], None]:
    return lambda directory: _edit_index(directory, lambda values: values["tensors"][name].update({key: to}))


UP = "model.layers.0.mlp.up_proj.weight"


def _claim_a_giant(values: dict[str, Any]) -> None:
    """Let a tensor have 8 TB in the original, in chunks of one byte."""
    ((name, text),) = values["files"].items()
    header, end = json.loads(text[8:]), 0
    header.pop("__metadata__", None)
    header[UP].update(dtype="U8", shape=[2**43], data_offsets=[header[UP]["data_offsets"][0]] * 2)
    for each in sorted(header.values(), key=lambda each: each["data_offsets"]):
        size = each["data_offsets"][1] - each["data_offsets"][0] or 2**43
        each["data_offsets"], end = [end, end + size], end + size
    written = json.dumps(header).encode()
    values["files"][name] = (len(written).to_bytes(8, "little") + written).decode("latin-1")
    values["tensors"][UP].update(chunk_bytes=1, top_bits=0)


BROKEN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a changed byte in the first file": (lambda pack: _change(pack, FIRST, 0.7), f"{FIRST} is damaged: its checksum"),
    "a changed byte in a vector": (lambda pack: _change(pack, FIRST, 1.0), f"{FIRST} is damaged: its checksum"),
    "a changed byte in the rest": (lambda pack: _change(pack, SECOND, 0.7), f"{SECOND} is damaged: its checksum"),
    "a changed index": (lambda pack: _change(pack, PLANES_FILE, 0.5), f"{PLANES_FILE} is damaged"),
    "planes of another tensor": (_exchange_planes, "is damaged: its checksum"),
    "a truncated file": (lambda pack: (pack / SECOND).write_bytes(b"short"), f"{SECOND} has 5 bytes"),
    "no rest": (lambda pack: (pack / SECOND).unlink(), f"{SECOND} is missing"),
    "a frame that expands": (_bomb, "exponents have another size"),
    "fewer chunks": (lambda pack: _edit_index(pack, lambda v: v["tensors"][UP]["chunks"].pop()), PLANES_FILE),
    "another chunk size": (_tensor(UP, "chunk_bytes", 2**40), PLANES_FILE),
    "tiny chunks of a giant tensor": (lambda pack: _edit_index(pack, _claim_a_giant), PLANES_FILE),
    "no chunk size": (_tensor(UP, "chunk_bytes", 0), PLANES_FILE),
    "more bits": (_tensor(UP, "top_bits", 3), PLANES_FILE),
    "no number of bits": (_tensor(UP, "top_bits", "3"), PLANES_FILE),
    "no tensor": (lambda pack: _edit_index(pack, lambda v: v["tensors"].pop(UP)), PLANES_FILE),
    "a path as a name": (
        lambda pack: _edit_index(pack, lambda v: v["files"].update({"../x": v["files"].popitem()[1]})),
        PLANES_FILE,
    ),
    "a header of another shape": (
        lambda pack: _edit_index(
            pack, lambda v: v["files"].update({k: h.replace("[96,64]", "[64,96]") for k, h in v["files"].items()})
        ),
        PLANES_FILE,
    ),
    "nothing of use": (lambda pack: _edit_index(pack, lambda v: v.update(files=7)), PLANES_FILE),
}


@pytest.mark.parametrize("what", BROKEN)
def test_damage_is_an_error_before_anything_is_served(what: str, packed: Path, tmp_path: Path) -> None:
    damage, words = BROKEN[what]
    damage(packed)
    with pytest.raises(ModelLoadError, match=words):
        _load_stages(packed)
    assert verify(packed)
    with pytest.raises(ModelLoadError):
        unpack(packed, tmp_path / "unpacked")
    assert not (tmp_path / "unpacked").exists()


def test_weights_of_another_digest_are_noticed(packed: Path, tmp_path: Path) -> None:
    manifest = json.loads((packed / STAGES_FILE).read_text())
    manifest["weights"] = "sha256:" + "0" * 64
    (packed / STAGES_FILE).write_text(json.dumps(manifest))
    assert "sha256:000" in verify(packed)[0]
    with pytest.raises(ModelLoadError, match="other weights"):
        unpack(packed, tmp_path / "unpacked")


def test_float16_has_no_stages_by_precision(tmp_path: Path) -> None:
    original = make(tmp_path / "model", dtype=torch.float16)
    with pytest.raises(ValueError, match="--mantissa-bits 7"):
        pack_planes(original, tmp_path / "pack", 1)


def test_infinity_in_a_pack_is_refused_as_in_plain_files(tmp_path: Path) -> None:
    original = make(tmp_path / "model")
    tensors = load_file(original / "model.safetensors")
    tensors[UP][3, 5] = float("inf")
    save_file(tensors, original / "model.safetensors", metadata={"format": "pt"})
    packed = pack_planes(original, tmp_path / "pack", 1)
    unpack(packed, tmp_path / "unpacked")
    assert (tmp_path / "unpacked/model.safetensors").read_bytes() == (original / "model.safetensors").read_bytes()
    with pytest.raises(ModelLoadError, match=f"{UP} .* NaN or infinite"):
        loaded(packed)


def test_the_commands_pack_show_and_unpack(original: Path, tmp_path: Path) -> None:
    def quire(*arguments: object) -> Any:
        return CliRunner().invoke(app, ["stages", *map(str, arguments)])

    packed, archive = tmp_path / "pack", tmp_path / "archive"
    assert "2 stages" in quire("pack", "--model", original, "--out", packed, "--no-progress").output
    assert read_stage_manifest(packed).mantissa_bits == 1
    assert "1 stages" in quire("pack", "--model", original, "--stages", 1, "--out", archive, "--no-progress").output
    wrong = quire("pack", "--model", original, "--stages", 1, "--mantissa-bits", 3, "--out", tmp_path / "x")
    assert "--mantissa-bits 3 makes 2 stages" in wrong.stderr
    shown = quire("show", packed).output
    assert shown.count("0-2") == 4
    assert quire("verify", packed, "--no-progress").exit_code == 0
    assert quire("unpack", packed, "--out", tmp_path / "unpacked", "--no-progress").exit_code == 0
    assert hash_checkpoint(tmp_path / "unpacked") == hash_checkpoint(original)
    plain = tmp_path / "plain"
    pack(str(original), StagePlan(3, ((0, 2), (1,))), plain, use_tqdm=False)
    assert "quire save" in quire("unpack", plain, "--out", tmp_path / "no").stderr


# -- stages by precision -----------------------------------------------------------------------------------------------


def _truncate(directory: Path, bits: int, by_layer: Sequence[int] = ()) -> None:
    """Truncate the mantissas of a checkpoint's matrices as stage 1 does."""
    tensors = load_file(directory / "model.safetensors")
    for name, tensor in tensors.items():
        layer = re.search(r"\b(?:layers|h)\.(\d)\.", name)
        kept = by_layer[int(layer[1])] if layer and by_layer else bits
        if len(tensor.shape) > 1 and not name.endswith(("bias", "router.weight", ".gate.weight")) and kept < 7:
            tensors[name] = PlainWeight(tensor).truncated(kept).rows(torch.arange(len(tensor)))
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


@torch.inference_mode()
def logits(model: CausalLM) -> torch.Tensor:
    latent = model.config.latent

    def attend(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor | None, *_: Any) -> torch.Tensor:
        if v is None:
            assert latent is not None
            v = k[..., : latent.rank]
        return v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)

    return logits_of_tokens(model, torch.tensor([5, 6, 7]), torch.arange(3), attend)


KINDS = [
    ("llama", "BF16"), ("llama-tied", "F32"), ("gpt2", "BF16"), ("mixtral", "F32"), ("gpt-oss-window", "BF16"),
    ("deepseek2", "F32"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("model", "level", "way"),
    quick(
        [
            (KINDS[0], "", "depth"),
            (KINDS[1], "none", "whole"),
            (KINDS[2], "none", "depth"),
            (KINDS[3], "", "whole"),
            (KINDS[4], "", "depth"),
            (KINDS[5], "", "whole"),
        ],
        product(KINDS, ["", "none"], ["whole", "depth"]),
    ),
)
def test_the_first_stage_lacks_bits_and_the_last_is_the_original(
    model: tuple[str, str], level: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (name, dtype), groups = model, WHOLE if way == "whole" else ((0, 2), (1,))
    monkeypatch.setenv("QUIRE_KERNELS", level)
    original, truncated = make(tmp_path / "model", name, DTYPES[dtype]), make(tmp_path / "m", name, DTYPES[dtype])
    _truncate(truncated, 2)
    packed = pack_planes(original, tmp_path / "pack", 2, groups)
    with LayerLoader(resolve_model(str(packed)), reading=read_checkpoint(packed)) as loader:
        loader.start()
        loader.wait_stage(loader.last_stage)
        first, last = loader.stage(len(groups)), loader.stage(loader.last_stage)
        assert (first.is_truncated, last.is_truncated, loader.last_stage) == (True, False, len(groups) + 1)
        whole, less = (logits(load(each, ALONE, dtype="auto")) for each in (original, truncated))
        assert not torch.equal(whole, less)
        for stage, expected in ((first, less), (last, whole), (first, less), (last, whole)):
            loader.model.switch_to(stage)
            assert torch.equal(logits(loader.model), expected)
        progress = loader.progress()
        assert progress.bytes_loaded == progress.bytes_total


@pytest.mark.parametrize(
    ("name", "dtype", "bits", "by_layer"), [("llama-tied", "F32", 1, (7, 0, 2)), ("gpt2", "BF16", 7, (7, 3, 7))]
)
def test_layers_may_have_bits_of_their_own(
    name: str, dtype: str, bits: int, by_layer: tuple[int, ...], tmp_path: Path
) -> None:
    original, truncated = make(tmp_path / "model", name, DTYPES[dtype]), make(tmp_path / "m", name, DTYPES[dtype])
    _truncate(truncated, bits, by_layer)
    packed = tmp_path / "pack"
    pack(str(original), StagePlan(3, WHOLE, bits, by_layer), packed, use_tqdm=False)
    assert read_stage_manifest(packed).bits_of(1) == (bits, *by_layer)
    assert not verify(packed)
    with LayerLoader(resolve_model(str(packed)), reading=read_checkpoint(packed)) as loader:
        loader.start()
        loader.wait_stage(2)
        for stage, expected in ((1, truncated), (2, original), (1, truncated)):
            loader.model.switch_to(loader.stage(stage))
            assert torch.equal(logits(loader.model), logits(load(expected, ALONE, dtype="auto")))
    unpack(packed, tmp_path / "unpacked")
    assert hash_checkpoint(tmp_path / "unpacked") == hash_checkpoint(original)


@pytest.mark.parametrize("name", quick(["gpt-oss-window"], ["llama", "gpt-oss-window", "deepseek2"]))
def test_ranks_get_their_parts_of_each_stage(name: str, tmp_path: Path) -> None:
    packed = pack_planes(make(tmp_path / "model", name, torch.float32), tmp_path / "pack", 1)

    def run(group: Any) -> list[torch.Tensor]:
        with LayerLoader(resolve_model(str(packed)), reading=read_checkpoint(packed), group=group) as loader:
            loader.start()
            loader.wait_stage(2)
            found = []
            for number in (1, 2):
                loader.model.switch_to(loader.stage(number))
                found.append(logits(loader.model))
            return found

    expected = run(ALONE)
    assert not torch.allclose(*expected, atol=1e-2)
    for found in on_ranks(2, run):
        for a, b in zip(found, expected, strict=True):
            assert torch.allclose(a, b, atol=1e-4)


@pytest.mark.parametrize(
    "options", [{"dtype": "float32"}, pytest.param({"quantization": "int8"}, marks=needs_kernels)], ids=str
)
def test_weights_that_change_have_one_stage(options: dict[str, str], original: Path, tmp_path: Path) -> None:
    packed = pack_planes(original, tmp_path / "pack", 1)
    with LayerLoader(resolve_model(str(packed)), reading=read_checkpoint(packed), **options) as loader:
        loader.start()
        loader.wait_stage(1)
        assert loader.num_stages == 1
        assert torch.equal(logits(loader.model), logits(load(original, ALONE, **({"dtype": "auto"} | options))))


def test_a_damaged_rest_keeps_the_first_stage(packed: Path, caplog: pytest.LogCaptureFixture) -> None:
    sound = (packed / SECOND).read_bytes()
    _change(packed, SECOND, 0.8)
    with LayerLoader(resolve_model(str(packed)), reading=read_checkpoint(packed), retries=True) as loader:
        loader.start()
        loader.wait_stage(1)
        while not loader.progress().error:
            time.sleep(0.01)
        assert loader.stage_ready == 1
        loader.model.switch_to(loader.stage(1))
        before = logits(loader.model)
        assert SECOND in caplog.text
        (packed / SECOND).write_bytes(sound)
        loader.wait_stage(2)
        assert torch.equal(logits(loader.model), before)
