"""Imports point one way: every file obeys the table in docs/architecture.md."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from quire.kernels.loaded import load_kernels

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "quire"
WITHOUT_TORCH = ("core", "simulate", "config", "settings", "sampling_params", "outputs")
REFERENCE_LIBRARIES = {"transformers", "peft"}
MAY_USE_REFERENCE = ("progressive",)
#: Files or folders that import torch or Triton at their top: for a GPU, as the reference, or for healing.
IMPORT_TORCH = (
    "attention.torch_attention", "attention.triton_attention", "attention.triton_check", "attention.triton_states",
    "kernels.triton", "models.linear.triton_encodings", "models.linear.triton_weight", "models.states.on_triton",
    "models.states.triton_check", "ops.cuda_graphs", "ops.encoded_weight", "ops.grouped_experts", "ops.on_torch",
    "ops.on_triton", "ops.triton_check", "progressive.healing", "runner.triton_check", "runner.triton_drawing",
    "tiers.cuda",
)  # fmt: skip
#: Prepended to a program: torch cannot be imported, as if it were not installed.
REFUSE_TORCH = """
import importlib.util, sys
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "torch" else find_spec(name, *more)
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, Refuse())
"""


def read_table() -> dict[tuple[str, ...], set[str]]:
    """Return row (a part, by its files or folders) -> all names that it may import, including its own."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text.split("<!-- import-table -->")[1].split("<!-- /import-table -->")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().splitlines()[2:]]
    rows = {tuple(name.strip() for name in names.split(",")): allowed for names, allowed in cells}
    siblings = {name: row for row in rows for name in row}
    result = {}
    for row, allowed in rows.items():
        match = re.fullmatch(r"everything(?: but (.*))?", allowed)
        named = {name.strip() for name in ((match[1] if match else allowed) or "").split(",")} - {""}
        assert named <= set(siblings), f"the row of {row} names {named - set(siblings)}, which have no row"
        listed = {other for name in named for other in siblings[name]}
        result[row] = (set(siblings) - listed if match else listed) | set(row)
    return result


TABLE = read_table()
MAY_IMPORT = {name: allowed for row, allowed in TABLE.items() for name in row}
FILES = sorted(PACKAGE.rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def part_of(path: Path) -> str:
    """Return the row of a file; "" for the package's own __init__."""
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return "" if first in ("__init__", "__main__") else first


def imported_modules(tree: ast.AST, path: Path) -> Iterator[str]:
    """Yield absolute names of all imported modules."""
    package = ("quire", *path.relative_to(PACKAGE).parts[:-1])
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            # `from quire import core` names a part by its alias; `from quire import LLM` the public face.
            yield from (f"quire.{alias.name}" for alias in node.names) if module == "quire" else (module,)


def files_imported(node: ast.stmt, path: Path) -> Iterator[str]:
    """Names that may be files: `from quire.tiers import disk_link` imports `quire.tiers.disk_link`."""
    for module in imported_modules(node, path):
        yield module
        if isinstance(node, ast.ImportFrom):
            yield from (f"{module}.{alias.name}" for alias in node.names)


def parts_imported(tree: ast.AST, path: Path) -> set[str]:
    public_face = {"LLM": "llm", "SamplingParams": "sampling_params", "BeamSearchParams": "sampling_params"}
    public_face |= {"EngineConfig": "config"}
    seconds = {module.split(".")[1] for module in imported_modules(tree, path) if module.startswith("quire.")}
    return {public_face.get(name, name) for name in seconds if not name.startswith("__")}


def run_python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT / "src")}
    ).stdout.strip()


def test_a_file_imports_only_what_its_row_allows() -> None:
    for path in FILES:
        if part := part_of(path):
            assert part in MAY_IMPORT, f"{part} has no row in docs/architecture.md"
            forbidden = parts_imported(tree_of(path), path) - MAY_IMPORT[part]
            assert not forbidden, f"{path.relative_to(ROOT)} may not import {', '.join(sorted(forbidden))}"


