"""The size and shape of the package: short functions, small classes, unique names. See also `tools/prose.py`."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "quire"

MAX_LINES = 72_944
MAX_FILE_LINES = 500
MAX_CLASS_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_CONSTRUCTOR_PARAMETERS = 10
#: Class names with more than one definition, at most five.
SHARED_NAMES = {"Namespace", "_Batch"}

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@cache
def files() -> dict[Path, str]:
    return {path: path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(text) for path, text in files().items()}


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def definitions(*kinds: type[Definition]) -> list[tuple[str, Definition]]:
    """Return all definitions of these kinds, with a name for messages."""
    return [
        (f"{name_of(path)}:{node.lineno} {node.name}", node)
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, kinds)
    ]


def num_lines(node: Definition) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def test_the_package_does_not_grow() -> None:
    assert sum(text.count("\n") for text in files().values()) <= MAX_LINES


def test_no_file_is_long() -> None:
    lines = {name_of(path): text.count("\n") for path, text in files().items()}
    assert not {name: count for name, count in lines.items() if count > MAX_FILE_LINES}


@pytest.mark.parametrize(
    ("kinds", "limit"),
    [((ast.FunctionDef, ast.AsyncFunctionDef), MAX_FUNCTION_LINES), ((ast.ClassDef,), MAX_CLASS_LINES)],
    ids=["functions", "classes"],
)
def test_no_definition_is_long(kinds: tuple[type[Definition], ...], limit: int) -> None:
    lines = {name: num_lines(node) for name, node in definitions(*kinds)}
    assert not {name: count for name, count in lines.items() if count > limit}


def test_no_constructor_has_many_parameters() -> None:
    """A class with more of them takes a config dataclass."""
    counts = {
        name: len(function.args.posonlyargs + function.args.args + function.args.kwonlyargs) - 1
        for name, node in definitions(ast.ClassDef)
        for function in node.body
        if isinstance(function, ast.FunctionDef) and function.name == "__init__"
    }
    assert not {name: count for name, count in counts.items() if count > MAX_CONSTRUCTOR_PARAMETERS}


def test_class_names_are_unique() -> None:
    files = defaultdict(list)
    for name, node in definitions(ast.ClassDef):
        files[node.name].append(name)
    shared = {name: places for name, places in files.items() if len(places) > 1}
    assert set(shared) <= SHARED_NAMES, shared
    assert len(SHARED_NAMES) <= 5
