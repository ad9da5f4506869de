"""`quire digest` prints what an engine over the model uses, and writes a manifest for other machines."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from command_line import app
from kernel_levels import needs_kernels
from quire.assembly import load
from quire.assembly.runner import namespace_of as namespace_of_loaded
from quire.config import EngineConfig
from quire.core.block_keys import Namespace
from quire.loading.known_digest import MANIFEST_FILE
from weights import write_model


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def digest(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["digest", *map(str, arguments)])


def namespace_of(model: str | Path, **options: object) -> Namespace:
    config = EngineConfig(str(model), device="cpu", skip_tokenizer_init=True, use_tqdm=False, **options)  # type: ignore[arg-type]
    return namespace_of_loaded(load(config), config)


def test_it_prints_the_namespace_of_an_engine_over_the_model(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    first = digest(model)
    assert first.exit_code == 0, first.output
    namespace = namespace_of(model)
    assert first.stdout.split()[:4] == ["weights", namespace.weights, "namespace", namespace.root().hex()]
    assert "(float32, blocks of 16 tokens)" in first.stdout
    assert digest(model).output == first.stdout, "nothing is hashed again"


@needs_kernels  # for int8
def test_it_follows_the_options_of_the_engine_and_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIRE_BLOCK_SIZE", "8")
    monkeypatch.setenv("QUIRE_KV_CACHE_DTYPE", "int8")
    options = ("--dtype", "bfloat16", "--quantization", "int8", "--seed", "3")
    printed = json.loads(digest("random:tiny", *options, "--json").stdout)
    namespace = namespace_of(
        "random:tiny", dtype="bfloat16", quantization="int8", seed=3, block_size=8, kv_cache_dtype="int8"
    )
    assert printed == {
        "model": "random:tiny",
        "weights": namespace.weights,
        "dtype": "bfloat16",
        "quantization": "int8",
        "block_size": 8,
        "kv_cache_dtype": "int8",
        "namespace": namespace.root().hex(),
    }


def test_it_writes_a_manifest_and_names_a_remedy_for_a_mismatch(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    printed = digest(model, "--write-manifest", "--json")
    manifest = json.loads((model / MANIFEST_FILE).read_text())
    assert manifest["weights"] == json.loads(printed.stdout)["weights"]
    write_model(model, seed=1)
    refused = digest(model)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "does not match the weights beside it" in refused.stderr
    assert digest(model, "--write-manifest").exit_code == 0
    assert manifest["weights"] not in digest(model).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/no/such/model"], "no such directory"),
        (["random:nothing"], "no preset 'random:nothing'"),
        (["random:tiny", "--dtype", "int3"], "dtype='int3'"),
        (["random:tiny", "--write-manifest"], "is a preset without files"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], message: str) -> None:
    result = digest(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr


def test_ctrl_c_ends_it_without_a_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("quire.loading.digest._hash_tensor", interrupt)
    result = digest(write_model(tmp_path / "model"))
    assert result.exit_code == 130
    assert "Traceback" not in result.output


def test_the_page_shows_what_is_printed() -> None:
    page = Path(__file__).parents[2] / "docs" / "design" / "document-kv.md"
    shown, printed = page.read_text(), f"$ quire digest quire-mini\n{digest('quire-mini').stdout}"
    assert _without_namespace(printed) in _without_namespace(shown)


def _without_namespace(text: str) -> str:
    return re.sub(r"(?<=^namespace  )\w{64}", "", text, flags=re.MULTILINE)