def test_third_party_packages_stay_where_they_belong() -> None:
    for path in FILES:
        roots = {module.split(".")[0] for module in imported_modules(tree_of(path), path)}
        if part_of(path) in WITHOUT_TORCH:
            assert "torch" not in roots, f"{path.relative_to(ROOT)} imports torch"
        if part_of(path) not in MAY_USE_REFERENCE:
            assert not roots & REFERENCE_LIBRARIES, f"{path.relative_to(ROOT)} imports {roots & REFERENCE_LIBRARIES}"


def test_the_table_has_no_cycles() -> None:
    seen: set[tuple[str, ...]] = set()

    def visit(row: tuple[str, ...], path: tuple[tuple[str, ...], ...]) -> None:
        assert row not in path, f"imports go in a circle: {' -> '.join('/'.join(step) for step in (*path, row))}"
        if row in seen:
            return
        for other in TABLE:
            if other != row and set(other) & TABLE[row]:
                visit(other, (*path, row))
        seen.add(row)

    for row in TABLE:
        visit(row, ())


def imports_of(body: Iterable[ast.AST], *, type_checking: bool) -> Iterator[ast.stmt]:
    """A module's import statements outside functions.

    Args:
        type_checking: include the `if TYPE_CHECKING:` blocks, which only a type checker reads.
    """
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If):
            if type_checking or not ast.unparse(node.test).endswith("TYPE_CHECKING"):
                yield from imports_of(node.body, type_checking=type_checking)
            yield from imports_of(node.orelse, type_checking=type_checking)
        elif isinstance(node, ast.Try | ast.ExceptHandler | ast.With | ast.ClassDef):
            yield from imports_of(ast.iter_child_nodes(node), type_checking=type_checking)


