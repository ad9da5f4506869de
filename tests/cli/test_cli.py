"""The command line: every command has help, a mistake is one line, and every config field is an option."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner, Result

import quire.bench.bench_settings as bench
import quire.bench.serving.serve_settings as serving
from command_line import app
from quire.cli.command import Commands
from quire.cli.options import options
from quire.config import EngineConfig
from quire.server.settings import ServerSettings
from quire.settings import Settings, option_name, setting_fields
from quire.simulate.simulate_settings import SimulateSettings

COMMANDS = [
    ["generate"],
    ["digest"],
    ["save"],
    ["info"],
    ["models"],
    ["serve"],
    ["launch"],
    ["chat"],
    ["complete"],
    ["calibrate"],
    ["simulate"],
    ["kernels"],
    *(["kernels", name] for name in ("build", "info")),
    ["bench", "latency"],
    ["bench", "throughput"],
    ["bench", "coldstart"],
    ["bench", "serve"],
    *(["kv", name] for name in ("ls", "verify", "prune", "rm", "warm")),
]
WITH_ENGINE = [
    ["generate"],
    ["serve"],
    ["calibrate"],
    ["bench", "latency"],
    ["bench", "throughput"],
    ["kv", "warm"],
]
SMALL = ["--model", "random:tiny", "--num-kv-blocks", "32", "--no-use-tqdm"]


def quire(*arguments: str, **options: object) -> Result:
    return CliRunner().invoke(app, list(arguments), **options)  # type: ignore[arg-type]


@cache
def help_of(*command: str) -> str:
    result = quire(*command, "--help")
    assert result.exit_code == 0
    return result.output


@pytest.mark.parametrize("command", [[], ["bench"], ["kv"], *COMMANDS], ids=" ".join)
def test_help_of_every_command_has_an_example(command: list[str]) -> None:
    assert "Example: quire " + " ".join(command) in help_of(*command)


@pytest.mark.parametrize("command", WITH_ENGINE, ids=" ".join)
def test_every_field_of_the_engine_config_is_an_option(command: list[str]) -> None:
    text = help_of(*command)
    for field in fields(EngineConfig):
        assert "--" + field.name.replace("_", "-") in text
        assert field.metadata["help"].split()[0] in text


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (["serve"], ServerSettings),
        (["calibrate"], bench.CalibrateSettings),
        (["simulate"], SimulateSettings),
        (["bench", "latency"], bench.LatencySettings),
        (["bench", "throughput"], bench.ThroughputSettings),
        (["bench", "coldstart"], bench.ColdStartSettings),
        (["bench", "serve"], serving.ServeSettings),
    ],
    ids=str,
)
def test_every_setting_is_an_option_of_its_command(command: list[str], kind: type[Settings]) -> None:
    text = help_of(*command)
    for field in setting_fields(kind):
        assert "--" + option_name(field).replace("_", "-") in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate", "hello"], "no model is given"),
        (["generate", "--model", "random:nothing", "hello"], "no preset 'random:nothing'"),
        (["generate", "--model", "/no/such/model", "hello"], "no such directory"),
        (["generate", "--model", "random:tiny", "--dtype", "int3", "hello"], "dtype='int3'"),
        (["generate", "--model", "random:tiny", "--block-size", "0", "hello"], "block_size=0"),
        (["generate", "--model", "random:tiny", "--kv-cache-memory", "lots", "hello"], "'lots' is not a size"),
        (["generate", *SMALL, "--temperature", "-1", "hello"], "temperature=-1"),
        (["generate", *SMALL, "--skip-tokenizer-init", "hello"], "skip_tokenizer_init"),
        (["info", "--model", "/no/such/model"], "no such directory"),
        (["info", "quire-chta"], "quire-chta: no such directory; did you mean quire-chat?"),
        (["run", "llama3.2:1b"], "llama3.2:1b: no such directory; ollama has none of that name"),
        (["serve", "--port", "70000"], "port=70000 must be at least 0 and at most 65535"),
        (["serve", "--log-format", "xml"], "log_format='xml' is not one of text, json"),
        (["serve", "--log-level", "loud"], "log_level='loud' is not one of debug, info, warning, error"),
        (["bench", "latency", *SMALL, "--runs", "0"], "runs=0 must be at least 1"),
        (["bench", "throughput", *SMALL, "--input-len", "a-b"], "input_len='a-b'"),
        (["bench", "throughput", *SMALL, "--workload", "a", "--trace", "b"], "give one of them"),
    ],
)
def test_a_mistake_is_one_line_on_stderr_and_exit_code_2(arguments: list[str], message: str) -> None:
    result = quire(*arguments)
    assert result.exit_code == 2, result.output
    lines = [line for line in result.stderr.splitlines() if line.startswith("Error")]
    assert len(lines) == 1
    assert message in lines[0]
    assert result.stdout == ""


def test_an_unknown_option_is_exit_code_2() -> None:
    result = quire("serve", "--blck-size", "4")
    assert result.exit_code == 2
    assert "--blck-size" in result.stderr


def test_ctrl_c_exits_130_without_a_word() -> None:
    interrupted = typer.Typer(cls=Commands)

    @interrupted.command()
    def run() -> None:
        raise KeyboardInterrupt

    @interrupted.command()
    def other() -> None: ...

    result = CliRunner().invoke(interrupted, ["run"])
    assert result.exit_code == 130
    assert result.output == ""


def make_probe(seen: list[object], **choices: object) -> typer.Typer:
    probe = typer.Typer()

    @probe.command()
    @options(**choices)  # type: ignore[arg-type]
    def run(engine: EngineConfig, port: Annotated[int, typer.Option()] = 1) -> None:
        seen.append((engine, port))

    return probe


def test_the_command_line_goes_before_the_environment_and_that_before_the_default() -> None:
    seen: list[tuple[EngineConfig, int]] = []
    environment = {"QUIRE_MODEL": "from-env", "QUIRE_BLOCK_SIZE": "32", "QUIRE_ENABLE_PREFIX_CACHING": "0"}
    arguments = ["--block-size", "8", "--kv-cache-memory", "1MiB", "--port", "5"]
    result = CliRunner().invoke(make_probe(seen), arguments, env=environment)
    assert result.exit_code == 0, result.output
    (config, port) = seen[0]
    assert port == 5
    assert (config.model, config.block_size, config.kv_cache_memory) == ("from-env", 8, 2**20)
    assert config.enable_prefix_caching is False
    assert config.max_num_seqs == EngineConfig("x").max_num_seqs


def test_a_command_may_have_a_model_of_its_own() -> None:
    seen: list[tuple[EngineConfig, int]] = []
    CliRunner().invoke(make_probe(seen, default_model="random:tiny"), [])
    CliRunner().invoke(make_probe(seen, default_model="random:tiny"), [], env={"QUIRE_MODEL": "other"})
    assert [config.model for config, _ in seen] == ["random:tiny", "other"]


def test_a_swept_option_makes_one_config_a_value() -> None:
    seen: list[EngineConfig] = []
    probe = typer.Typer()

    @probe.command()
    @options(sweep=("block_size",))
    def run(engines: list[EngineConfig]) -> None:
        seen.extend(engines)

    assert CliRunner().invoke(probe, ["--model", "m", "--block-size", "1,2,16"]).exit_code == 0
    assert [config.block_size for config in seen] == [1, 2, 16]
    CliRunner().invoke(probe, ["--model", "m"])
    assert seen[-1].block_size == EngineConfig("m").block_size


def test_version_is_printed() -> None:
    assert quire("--version").output.startswith("quire 0.")


def test_info_says_what_a_model_needs() -> None:
    result = quire("info", "--model", "random:qwen2.5-0.5b")
    assert result.exit_code == 0
    for text in ("Qwen2ForCausalLM (supported)", "494.0 M", "32,768 tokens", "12.0 KiB"):
        assert text in result.output


def test_info_says_why_a_model_is_not_served(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["GemmaForCausalLM"], "model_type": "gemma"}')
    result = quire("info", "--model", str(tmp_path))
    assert result.exit_code == 1
    assert result.output.count("GemmaForCausalLM") == 1
    assert "GemmaForCausalLM is not supported" in result.output


@pytest.mark.parametrize("command", ["serve", "generate", "run"])
def test_an_unknown_architecture_is_refused_before_torch_is_imported(tmp_path: Path, command: str) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["GemmaForCausalLM"]}')
    words = [command, "--model", str(tmp_path), *(["x"] if command == "generate" else [])]
    code = f"import sys; from quire.cli.main import make_app\ntry: make_app({command!r})({words!r})\n"
    code += "except SystemExit as left: print(left.code, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.stdout == "2 False\n", done.stderr
    assert done.stderr.startswith(
        f"Error: {tmp_path}: GemmaForCausalLM is not supported; Quire serves LlamaForCausalLM"
    )


def test_models_lists_architectures_and_presets() -> None:
    result = quire("models")
    assert "LlamaForCausalLM" in result.output
    assert "random:tiny" in result.output


def test_generate_streams_the_text_that_the_offline_api_gives() -> None:
    from quire import LLM, SamplingParams

    llm = LLM("random:tiny", num_kv_blocks=32, use_tqdm=False)
    expected = llm.generate("Hello", SamplingParams(max_tokens=12, temperature=0), use_tqdm=False)[0].outputs[0].text
    arguments = ["generate", *SMALL, "--max-tokens", "12", "--temperature", "0"]
    result = quire(*arguments, "Hello")
    assert result.exit_code == 0, result.output
    assert result.stdout == expected + "\n"
    assert quire(*arguments, "-", input="Hello\n").stdout == expected + "\n"
    stop = expected[3:6]
    assert quire(*arguments, "--stop", stop, "Hello").stdout == expected[: expected.index(stop)] + "\n"
    said = [{"role": "user", "content": "Hello"}]
    answer = llm.chat(said, SamplingParams(max_tokens=12, temperature=0), use_tqdm=False)[0].outputs[0].text
    assert quire(*arguments, "--chat", "Hello").stdout == answer + "\n"


def test_generate_cuts_a_completion_and_no_chat() -> None:
    arguments = ["generate", *SMALL, "--max-model-len", "200", "--temperature", "0", "--ignore-eos"]
    completion, message = (quire(*arguments, *chat, "Hello").stdout for chat in ([], ["--chat"]))
    assert len(message) > 1.2 * len(completion)  # 128 tokens, and the rest of 200
    assert quire(*arguments, "--chat", "--max-tokens", "4", "Hello").stdout.startswith(message[:4])


def test_bench_throughput_compares_block_sizes_and_writes_json(tmp_path: Path) -> None:
    made, figures = tmp_path / "w.json", tmp_path / "f.json"
    lengths = ["--num-requests", "3", "--input-len", "4-9", "--output-len", "3"]
    options = ["--block-size", "4,16", "--runs", "2", "--json", str(figures), "--save-workload", str(made)]
    result = quire("bench", "throughput", *SMALL, *lengths, *options)
    assert result.exit_code == 0, result.output
    data = json.loads(figures.read_text())
    assert [figure["label"] for figure in data["figures"]] == ["block_size=4", "block_size=16"]
    for figure in data["figures"]:
        assert (figure["out"], figure["out_got"], figure["requests"]) == (9, 9, 3)
        assert figure["wall_s"]["min"] <= figure["wall_s"]["median"] <= figure["wall_s"]["max"]
    assert data["figures"][0]["first_tokens"] == data["figures"][1]["first_tokens"]
    again = quire("bench", "throughput", *SMALL, "--workload", str(made), "--runs", "1")
    assert again.exit_code == 0, again.output


def test_bench_latency_measures_each_batch_size(tmp_path: Path) -> None:
    figures = tmp_path / "f.json"
    lengths = ["--input-len", "5", "--output-len", "3", "--batch-size", "1,2", "--runs", "1"]
    result = quire("bench", "latency", *SMALL, *lengths, "--json", str(figures), "--plot", str(tmp_path / "f.png"))
    assert result.exit_code == 0, result.output
    assert [figure["requests"] for figure in json.loads(figures.read_text())["figures"]] == [1, 2]
    assert (tmp_path / "f.png").exists()


def test_a_model_that_is_not_there_is_refused_before_torch_is_imported() -> None:
    commands = [
        "generate --model /no/such x", "chat /no/such", "run /no/such", "info /no/such",
        "bench latency --model /no/such", "calibrate --model /no/such", "digest /no/such",
        "save --model /no/such d", "stages plan --model /no/such",
    ]  # fmt: skip
    code = f"""
