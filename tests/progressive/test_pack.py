"""A pack loads as the original where stages are unknown, and broken packs are reported file by file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file
from typer.testing import CliRunner

from checkpoints import make_checkpoint, make_multimodal
from command_line import app
from quire.loading import ModelLoadError, known_digest, load_model, resolve_model
from quire.loading.digest import hash_checkpoint
from quire.loading.save import save_model
from quire.loading.stage_manifest import STAGES_FILE, check_against, check_files, read_stage_manifest
from quire.progressive.packs.pack import pack
from quire.progressive.packs.verify import verify
from quire.progressive.stage_plan import StagePlan

PLAN = StagePlan(3, ((0, 2), (1,)))
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
ADAPTER = "adapters/1/adapter_model.safetensors"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def tensors_of(directory: Path) -> dict[str, torch.Tensor]:
    return dict(transformers.AutoModelForCausalLM.from_pretrained(directory).state_dict())


def names_in(file: Path) -> list[str]:
    with safe_open(file, framework="pt") as handle:
        return list(handle.offset_keys())


def make_adapter(directory: Path, layer: int = 0, rank: int = 2, **config: Any) -> Path:
    """Make a LoRA of one projection of the tiny Llama."""
    directory.mkdir(parents=True, exist_ok=True)
    module = f"base_model.model.model.layers.{layer}.self_attn.v_proj"  # [32, 64]
    halves = {f"{module}.lora_A.weight": torch.ones(rank, 64), f"{module}.lora_B.weight": torch.ones(32, rank)}
    save_file(halves, directory / "adapter_model.safetensors")
    facts = {"peft_type": "LORA", "r": rank, "lora_alpha": 4, "target_modules": ["v_proj"], **config}
    (directory / "adapter_config.json").write_text(json.dumps(facts))
    return directory


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint("llama", tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def good(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack with an adapter."""
    place = tmp_path_factory.mktemp("packs")
    pack(str(llama), PLAN, place / "pack", adapters={1: make_adapter(place / "adapter")}, use_tqdm=False)
    return place / "pack"


@pytest.fixture
def broken(good: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(good, tmp_path / "pack"))


@pytest.mark.parametrize("name", ["llama-tied", "qwen2", "gpt2", "opt", "opt-350m"])
def test_a_pack_is_the_original_with_a_file_a_group_in_the_order_of_use(name: str, tmp_path: Path) -> None:
    original = make_checkpoint(name, tmp_path / "model")
    manifest = pack(str(original), PLAN, tmp_path / "pack", use_tqdm=False)
    expected, found = tensors_of(original), tensors_of(tmp_path / "pack")
    assert expected.keys() == found.keys()
    assert all(torch.equal(tensor, found[key]) for key, tensor in expected.items())
    digest = hash_checkpoint(original)
    assert manifest.weights == digest == hash_checkpoint(tmp_path / "pack")
    assert read_stage_manifest(tmp_path / "pack") == manifest

    first, second = names_in(tmp_path / "pack" / FIRST), names_in(tmp_path / "pack" / SECOND)
    assert all(".1." in each for each in second), "the second group is its layer"
    assert not any(".1." in each for each in first)
    layers = [index for index, each in enumerate(first) if ".0." in each or ".2." in each]
    before, after = first[: layers[0]], first[layers[-1] + 1 :]
    assert len(layers) == layers[-1] + 1 - layers[0]
    assert ".0." in first[layers[0]]
    assert ".2." in first[layers[-1]]
    assert all("embed" in each or "wte" in each or "wpe" in each or "project_in" in each for each in before)
    assert before
    assert not any("embed" in each or "wte" in each for each in after)

    unpacked = tmp_path / "unpacked"
    save_model(resolve_model(str(tmp_path / "pack")), unpacked, use_tqdm=False)
    assert hash_checkpoint(unpacked) == digest


def test_stages_of_a_multimodal_model_add_layers_of_its_text_part(tmp_path: Path) -> None:
    model = make_multimodal(make_checkpoint("gemma3", tmp_path / "text"), tmp_path / "model")
    pack(str(model), PLAN, tmp_path / "pack", use_tqdm=False)
    *layer, picture = names_in(tmp_path / "pack" / SECOND)
    assert "vision" in picture
    assert all("language_model.layers.1." in name for name in layer)
    assert not any(".layers.1." in name or "vision" in name for name in names_in(tmp_path / "pack" / FIRST))
    assert verify(tmp_path / "pack") == []
    load_model(resolve_model(str(tmp_path / "pack")), use_tqdm=False)