def test_no_files_import_each_other_in_a_circle_even_for_types_alone() -> None:
    names = {
        ".".join(("quire", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
        for path in FILES
    }
    imports = {
        name: {
            module
            for node in imports_of(tree_of(path).body, type_checking=True)
            for module in files_imported(node, path)
            if module in names and module != name
        }
        for name, path in names.items()
    }
    TopologicalSorter(imports).prepare()  # raises CycleError, which names the circle


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [
        ("server/http", "quire.server.openai"),
        ("server/generation", "quire.server.openai"),
        ("server/openai", "quire.server.collections"),
        ("server/generation", "quire.server.collections"),
        ("server/responses", "quire.server.collections"),
        ("server/anthropic", "quire.server.collections"),
        ("server/collections", "quire.server.openai"),
        ("core/decisions", "quire.core.scheduling"),
        ("async_engine", "quire.assembly"),
        ("engine", "quire.async_engine"),
    ],
)
def test_a_folder_does_not_know_what_stands_on_it(folder: str, forbidden: str) -> None:
    other = PACKAGE / forbidden.removeprefix("quire.").replace(".", "/")
    assert (PACKAGE / folder).is_dir(), f"there is no {folder} any more"
    assert other.is_dir() or other.with_suffix(".py").exists(), f"there is no {forbidden} any more"
    for path in (PACKAGE / folder).rglob("*.py"):
        modules = imported_modules(tree_of(path), path)
        assert not [module for module in modules if module.startswith(forbidden)], f"{path} imports {forbidden}"


def test_no_folder_has_more_than_fifteen_files() -> None:
    counts = Counter(path.parent.relative_to(PACKAGE) for path in FILES if path.name != "__init__.py")
    del counts[Path("models/architectures")]  # a file each
    assert not {str(folder): count for folder, count in counts.items() if count > 15}


def test_core_and_the_shared_words_run_without_torch() -> None:
    modules = [
        ".".join(("quire", *path.relative_to(PACKAGE).with_suffix("").parts))
        for path in FILES
        if part_of(path) in WITHOUT_TORCH and path.name != "__init__.py"
    ]
    code = f"import sys, importlib\nfor name in {modules!r}: importlib.import_module(name)\n"
    assert run_python(code + "print('torch' in sys.modules)") == "False"


def may_import_torch(path: Path) -> bool:
    name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    return any(f"{name}.".startswith(f"{each}.") for each in IMPORT_TORCH)


def test_named_files_alone_import_torch_at_their_top() -> None:
    for path in FILES:
        roots = {
            module.split(".")[0]
            for node in imports_of(tree_of(path).body, type_checking=False)
            for module in imported_modules(node, path)
        }
        message = f"{path.relative_to(ROOT)}: import torch where a tensor is at hand"
        assert not roots & {"torch", "triton"} or may_import_torch(path), message


def test_all_other_files_can_be_imported_where_there_is_no_torch() -> None:
    """Or they import a file that is named above."""
    modules = [".".join(("quire", *path.relative_to(PACKAGE).with_suffix("").parts)) for path in FILES]
    code = f"""
import importlib, traceback
for name in {[name.removesuffix(".__init__") for name in modules if not name.endswith("__main__")]!r}:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        assert error.name in ("torch", "triton"), f"{{name}}: {{error}}"
        frames = traceback.extract_tb(error.__traceback__)
        print([frame.filename for frame in frames if "/quire/" in frame.filename][-1])
"""
    found = set(map(Path, run_python(REFUSE_TORCH + code).splitlines()))
    assert not {path for path in found if not may_import_torch(path)}


def test_the_machine_is_looked_at_without_torch() -> None:
    """Unless it shows a GPU."""
    code = """
from quire import devices
devices._GPU_FILES = ()
from quire.bench.report import describe_machine
from quire.kernels.loaded import describe_arithmetic, load_kernels
from quire.memory_plan import free_memory
device = devices.choose_device("auto")
describe_arithmetic(device) if load_kernels().functions else None
print(device, free_memory(device) > 0, describe_machine()["gpu"])
"""
    assert run_python(REFUSE_TORCH + code) == "cpu True None"


@pytest.mark.parametrize(
    "command",
    [
        "generate --model quire-mini --num-kv-blocks 64 --max-tokens 4 Hi",
        "generate --model quire-mini --num-kv-blocks 64 --max-tokens 4 --dtype float32 --quantization int8 --chat Hi",
    ],
)
def test_commands_need_no_torch(command: str) -> None:
    if load_kernels().functions is None:
        pytest.skip("models compute on torch without kernels")
    code = f"import sys; sys.argv = {['quire', *command.split()]!r}; from quire.cli.main import main; main()"
    assert run_python(REFUSE_TORCH + code)


def test_the_command_line_answers_before_torch_is_imported() -> None:
    heavy = "torch", "numpy", "fastapi", "tokenizers", "matplotlib", "transformers"
    code = f"import sys, quire.cli.main\nprint([name for name in {heavy!r} if name in sys.modules])"
    assert run_python(code) == "[]"


def test_a_servers_process_imports_no_torch() -> None:
    modules = (
        "cli.serve.commands",
        "async_engine.process",
        "loading",
        "server.app",
        "server.lifecycle",
        "text.chat_template",
    )
    modules += ("server.collections.service", "loading.reading.checkpoint_reading")  # reading begins before torch
    later = ("rag.collections", "rag.embedder_process", "rag.ingest", "rag.reader_models")  # when they are first needed
    first, second = ("".join(f"import quire.{module}\n" for module in group) for group in (modules, later))
    code = f"import sys\n{first}print('faiss' in sys.modules)\n{second}print('torch' in sys.modules)"
    assert run_python(code).split() == ["False", "False"]


def test_the_command_line_imports_the_house_inside_functions_only() -> None:
    definitions = {
        "quire.bench.bench_settings",
        "quire.bench.serving.serve_settings",
        "quire.simulate.simulate_settings",
        "quire.cluster.settings",
        "quire.progressive.healing.settings",
        "quire.server.settings",
    }  # definitions of options for `--help`
    for path in FILES:
        if part_of(path) != "cli":
            continue
        tree = tree_of(path)
        modules = {
            module for node in imports_of(tree.body, type_checking=False) for module in imported_modules(node, path)
        }
        early = {module for module in modules - definitions if module.startswith("quire.")}
        allowed = ("quire.cli", "quire.config", "quire.settings")
        assert all(module.startswith(allowed) for module in early), f"{path.relative_to(ROOT)} imports {early} early"