import sys
from quire.cli.main import make_app
for words in {[command.split() for command in commands]!r}:
    try:
        make_app(words[0])(words)
    except SystemExit as left:
        print(left.code, "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.stdout.splitlines() == ["2 False"] * len(commands), done.stderr
    assert done.stderr == "Error: /no/such: no such directory\n" * len(commands)


def test_a_misspelt_variable_is_named_with_the_closest_one(caplog: pytest.LogCaptureFixture) -> None:
    kubernetes = {"QUIRE_PORT": "tcp://10.0.0.1:8000", "QUIRE_PORT_8000_TCP": "x", "QUIRE_CHAT_SERVICE_HOST": "x"}
    with caplog.at_level(logging.WARNING):
        assert quire("models", env={"QUIRE_BLOK_SIZE": "3", **kubernetes}).exit_code == 0
    assert caplog.messages == ["QUIRE_BLOK_SIZE in the environment is no option; did you mean QUIRE_BLOCK_SIZE?"]


def test_a_key_for_vllm_does_not_leave_the_server_open_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert quire("models", env={"VLLM_API_KEY": "k"}).exit_code == 0
    assert caplog.messages == ["VLLM_API_KEY is ignored; set QUIRE_API_KEY, or clients need no key"]


@pytest.mark.parametrize("columns", ["80", "120"])
def test_help_has_panels_and_cuts_nothing(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    text = quire("serve", "--help").output
    assert all(len(line) <= int(columns) for line in text.splitlines() if "Example:" not in line)
    for title in ("Address", "Keys", "Memory for KV", "Scheduling", "Limits", "Ray"):
        assert f"╭─ {title} ─" in text
    assert "<" not in text
    assert "…" not in text
    assert re.search(r"\b(target_itl|swap_dir|kv_dir|num_threads)\b", text) is None
    assert "16GiB" in text
    assert "Write a model as a checkpoint" in quire("--help").output
    assert "..." not in quire("--help").output.replace("ARGS]...", "")


@pytest.mark.parametrize("command", ["route", "rag ask", "rag query", "digest", "kv warm", "bench serve", "chat"])
def test_help_shows_arguments_first_and_no_types_of_python(command: str) -> None:
    text = quire(*command.split(), "--help").output
    assert re.search(r"<int|<str|\{\w+\}(?! before|\.)|--generation-config\.json", text) is None
    assert ("─ Arguments ─" in text) == (command != "bench serve")
    assert text.index("─ Options ─") > text.find("─ Arguments ─")
    assert re.search(r"─ (Keys|Address) ─.*--(chat|duration)\b", text.partition("─ Keys")[2], re.S) is None


def test_a_command_of_another_engine_names_ours() -> None:
    assert "Use: quire models" in quire("list").output
    assert "Use: quire pull MODEL" in quire("download", "x").output
    assert "Use: quire --install-completion" in quire("completion").output


def test_options_may_have_underscores() -> None:
    assert "block_size=0 must be at least 1" in quire("generate", *SMALL, "--block_size=0", "x").stderr


def test_the_shell_completes_options() -> None:
    environment = {"_QUIRE_COMPLETE": "complete_bash", "COMP_WORDS": "quire serve --max-mod", "COMP_CWORD": "2"}
    command = [sys.executable, "-m", "quire"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.stdout.split() == ["--max-model-len"], done.stderr


def test_pull_names_the_directory_of_a_model(tmp_path: Path) -> None:
    assert "is on this machine: 6." in quire("pull", "quire-chat").output
    assert "nothing to download" in quire("pull", "random:tiny").stderr


def test_one_file_is_no_files(tmp_path: Path) -> None:
    assert quire("save", "--model", "random:tiny", str(tmp_path / "a")).output.endswith("of weights in 1 file\n")


def test_an_unsupported_model_is_named_once(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["GemmaForCausalLM"], "model_type": "gemma"}')
    assert quire("info", str(tmp_path)).output.count(str(tmp_path)) == 1


def test_sampling_defaults_of_a_model_may_be_ignored() -> None:
    arguments = ["generate", "--model", "quire-chat", "--num-kv-blocks", "64", "--no-use-tqdm", "--chat", "--seed", "1"]
    greedy, again, drawn = (quire(*arguments, *more, "Hello").stdout for more in ([], [], ["--generation-config=vllm"]))
    assert greedy == again != drawn