def test_a_pack_with_adapters_is_whole_and_its_digest_is_known_without_reading(
    good: Path, llama: Path, broken: Path
) -> None:
    assert verify(good) == []
    manifest = read_stage_manifest(good)
    check_files(manifest)
    assert [stage.adapter for stage in manifest.stages] == ["adapters/1", None]
    assert {str(file.relative_to(good)) for file in good.rglob("*") if file.is_file()} == {*manifest.files, STAGES_FILE}
    assert known_digest.known_digest(good, known_digest.stat_weights(good)) == hash_checkpoint(llama)
    _flip(broken / FIRST)
    assert known_digest.known_digest(broken, known_digest.stat_weights(broken)) is None
    with pytest.raises(ModelLoadError, match="quire stages verify"):
        known_digest.checkpoint_digest(broken, is_strict=True)


def test_odd_buffers_leave_every_tensor_aligned(tmp_path: Path) -> None:
    """GPT-2's old checkpoints store the causal mask and a masking constant."""
    original = make_checkpoint("gpt2", tmp_path / "model")
    with safe_open(original / "model.safetensors", framework="pt") as handle:
        tensors = {name: handle.get_tensor(name) for name in handle.offset_keys()}
    for layer in range(3):
        tensors[f"transformer.h.{layer}.attn.bias"] = torch.ones(1, 1, 3, 3, dtype=torch.uint8)
        tensors[f"transformer.h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(tensors, original / "model.safetensors", metadata={"format": "pt"})
    pack(str(original), PLAN, tmp_path / "pack", use_tqdm=False)
    assert hash_checkpoint(tmp_path / "pack") == hash_checkpoint(original)
    for file in (FIRST, SECOND):
        with safe_open(tmp_path / "pack" / file, framework="pt") as handle:
            assert all(torch.equal(handle.get_tensor(name), tensors[name]) for name in handle.offset_keys())


# -- broken packs ------------------------------------------------------------------------------------------------------


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def _flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def _edit(directory: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    values = json.loads((directory / STAGES_FILE).read_text())
    change(values)
    (directory / STAGES_FILE).write_text(json.dumps(values))


def _exchange_groups(values: dict[str, Any]) -> None:
    first, second = values["groups"]
    first["file"], second["file"] = second["file"], first["file"]


BROKEN: dict[str, tuple[Callable[[Path], Any], list[str]]] = {
    "a group is missing": (lambda pack: (pack / SECOND).unlink(), [SECOND, "missing"]),
    "a truncated file": (lambda pack: _truncate(pack / SECOND), [SECOND, "truncated"]),
    "a byte is another": (lambda pack: _flip(pack / FIRST), [FIRST, "SHA-256"]),
    "an adapter is another": (lambda pack: make_adapter(pack / "adapters/1", rank=3), ["adapters/1", "bytes"]),
    "the weights are of another model": (
        lambda pack: _edit(pack, lambda values: values.update(weights="sha256:" + "0" * 64)),
        [STAGES_FILE, "sha256:000"],
    ),
    "the groups are exchanged": (lambda pack: _edit(pack, _exchange_groups), [FIRST, SECOND, "belongs to"]),
}


@pytest.mark.parametrize("what", BROKEN)
def test_verify_names_the_file_that_is_broken(what: str, broken: Path) -> None:
    damage, words = BROKEN[what]
    damage(broken)
    problems = verify(broken)
    assert problems
    assert all(word in problems[0] for word in words)


def test_a_missing_or_shorter_file_is_noticed_before_anything_is_read(broken: Path) -> None:
    manifest = read_stage_manifest(broken)
    (broken / SECOND).write_bytes(b"short")
    with pytest.raises(ModelLoadError, match=rf"{SECOND} has 5 bytes"):
        check_files(manifest)
    (broken / ADAPTER).unlink()
    (broken / SECOND).unlink()
    with pytest.raises(ModelLoadError, match=rf"{SECOND} is missing"):
        check_files(manifest)


def _set(*path: str | int, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(values: Any) -> None:
        for key in path[:-1]:
            values = values[key]
        values[path[-1]] = to

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("quire_stages", to=2),
        _set("unit", to="precision"),
        _set("num_layers", to=4),
        _set("num_layers", to=10**18),
        _set("num_layers", to="3"),
        _set("num_layers", to=True),
        _set("layer_bits", to=[1, 1, 1]),
        _set("groups", to=[]),
        _set("groups", 1, "layers", to=[0]),
        _set("groups", 1, "layers", to=[]),
        _set("groups", 1, "file", to=FIRST),
        _set("groups", 1, "file", to="../model.safetensors"),
        _set("groups", 1, "file", to="/model.safetensors"),
        _set("groups", 1, "file", to="other.safetensors"),
        _set("stages", 0, "layers", to=[0, 1]),
        _set("stages", 0, "number", to=2),
        _set("stages", 0, "adapter", to="adapters/../../1"),
        _set("stages", 0, "adapter_digest", to="x"),
        _set("stages", 1, "adapter", to="adapters/1"),
        _set("files", 0, "name", to="..\\config.json"),
        _set("files", 0, "num_bytes", to=-1),
        lambda values: [file.update(num_bytes=0) for file in values["files"]],
        _set("files", 0, "sha256", to="0" * 63),
        _set("files", 0, to=None),
        _set("dtype", to="int8"),
        _set("weights", to="md5:0"),
        lambda values: values.pop("files"),
        lambda values: values["files"].append(values["files"][0]),
        lambda values: values["stages"].pop(),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(change: Callable[[dict[str, Any]], Any], broken: Path) -> None:
    _edit(broken, change)
    with pytest.raises(ModelLoadError, match=STAGES_FILE):
        read_stage_manifest(broken)


def test_a_manifest_of_another_model_is_refused(good: Path, tmp_path: Path) -> None:
    other = make_checkpoint("llama", tmp_path / "model", num_hidden_layers=2)
    with pytest.raises(ModelLoadError, match=r"3 layers.* with 2: they belong to different models"):
        check_against(read_stage_manifest(good), resolve_model(str(other)).config)


def test_no_stage_lacks_a_layer_whose_kv_others_read(tmp_path: Path) -> None:
    gemma4 = make_checkpoint("gemma4-shared", tmp_path / "model")
    plan = StagePlan(4, ((0, 2, 3), (1,)))
    with pytest.raises(ValueError, match="stage 1 lacks layer 1, whose KV layer 3 reads"):
        pack(str(gemma4), plan, tmp_path / "pack", use_tqdm=False)
    pack(str(gemma4), StagePlan(4, ((0, 1, 2), (3,))), tmp_path / "pack", use_tqdm=False)


# -- what cannot be packed ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("adapter", "words"),
    [
        ({"r": 4}, r"adapter_model.safetensors is of rank 2 .* adapter_config.json says 4"),
        ({"layer": 1}, r"adapter_model.safetensors is for layer 1, which is not in place"),
        ({"layer": 7}, r"adapter_model.safetensors is for .*no such linear layer"),
        ({"use_dora": True}, r"adapter_config.json: .*use_dora=True"),
    ],
)
def test_an_adapter_that_its_stage_cannot_use_is_not_packed(
    adapter: dict[str, Any], words: str, llama: Path, tmp_path: Path
) -> None:
    directory = make_adapter(tmp_path / "adapter", **adapter)
    with pytest.raises(ValueError, match=words):
        pack(str(llama), PLAN, tmp_path / "out" / "pack", adapters={1: directory}, use_tqdm=False)
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_packed_leaves_nothing_behind(
    llama: Path, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out" / "pack"
    for model, plan, adapters, words in (
        ("random:tiny", StagePlan(4, ((0, 1, 3), (2,))), {}, "quire save"),
        (str(llama), StagePlan(4, ((0, 1, 3), (2,))), {}, "4 layers, and .* has 3"),
        (str(llama), PLAN, {2: good / "adapters/1"}, "the last of 2 is the original"),
    ):
        with pytest.raises(ValueError, match=words):
            pack(model, plan, out, adapters=adapters, use_tqdm=False)
    with pytest.raises(ValueError, match="is there already"):
        pack(str(llama), PLAN, llama, use_tqdm=False)

    def is_full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("quire.progressive.packs.pack.write_stage_manifest", is_full)
    with pytest.raises(ValueError, match="could not be written: No space left"):
        pack(str(llama), PLAN, out, use_tqdm=False)
    assert not any((tmp_path / "out").iterdir())


def test_the_commands_pack_show_and_verify(llama: Path, broken: Path, tmp_path: Path) -> None:
    def quire(*arguments: object) -> Any:
        return CliRunner().invoke(app, ["stages", *map(str, arguments)])

    plan, out = tmp_path / "plan.json", tmp_path / "made"
    plan.write_text(json.dumps({**PLAN.to_dict(), "method": "by hand"}))
    adapter = f"1={broken / 'adapters/1'}"
    made = quire("pack", "--model", llama, "--plan", plan, "--out", out, "--adapter", adapter, "--no-progress")
    assert made.exit_code == 0, made.output
    assert read_stage_manifest(out).plan["method"] == "by hand"
    shown = quire("show", out).output
    assert "0, 2" in shown
    assert "0-2" in shown
    assert "adapters/1" in shown
    assert quire("verify", out, "--no-progress").exit_code == 0
    _flip(broken / FIRST)
    wrong = quire("verify", broken, "--no-progress")
    assert wrong.exit_code == 1
    assert str(broken / FIRST) in wrong.stderr


def test_saving_copies_no_file_from_outside_of_the_pack(llama: Path, tmp_path: Path) -> None:
    pack(str(llama), PLAN, tmp_path / "pack", use_tqdm=False)
    (tmp_path / "secret.json").write_text("{}")
    (tmp_path / "pack/tokenizer.json").symlink_to(tmp_path / "secret.json")
    with pytest.raises(ModelLoadError, match="outside of the model's directory"):
        save_model(resolve_model(str(tmp_path / "pack")), tmp_path / "out", use_tqdm=False)
