"""A config file is the command line in a file: same names, same values, and errors by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quire.config import EngineConfig
from quire.config_file import ConfigFile, read_config
from quire.server.settings import ServerSettings
from quire.settings import option_name, setting_fields

KINDS = (ServerSettings,)
EVERYTHING = """
# of the server
host: 0.0.0.0
max-queue: 200
load_wait: 5
api-key: [one, "2"]
routing: routes.yaml
engine-process: false
max-body-bytes: 4MiB
max_collection_bytes_per_key: 1000000
ssl-keyfile: null

# of every engine
block-size: 8
kv-cache-memory: 4GiB
watermark: 0
model:
  - quire-mini
  - mine=dir/of/mine
  - model: random:tiny
    name: tiny
    block_size: 4
    kv-cache-memory:
    num_kv_blocks: 64
"""


@pytest.fixture(autouse=True)
def _defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUIRE_KEEP_KV")


def write(folder: Path, text: str) -> Path:
    path = folder / "serve.yaml"
    path.write_text(text)
    return path


def read(folder: Path, text: str) -> ConfigFile:
    return read_config(write(folder, text), KINDS)


def test_options_have_the_names_and_the_values_of_the_command_line(tmp_path: Path) -> None:
    file = read(tmp_path, EVERYTHING.replace("kv-cache-memory: 4GiB\n", ""))
    assert file.make(ServerSettings) == ServerSettings(
        host="0.0.0.0", max_queue=200, load_wait_s=5, api_keys=("one", "2"), routing=Path("routes.yaml"),
        engine_process=False, max_body_bytes=4 * 2**20, max_collection_bytes_per_key=1_000_000,
    )  # fmt: skip
    assert file.make_engines() == {
        "quire-mini": EngineConfig("quire-mini", block_size=8, watermark=0),
        "mine": EngineConfig("dir/of/mine", block_size=8, watermark=0),
        "tiny": EngineConfig("random:tiny", block_size=4, watermark=0, num_kv_blocks=64),
    }


def test_every_option_may_stand_in_a_file() -> None:
    values: dict[str, Any] = {}
    for kind in (ServerSettings, EngineConfig):
        for each in setting_fields(kind):
            if isinstance(each.default, (bool, int, float, str)):
                values[option_name(each).replace("_", "-")] = each.default
    file = read_config({**values, "model": "m"}, KINDS)
    assert file.make(ServerSettings) == ServerSettings()
    assert file.make_engines() == {"m": EngineConfig("m")}


def test_the_command_line_comes_before_the_environment_and_that_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUIRE_MAX_QUEUE", "7")
    monkeypatch.setenv("QUIRE_BLOCK_SIZE", "32")
    file = read(tmp_path, "max-queue: 200\nport: 1\nblock-size: 8\nseed: 3\nmodels: [a, {model: b, block-size: 4}]")
    made = file.make(ServerSettings, port=2)
    assert (made.port, made.max_queue) == (2, 7)
    assert [(e.block_size, e.seed) for e in file.make_engines(seed=9).values()] == [(32, 9), (32, 9)]
    assert list(file.make_engines(models=["c=b"])) == ["c"]
    monkeypatch.setenv("QUIRE_MODEL", "d,e")
    assert list(file.make_engines()) == ["d", "e"]


def test_a_model_may_have_the_options_of_another_and_its_own_come_first(tmp_path: Path) -> None:
    merged = "models:\n- <<: &a {model: x, name: a, seed: 3}\n  seed: 4\n- {<<: *a, name: b}"
    engines = read(tmp_path, merged).make_engines()
    assert {name: (e.model, e.seed) for name, e in engines.items()} == {"a": ("x", 4), "b": ("x", 3)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max-queu: 3", "'max-queu' is no option; did you mean 'max-queue'?"),
        ("no-engine-process: true", "'no-engine-process' is no option; write 'engine-process: false'"),
        ("max-queue: 3\nmax_queue: 4", "has 'max_queue' and 'max-queue', which are one option"),
        ("port: 3\nport: 4", "'port' comes twice"),
        ("max-queue: many", "max-queue is 'many'; it should be a whole number"),
        ("port: true", "port is True; it should be a number"),
        ("api-key: 12345", "api-key is 12345; it should be a text"),
        ("log-format: off", "log-format is False; it should be a text, in quotes"),
        ("enable-prefix-caching: maybe", "it should be true or false"),
        ("model: [a, a]", "two models are named 'a'"),
        ("model: [{name: a}]", "'model' should say which"),
        ("model: [{model: a, max-queue: 3}]", "'max-queue' is no option of a model"),
        ("model: [{model: a, blocksize: 3}]", "did you mean 'block-size'?"),
        ("model: []", "the list of models is empty"),
        ("model: a\nmodels: [b]", "both 'model' and 'models'"),
        ("- a\n- b", "should have lines such as"),
        ("a: [", "is no YAML"),
        ("? [a]\n: 3", "a key is not a text"),
        ("port: 2001-13-45", "is no YAML: month must be in 1..12"),
    ],
)
def test_a_mistake_is_named_with_the_file_and_a_remedy(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"serve\.yaml") as caught:
        read(tmp_path, text)
    assert message in str(caught.value)


def test_a_file_that_is_not_there_or_says_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.yaml cannot be read: No such file"):
        read_config(tmp_path / "none.yaml", KINDS)
    file = read(tmp_path, "# nothing yet\n")
    assert list(file.make_engines(["a"])) == ["a"]
    with pytest.raises(ValueError, match=r"serve\.yaml names no model"):
        file.make_engines()
