"""Pages refer only to existing files, folders, links, commands, options and metrics."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from benchmarks.script import make_app
from command_line import app
from every_metric import render_every_metric
from quire.cli.serve.foreign_options import IGNORED, REFUSED, RENAMED
from quire.cluster.settings import ClusterSettings
from quire.config import EngineConfig
from quire.config_file import read_config
from quire.server.settings import ServerSettings
from quire.settings import option_name, setting_fields

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "quire"
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md"), ROOT / "deploy" / "README.md"])
COMMAND_LINE: Any = typer.main.get_command(app)
ALWAYS = {"--help", "-h", "--version"}
OF_OTHER_PROGRAMS = {"--no-deps", "--stop-timeout"}
ARCHITECTURE = (DOCS / "architecture.md").read_text()


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def commands_of(page: Path) -> Iterator[str]:
    """The `quire` commands in a page's code blocks, and in code spans that name a whole command with options."""
    text = re.sub(r"\\\n\s*", " ", page.read_text())
    for block in re.findall(r"```(?:console|bash|sh)\n(.*?)```", text, re.S):
        for line in block.splitlines():
            for part in re.split(r" && | \| ", line.removeprefix("$ ")):
                words = part.strip().removeprefix(".venv/bin/")
                if words.startswith(("quire ", "python -m benchmarks.")):
                    yield words
    yield from re.findall(r"`((?:quire [a-z]|python -m benchmarks\.)[^`]*?--[^`]*)`", text)


def options_of(command: Any) -> set[str]:
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}


def all_options() -> set[str]:
    found, stack = set(), [COMMAND_LINE]
    while stack:
        command = stack.pop()
        found |= options_of(command)
        stack += getattr(command, "commands", {}).values()
    return found


def benchmark(module: str) -> Any:
    """The command line of `python -m MODULE`."""
    path = ROOT / module.replace(".", "/")
    is_package = (path / "__main__.py").exists()
    assert is_package or path.with_suffix(".py").exists(), f"there is no {module}"
    main = importlib.import_module(f"{module}.__main__" if is_package else module).main
    return typer.main.get_command(make_app(main))


