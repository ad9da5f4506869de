"""Broken and hostile files of a checkpoint end in one error that names the file or field."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkpoints import make_checkpoint
from quire.loading import ModelLoadError, load_model, resolve_model
from quire.loading.checkpoint import read_headers
from quire.text.tokenizer import Tokenizer

FILES = ("config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json", "index", "header")
INDEX = "model.safetensors.index.json"
ODD = st.one_of(
    st.sampled_from([-1, 0, 2**31, 10**7, 2 * 10**9, 10**30, 1e306, float("nan"), float("inf"), True, None, "", "x"]),
    st.sampled_from([[], {}, [[]], {"x": {}}, "../x", "/etc/passwd", [None], {"type": "x"}, "\x00", "a" * 300]),
    st.integers(),
    st.floats(),
)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = make_checkpoint("llama", tmp_path_factory.mktemp("honest"))
    Tokenizer.byte_level(300).save(directory)
    config = json.loads((directory / "config.json").read_text())
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": [1], "temperature": 0.5}))
    config["rope_scaling"] = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64}
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def edit(directory: Path, **changes: Any) -> Path:
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return directory


def copy(honest: Path, to: Path) -> Path:
    return Path(shutil.copytree(honest, to / "model"))


def load(directory: Path) -> None:
    source = resolve_model(str(directory))
    _ = source.eos_token_ids
    load_model(source, use_tqdm=False)
    Tokenizer.from_dir(directory).encode("Hello")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 10**7}, "num_hidden_layers is 10000000; at most 10000"),
        ({"num_hidden_layers": 9000}, "describes 9000 layers"),
        ({"head_dim": 2 * 10**9}, "head_dim is 2000000000"),
        ({"intermediate_size": 2 * 10**9}, "parameters in all; the files have"),
        ({"vocab_size": 10**30}, "vocab_size is 10+; expected a positive integer below"),
        (
            {"rope_parameters": {"rope_type": "linear", "factor": 1e306}},
            "factor is 1e[+]306; expected a positive number",
        ),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
        ({"hidden_size": -1}, "hidden_size is -1"),
        ({"num_attention_heads": True}, "num_attention_heads is True"),
        ({"dtype": {"a": 1}, "torch_dtype": ["x"]}, r"dtype as \{'a': 1\}, which is not supported"),
        ({"architectures": [[]]}, r"\[\] is not supported; Quire serves"),
    ],
)
def test_an_absurd_field_is_named_before_anything_is_allocated(
    changes: dict[str, Any], message: str, honest: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        load(edit(copy(honest, tmp_path), **changes))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("shape", "name"),
    [([1] * 200_000, None), ([10**4000] * 300, None), ([-1, -1], None), ([2**40, 2**40], None), (None, "x" * 10**6)],
    ids=["many dimensions", "long numbers", "negative", "too large", "a long name"],
)
def test_an_absurd_header_is_refused_in_one_short_sentence(
    shape: list[int] | None, name: str | None, honest: Path, tmp_path: Path
) -> None:
    directory = copy(honest, tmp_path)
    file = directory / "model.safetensors"
    data = file.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    key = "model.norm.weight"
    header[name or key] = {**header.pop(key), **({} if shape is None else {"shape": shape})}
    changed = json.dumps(header).encode()
    file.write_bytes(len(changed).to_bytes(8, "little") + changed + data[end:])
    with pytest.raises(ModelLoadError, match=r"model\.norm\.weight") as raised:
        load(directory)
    assert len(str(raised.value)) < 1000


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"])
def test_a_file_of_the_tokenizer_that_is_too_large_is_refused_unread(name: str, honest: Path, tmp_path: Path) -> None:
    directory = copy(honest, tmp_path)
    (directory / name).touch()
    os.truncate(directory / name, 10**11)
    with pytest.raises(ValueError, match=rf"{name} has 100000000000 bytes, more than 100000000"):
        Tokenizer.from_dir(directory)


def test_many_added_tokens_are_refused(honest: Path, tmp_path: Path) -> None:
    directory = copy(honest, tmp_path)
    (directory / "added_tokens.json").write_text(json.dumps({f"<{i}>": 300 + i for i in range(20_001)}))
    with pytest.raises(ValueError, match="adds 20001 tokens to its tokenizer, more than 20000"):
        Tokenizer.from_dir(directory)


def test_files_that_are_pipes_are_not_waited_for(honest: Path, tmp_path: Path) -> None:
    directory = copy(honest, tmp_path)
    (directory / "additional_chat_templates").mkdir()
    for name in ("additional_chat_templates/x.jinja", "chat_template.jinja", "chat_template.json", INDEX):
        os.mkfifo(directory / name)
    load(directory)


def test_a_header_that_takes_minutes_to_read_is_refused(honest: Path, tmp_path: Path) -> None:
    directory = copy(honest, tmp_path)
    file = directory / "model.safetensors"
    file.write_bytes((26 * 10**6).to_bytes(8, "little"))
    os.truncate(file, 10**8)
    with pytest.raises(ModelLoadError, match="longer than 25000000 bytes"):
        load(directory)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer_config.json", INDEX])
def test_a_deeply_nested_file_is_named(name: str, honest: Path, tmp_path: Path) -> None:
    directory = copy(honest, tmp_path)
    (directory / name).write_text('{"a":' * 10**5 + "1" + "}" * 10**5)
    with pytest.raises(ValueError, match=name):
        load(directory)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_change_of_a_file_loads_or_is_refused(data: st.DataObject, honest: Path, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "model", ignore_errors=True)
    directory = copy(honest, tmp_path)
    kind = data.draw(st.sampled_from(FILES))
    if kind == "header":
        blob = bytearray((directory / "model.safetensors").read_bytes())
        length = int.from_bytes(blob[:8], "little")
        header = change(data, json.loads(blob[8 : 8 + length]))
        text = json.dumps(header).encode()
        (directory / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + blob[8 + length :])
    elif kind == "index":
        names = dict.fromkeys(read_headers(directory), "model.safetensors")
        (directory / INDEX).write_text(json.dumps(change(data, {"weight_map": names})))
    else:
        (directory / kind).write_text(json.dumps(change(data, json.loads((directory / kind).read_text()))))
    with suppress(ValueError):
        load(directory)


def change(data: st.DataObject, value: Any) -> Any:
    """Replace one value somewhere in a JSON value."""
    if isinstance(value, dict | list) and value and data.draw(st.integers(0, 9)):
        keys = list(value) if isinstance(value, dict) else range(len(value))
        key = data.draw(st.sampled_from(keys))
        value[key] = change(data, value[key])
        return value
    return data.draw(ODD)


# -- paths -----------------------------------------------------------------------------------------------------------


def secret(tmp_path: Path, honest: Path) -> Path:
    return Path(shutil.copy(honest / "model.safetensors", tmp_path / "secret.safetensors"))


@pytest.mark.parametrize("is_absolute", [False, True])
def test_an_index_that_names_a_file_elsewhere_is_refused(is_absolute: bool, honest: Path, tmp_path: Path) -> None:
    directory, file = copy(honest, tmp_path), secret(tmp_path, honest)
    names = dict.fromkeys(read_headers(directory), str(file) if is_absolute else "../secret.safetensors")
    (directory / INDEX).write_text(json.dumps({"weight_map": names}))
    with pytest.raises(ModelLoadError, match="outside of the model's directory"):
        load(directory)


def test_a_template_that_links_out_of_the_directory_is_refused_and_weights_may(honest: Path, tmp_path: Path) -> None:
    directory = copy(honest, tmp_path)
    (directory / "model.safetensors").unlink()
    os.symlink(secret(tmp_path, honest), directory / "model.safetensors")
    load(directory)
    (tmp_path / "password").write_text("secret")
    (directory / "chat_template.jinja").unlink(missing_ok=True)
    os.symlink(tmp_path / "password", directory / "chat_template.jinja")
    with pytest.raises(ValueError, match="links to a file outside of the model's directory"):
        load(directory)


def test_links_into_the_hubs_blobs_are_followed(honest: Path, tmp_path: Path) -> None:
    snapshot, blobs = tmp_path / "models--org--tiny/snapshots/abc", tmp_path / "models--org--tiny/blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for file in honest.iterdir():
        shutil.copy(file, blobs / file.name)
        os.symlink(f"../../blobs/{file.name}", snapshot / file.name)
    load(snapshot)
