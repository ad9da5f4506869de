"""Command line of `quire serve`: model names, and options of other engines."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from command_line import app
from quire.async_engine.async_engine import AsyncEngine
from quire.cli.serve.commands import _banner
from quire.cli.serve.foreign_options import IGNORED, REFUSED, RENAMED
from quire.cluster.settings import ClusterSettings
from quire.config import EngineConfig
from quire.config_file import by_name
from quire.server import lifecycle
from quire.server.registry import ModelRegistry
from quire.server.settings import ServerSettings
from quire.settings import option_name, parse_count, setting_fields

KINDS = (EngineConfig, ServerSettings, ClusterSettings)
OPTIONS = list(IGNORED.items())


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[ModelRegistry, ServerSettings]]:
    """Return the models that `quire serve` would serve."""
    calls: list[tuple[ModelRegistry, ServerSettings]] = []

    def note(_: Any, registry: ModelRegistry, settings: ServerSettings, **__: Any) -> int:
        calls.append((registry, settings))
        return 0

    monkeypatch.setattr(lifecycle, "serve", note)
    monkeypatch.setattr("quire.server.log_format.configure_logging", lambda *_: None)
    return calls


def serve(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["serve", *arguments])


# -- names -------------------------------------------------------------------------------------------------------------


def test_a_name_may_have_slashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    odd = tmp_path / "dir" / "step=100"
    odd.mkdir(parents=True)
    assert by_name([f"Qwen/Qwen3-0.6B={odd}"]) == {"Qwen/Qwen3-0.6B": str(odd)}
    assert by_name(["mine=Qwen/Qwen3-0.6B"]) == {"mine": "Qwen/Qwen3-0.6B"}
    for path in (str(odd), "dir/step=100", "./no/such=x", "/no/such=x", "../no/such=x", "~/no/such=x"):
        assert by_name([path]) == {path: path}


def test_one_model_is_served_under_several_names(served: list[tuple[ModelRegistry, ServerSettings]]) -> None:
    for names in (["a/b", "c", "--port", "0"], ["a/b", "--served-model-name", "c"]):
        assert serve("--model", "random:tiny", "--served-model-name", *names).exit_code == 0
        (model,) = served.pop()[0]
        assert (model.name, model.aliases, model.source) == ("a/b", ("c",), "random:tiny")


def test_adapters_are_served_beside_their_models(
    served: list[tuple[ModelRegistry, ServerSettings]], tmp_path: Path
) -> None:
    assert serve("random:tiny", "--lora", "a=dir-a", "--lora", "b=dir-b").exit_code == 0
    registry = served.pop()[0]
    assert registry.names == ["random:tiny", "a", "b"]
    assert [model.name for model in registry] == ["random:tiny"]
    assert (registry.get("b").parent, registry.get("b").source) == ("random:tiny", "dir-b")
    file = tmp_path / "serve.yaml"
    models = "- {name: one, model: random:tiny, lora: a=x}\n- {name: two, model: random:tiny, lora: [b=y, c=z]}"
    file.write_text(f"models:\n{models}")
    assert serve("--config", str(file)).exit_code == 0
    parents = {name: model.parent for name, model in served.pop()[0].adapters.items()}
    assert parents == {"a": "one", "b": "two", "c": "two"}


def test_any_name_is_accepted_by_option(served: list[tuple[ModelRegistry, ServerSettings]]) -> None:
    assert serve("--model", "random:tiny", "--accept-any-model-name").exit_code == 0
    assert served[0][0].get("gpt-4o").name == "random:tiny"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--served-model-name", "a"], "--served-model-name names one model, and there are 2; use --model NAME=SOURCE"),
        (["--model", "random:tiny", "--served-model-name", "a\nb"], "could split a line"),
        (["--model", "a\r\nb=random:tiny"], "could split a line"),
        (["--model", "random:tiny", "--served-model-name", "a", "a"], "two models are named 'a'"),
        (["a=random:tiny", "--lora", "a=dir"], "two models are named 'a'"),
        (["a=random:tiny", "b=random:tiny", "--lora", "c=dir"], "lora goes to every model"),
        (["random:tiny", "--lora", "dir"], "lora='dir' is not NAME=DIR"),
    ],
)
def test_names_that_cannot_be_are_refused(arguments: list[str], message: str) -> None:
    refused = serve(*arguments)
    assert refused.exit_code == 2
    assert message in " ".join(refused.stderr.split())


def test_the_banners_command_stands_any_name() -> None:
    text = _banner(["it's"], "http://127.0.0.1:1", has_keys=False)
    assert """'{"model": "it'"'"'s", "messages": [{"role": "user", "content": "Hello"}]}'""" in text
    assert "--unix-socket '/a b' http://localhost/v1" in _banner(["m"], "unix:/a b", has_keys=False)


# -- options of other engines ------------------------------------------------------------------------------------------


def test_an_option_without_effect_is_accepted_with_a_warning_that_names_the_alternative(
    served: list[tuple[ModelRegistry, ServerSettings]], caplog: pytest.LogCaptureFixture
) -> None:
    values = [[], ["0.9"]]
    given = [[name, *(values[takes == "any"] if takes in ("", "any") else [takes])] for name, (takes, _) in OPTIONS]
    with caplog.at_level(logging.WARNING):
        arguments = ["--model", "random:tiny", *itertools.chain(*given), "--max-queue", "7"]
        assert serve(*arguments).exit_code == 0
    assert served[0][1].max_queue == 7
    said = [record.getMessage() for record in caplog.records]
    assert said == [f"{name} has no effect: {instead}" for name, (_, instead) in OPTIONS]


def test_a_value_may_follow_an_equals_sign(served: list[tuple[ModelRegistry, ServerSettings]]) -> None:
    assert serve("--gpu-memory-utilization=0.9", "--model=random:tiny", "--pipeline-parallel-size=1").exit_code == 0
    assert [model.name for model in served[0][0]] == ["random:tiny"]


@pytest.mark.parametrize("arguments", [["--pipeline-parallel-size", "2"], ["--response-role=user"]])
def test_a_value_that_cannot_be_had_is_refused(arguments: list[str]) -> None:
    refused = serve("--model", "random:tiny", *arguments)
    assert refused.exit_code == 2
    assert "is not supported" in refused.stderr
    assert "leave it out" in refused.stderr


def test_an_unknown_option_is_refused_with_the_closest_one() -> None:
    refused = serve("--blck-size", "4")
    assert refused.exit_code == 2
    assert "--block-size" in refused.stderr


def test_a_vllm_start_script_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr("quire.cli.serve.commands._serve_here", lambda *settings: given.extend(settings) or 0)
    monkeypatch.setattr("quire.system.child_process.ChildProcess", lambda *_, **__: None)
    options = (
        "-tp 1 -pp=1 --max_model_len 8k --max-num-batched-tokens=1K --dtype half --enable-prompt-tokens-details "
        "--no-async-scheduling --no-enable-chunked-prefill --no-enforce-eager --enable_server_load_tracking "
        "--structured-outputs-config.backend xgrammar --chat-template-content-format auto --tokenizer random:tiny "
        "--kv-cache-memory-bytes 64MiB --enable-log-requests --compilation-config.level 3"
    )
    result = serve("random:tiny", *options.split(), "--allowed-origins", '["http://a", "http://b"]')
    assert result.exit_code == 0, result.output
    config, settings = given[0]["random:tiny"], given[1]
    assert settings.cors_origins == ("http://a", "http://b")
    assert (config.max_model_len, config.max_num_batched_tokens, config.dtype) == (8000, 1024, "float16")
    assert config.kv_cache_memory == 2**26


def test_a_llama_cpp_start_script_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr("quire.cli.serve.commands._serve_here", lambda *settings: given.extend(settings) or 0)
    monkeypatch.setattr("quire.system.child_process.ChildProcess", lambda *_, **__: None)
    options = "-c 512 -ngl -1 -fa --jinja -fa on -np 4 -b 256 -ub 64 -t 1 --no-mmap -a name --metrics"
    result = serve("-m", "random:tiny", *options.split())
    assert result.exit_code == 0, result.output
    engines, settings = given[:2]
    config = settings.named(engines)[0]["name"]
    assert (config.max_model_len, config.max_num_seqs, config.max_num_batched_tokens) == (512, 4, 256)


def test_models_may_be_arguments_and_options(served: list[tuple[ModelRegistry, ServerSettings]]) -> None:
    assert serve("random:tiny", "b=random:tiny", "--port", "0", "--model", "c=random:tiny").exit_code == 0
    assert [model.name for model in served[0][0]] == ["random:tiny", "b", "c"]


@pytest.mark.parametrize(("option", "instead"), REFUSED.items())
def test_an_option_that_cannot_be_honoured_says_what_to_use(option: str, instead: str) -> None:
    refused = serve("random:tiny", option, "x")
    assert refused.exit_code == 2
    assert f"{option} is not supported: {instead}" in refused.stderr


@pytest.mark.parametrize(("text", "count"), [("8192", 8192), ("8k", 8000), ("8K", 8192), ("1m", 10**6), ("1.5k", 1500)])
def test_counts_of_tokens_are_read_as_vllm_reads_them(text: str, count: int) -> None:
    assert parse_count(text) == count
    for wrong in ("8x", "k", "1.5", "-1k", ""):
        with pytest.raises(ValueError, match="not a number of tokens"):
            parse_count(wrong)


# -- what is refused before anything is started ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["--model", "/no/such/model"],
        ["--model", "quire-chta"],
        ["--model", "llama3.2:1b"],
        ["--model", "random:nothing"],
        ["--model", "random:tiny", "--recovery-policy", "sometimes"],
        ["--model", "random:tiny", "--recovery-policy", "threshold:many"],
        ["--model", "random:tiny", "--num-threads", "100000"],
    ],
    ids=" ".join,
)
def test_a_mistake_is_reported_as_by_generate_and_starts_nothing(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AsyncEngine, "start", lambda *_: pytest.fail("it was started"))
    served, generated = serve(*arguments), CliRunner().invoke(app, ["generate", *arguments, "hello"])
    assert served.exit_code == generated.exit_code == 2
    assert served.stderr == generated.stderr
    assert served.stderr.count("Error") == 1


def test_a_directory_without_a_model_is_reported_as_by_generate(tmp_path: Path) -> None:
    arguments = ["--model", str(tmp_path)]
    served, generated = serve(*arguments), CliRunner().invoke(app, ["generate", *arguments, "hello"])
    assert served.exit_code == generated.exit_code == 2
    assert served.stderr == generated.stderr
    assert "a model directory contains config.json" in served.stderr


# -- a file ------------------------------------------------------------------------------------------------------------


def test_a_file_serves_what_it_says_and_the_command_line_wins(
    served: list[tuple[ModelRegistry, ServerSettings]], tmp_path: Path
) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text("max-queue: 5\nmax-answers: 6\nmodel: [a=random:tiny, {model: random:tiny, name: b}]\n")
    assert serve("--config", str(file), "--max-queue", "7").exit_code == 0
    registry, settings = served[0]
    assert [model.name for model in registry] == ["a", "b"]
    assert (settings.max_queue, settings.max_answers) == (7, 6)
    file.write_text("max-quee: 5")
    refused = serve("--config", str(file))
    assert refused.exit_code == 2
    assert "did you mean 'max-queue'?" in " ".join(refused.stderr.split())


def test_no_option_of_another_engine_hides_an_own_one() -> None:
    own = {f"--{option_name(field).replace('_', '-')}" for kind in KINDS for field in setting_fields(kind)}
    assert not own & {*IGNORED, *REFUSED, *RENAMED}