def check_command(text: str) -> None:
    """Raise an AssertionError if a command or one of its options does not exist."""
    words = shlex.split(text, comments=True)[1:]
    command = COMMAND_LINE
    if text.startswith("python -m "):
        command = benchmark(words[1])
        words = words[2:]
    while commands := getattr(command, "commands", None):
        words = words or [*filter(None, [getattr(command, "default", None)])]
        assert words, f"{text!r} names no command"
        if words[0].startswith("-"):
            break
        name = words.pop(0)
        assert name in commands, f"{text!r}: no command {name}"
        command = commands[name]
    known = options_of(command) | set(IGNORED) | set(REFUSED) | set(RENAMED) | ALWAYS
    given = {word.partition("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word)}
    assert given <= known, f"{text!r}: {given - known}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_and_option_of_a_page_exists(page: Path) -> None:
    for text in commands_of(page):
        check_command(text)


@pytest.mark.parametrize(
    "text", ["quire serv", "quire serve --modle x", "quire kv prune --bytes 3", "quire", "python -m benchmarks.no"]
)
def test_a_wrong_command_would_be_noticed(text: str) -> None:
    with pytest.raises(AssertionError):
        check_command(text)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_option_in_the_prose_of_a_page_exists(page: Path) -> None:
    if page.stem.startswith("from-") or page.name in ("CONTRIBUTING.md", "releasing.md", "CHANGELOG.md"):
        return  # they name options of other programs
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    named = {
        word.partition("=")[0]
        for span in re.findall(r"`(--[^`]+)`", text)
        for word in span.split()
        if word.startswith("--")
    }
    known = all_options() | set(IGNORED) | set(REFUSED) | set(RENAMED) | ALWAYS | OF_OTHER_PROGRAMS | {"--no-NAME"}
    assert named <= known, named - known


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_file_that_a_page_names_or_links_exists(page: Path) -> None:
    text = page.read_text()
    for file in re.findall(r"`((?:\w+/)+\w+\.(?:py|md|yaml|cpp|h))`", text):
        assert any((root / file).exists() for root in (PACKAGE, PACKAGE.parent, ROOT)), file
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (page.parent / link).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_anchor_that_a_page_links_exists(page: Path) -> None:
    for link, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text()):
        target = (page.parent / link) if link else page
        headings = re.findall(r"^#+ (.+)$", target.read_text(), re.M)
        anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert anchor in anchors, f"{link}#{anchor}"


def test_the_index_reaches_every_page() -> None:
    links = {(DOCS / link).resolve() for link in re.findall(r"\]\(([^)#]+)", (DOCS / "index.md").read_text())}
    assert {page for page in DOCS.rglob("*.md") if page.name != "index.md"} <= links


def test_all_pages_together_have_at_most_30_000_words() -> None:
    assert sum(len(page.read_text().split()) for page in [*DOCS.rglob("*.md"), ROOT / "README.md"]) <= 30_000
    assert len(ARCHITECTURE.split()) <= 2_500
    assert len((ROOT / "README.md").read_text().split()) <= 1_300


def test_every_folder_of_the_package_has_a_row_in_the_architecture() -> None:
    files = (path.relative_to(PACKAGE) for path in PACKAGE.rglob("*") if path.is_file() and path.suffix != ".pyc")
    folders = {path.parts[0] for path in files if len(path.parts) > 1}
    rows = re.findall(r"^\| (`[^|]+) \|", ARCHITECTURE, re.M)
    assert folders <= {name.split("/")[0] for row in rows for name in re.findall(r"`([^`]+)`", row)}


@pytest.mark.parametrize(
    "name", sorted(set(re.findall(r"`((?:\w+/)+|(?:\w+/)*\w+\.(?:py|cpp|h|yaml))`", ARCHITECTURE)))
)
def test_every_folder_and_file_of_the_architecture_exists(name: str) -> None:
    assert any((root / name).exists() for root in (PACKAGE, ROOT)), name


def test_the_page_of_options_is_what_the_settings_say() -> None:
    spec = importlib.util.spec_from_file_location("options_page", ROOT / "tools" / "options_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text() == module.render(), "run: python tools/options_page.py"
    for kind in (EngineConfig, ServerSettings):
        for field in setting_fields(kind):
            assert f"`--{option_name(field).replace('_', '-')}`" in module.render()


def test_the_page_of_metrics_has_every_metric_with_its_kind_and_labels() -> None:
    text = render_every_metric()
    kinds = dict(re.findall(r"^# TYPE (quire_\S+) (\w+)", text, re.M))
    labels: dict[str, set[str]] = {name: set() for name in kinds}
    for series, given in re.findall(r"^(quire_\w+)\{(.+)\}", text, re.M):
        name = series if series in kinds else re.sub(r"_(bucket|count|sum)$", "", series)
        labels[name] |= set(re.findall(r"(\w+)=", given)) - {"le"}
    page = (DOCS / "reference" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(quire_\w+)` \| (\w+) \| ([^|]*)\|", page, re.M)
    documented = {name: (kind, set(re.findall(r"`(\w+)`", by))) for name, kind, by in rows}
    assert documented == {name: (kind, labels[name]) for name, kind in kinds.items() if not name.endswith("_created")}


def test_the_page_for_those_who_come_from_vllm_has_every_option_that_is_accepted() -> None:
    text = (DOCS / "guides" / "from-vllm.md").read_text()

    def rows(title: str) -> dict[str, tuple[str, str]]:
        section = text.partition(f"## {title}")[2].partition("\n## ")[0]
        return {
            name: (value, instead)
            for names, instead in re.findall(r"^\| (.+) \| (.+) \|$", section, re.M)
            for name, value in re.findall(r"`(--?[\w-]+)`(?: \(`(\w+)`\))?", names)
        }

    ignored = {name: (takes.replace("any", ""), instead) for name, (takes, instead) in IGNORED.items()}
    assert rows("Options without a meaning here") == ignored
    assert rows("Refused options") == {name: ("", instead) for name, instead in REFUSED.items()}
    assert rows("Other names") == {name: ("", f"`{other}`") for name, other in RENAMED.items()}


def test_the_page_of_limits_has_every_error_code() -> None:
    page = (DOCS / "reference" / "limits.md").read_text()
    documented = {
        code for row in re.findall(r"^\| \d+ \|[^|]*\|(.*)\|$", page, re.M) for code in re.findall(r"`(\w+)`", row)
    }
    sources = "".join(path.read_text() for path in (PACKAGE / "server").rglob("*.py"))
    sources += "".join(path.read_text() for path in (PACKAGE / "async_engine").rglob("*.py"))
    states = {f"model_{state}" for state in ("loading", "draining", "failed")}
    assert {code for code in documented - states if f'"{code}"' not in sources} == set()


def blocks_of(page: Path, *languages: str) -> list[str]:
    return re.findall(rf"```(?:{'|'.join(languages)})\n(.*?)```", page.read_text(), re.S)


@pytest.mark.parametrize("page", [page for page in DOCS.rglob("*.md") if blocks_of(page, "python")], ids=name_of)
def test_the_python_of_a_page_runs(page: Path) -> None:
    for code in blocks_of(page, "python"):
        exec(code, {})


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_request_body_of_a_page_is_json(page: Path) -> None:
    for block in blocks_of(page, "bash", "console"):
        for body in re.findall(r"-d '(\{.*?\})'", block, re.S):
            json.loads(body)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_yaml_block_of_a_page_is_a_config_file_or_a_routing_file(page: Path, tmp_path: Path) -> None:
    for text in blocks_of(page, "yaml"):
        data = yaml.safe_load(text)
        if "policy" in data or page.parent.name == "benchmarks":
            continue
        (tmp_path / "serve.yaml").write_text(text)
        read_config(tmp_path / "serve.yaml", [ServerSettings, ClusterSettings])


def test_options_that_vllm_has_too_exist() -> None:
    section = (DOCS / "guides" / "from-vllm.md").read_text().partition("## Options with the same name")[2]
    named = re.findall(r"`(--[\w-]+)`", section.partition("| vLLM |")[0])
    assert named
    assert set(named) <= all_options()
