"""Lint the prose of code and docs: `python tools/prose.py [PATH ...]`.

Reports
- docstrings, argument descriptions, and help and OpenAPI texts that begin with Of, That, Those, What, Whose, Whoever,
  By which or In which;
- the words whoever, nobody and somebody in code, comments and pages.

A description is a noun phrase ("config: scheduler limits"), and a sentence names its subject.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHECKED = ["src", "docs", "benchmarks", "tools", "deploy", "*.md"]
SUFFIXES = (".py", ".md", ".h", ".cpp")
DESCRIBING_KEYWORDS = ("help", "description", "summary", "epilog")

BAD_START = re.compile(r"(of|that|those|what|whose|whoever|by which|in which)\b", re.IGNORECASE)
BAD_WORD = re.compile(r"\b(whoever|nobody|somebody)\b", re.IGNORECASE)
SECTION = re.compile(r"(Args|Attributes|Returns|Raises|Yields):")
ENTRY = re.compile(r"    ([*\w, ]+):\s*(.*)")

Finding = tuple[int, str]


def check_docstring(docstring: str, line: int) -> Iterator[Finding]:
    """Yield the first line and the argument descriptions with a bad start."""
    if BAD_START.match(docstring.strip()):
        yield line, f"docstring begins with {docstring.split()[0]!r}"
    in_arguments = False
    for offset, text in enumerate(docstring.splitlines()):
        if match := SECTION.match(text):
            in_arguments = match[1] in ("Args", "Attributes")
        elif text and not text.startswith(" "):
            in_arguments = False
        entry = ENTRY.match(text) if in_arguments else None
        if entry and BAD_START.match(entry[2]):
            yield line + offset, f"description of {entry[1]} begins with {entry[2].split()[0]!r}"


def described_texts(call: ast.Call) -> Iterator[ast.expr]:
    """Yield the arguments of a call that users read as help or as a description."""
    yield from (keyword.value for keyword in call.keywords if keyword.arg in DESCRIBING_KEYWORDS)
    if isinstance(call.func, ast.Name) and call.func.id == "setting" and len(call.args) > 1:
        yield call.args[1]


def first_text(expression: ast.expr) -> str:
    """Return the constant text that an expression begins with."""
    while isinstance(expression, ast.BinOp):
        expression = expression.left
    if isinstance(expression, ast.JoinedStr) and expression.values:
        expression = expression.values[0]
    return expression.value if isinstance(expression, ast.Constant) and isinstance(expression.value, str) else ""


def check_python(text: str) -> Iterator[Finding]:
    """Yield docstrings and descriptions with a bad start."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if docstring := ast.get_docstring(node):
                yield from check_docstring(docstring, node.body[0].lineno)
        elif isinstance(node, ast.Call):
            for expression in described_texts(node):
                if BAD_START.match(first_text(expression)):
                    yield expression.lineno, f"text begins with {first_text(expression).split()[0]!r}"


def check_text(text: str, suffix: str) -> list[Finding]:
    """Return all findings of a file's text, sorted by line."""
    words = [
        (number, f"says {match[0]!r}")
        for number, line in enumerate(text.splitlines(), 1)
        for match in BAD_WORD.finditer(line)
    ]
    return sorted(words + list(check_python(text) if suffix == ".py" else ()))


def files_of(paths: list[str]) -> Iterator[Path]:
    """Yield the files below paths and glob patterns that are relative to the repository."""
    for pattern in paths:
        for path in sorted(ROOT.glob(pattern)):
            found = sorted(path.rglob("*")) if path.is_dir() else [path]
            yield from (each for each in found if each.suffix in SUFFIXES and each != Path(__file__).resolve())


def main(arguments: list[str]) -> int:
    """Print the findings of the named paths, or of all; return 1 if there are any."""
    count = 0
    for path in files_of(arguments or CHECKED):
        for line, message in check_text(path.read_text(), path.suffix):
            print(f"{path.relative_to(ROOT)}:{line}: {message}")
            count += 1
    if count:
        print(f"{count} findings", file=sys.stderr)
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
