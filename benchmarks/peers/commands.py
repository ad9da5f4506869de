"""Commands of other engines, from a YAML file (see README.md)."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PRECISIONS = ("float32", "bf16", "float16", "int8", "int4")  #: of the weights; engines of one are compared
_FIELDS = {"command", "precision", "workloads"}


@dataclass(frozen=True)
class Peer:
    """One way to run one engine."""

    name: str
    command: tuple[str, ...]
    precision: str
    workloads: tuple[str, ...] = ()  #: by name, those that it is given; empty: all

    def takes(self, workload: str) -> bool:
        return not self.workloads or workload in self.workloads


def read_peers(path: Path) -> list[Peer]:
    """Read and check a file of commands. Raises ValueError for malformed files."""
    import yaml

    try:
        data = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ValueError(
            f"cannot read {path}: {error.strerror}; it says how each peer is run (quire bench peers --help)"
        ) from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict) or not data:
        raise ValueError(f"{path} names no peers; expected NAME: {{command: ..., precision: ...}}")
    return [_read_peer(str(name), entry, path) for name, entry in data.items()]


def _read_peer(name: str, entry: Any, path: Path) -> Peer:
    where = f"{path}, {name}"
    if not isinstance(entry, dict) or not isinstance(entry.get("command"), str) or not entry["command"].strip():
        raise ValueError(f"{where}: expected a command, such as command: python peer.py --model DIR")
    if unknown := sorted(set(entry) - _FIELDS):
        raise ValueError(f"{where} has the unknown field {unknown[0]!r}; known are {', '.join(sorted(_FIELDS))}")
    if entry.get("precision") not in PRECISIONS:
        raise ValueError(f"{where}: precision is {entry.get('precision')!r}, expected one of {', '.join(PRECISIONS)}")
    workloads = entry.get("workloads", [])
    if not isinstance(workloads, list) or not all(isinstance(each, str) for each in workloads):
        raise ValueError(f"{where}: workloads is {workloads!r}, expected a list of names")
    try:
        command = shlex.split(os.path.expandvars(entry["command"]))
    except ValueError as error:
        raise ValueError(f"{where}: the command cannot be split into words: {error}") from None
    return Peer(name, tuple(command), entry["precision"], tuple(workloads))


def find_missing(peer: Peer, folder: Path) -> str | None:
    """The reason why a command cannot start, such as a missing path; None if it can."""
    for at, word in enumerate(peer.command):
        if "$" in word:
            return f"{word} names a variable that is not set"
        if at == 0 and "/" not in word:
            if shutil.which(word) is None:
                return f"there is no command {word}"
        elif (at == 0 or word.startswith("/") or word.endswith(".py")) and not (folder / word).exists():
            return f"there is no {word}"
    return None


def line_of(text: str) -> dict[str, Any] | None:
    """Parse a line of figures; None for other output."""
    if not text.startswith("{"):
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("workload"), str):
        return None
    measured = [found.get(key) for key in ("wall_s", "ttft_s", "tpot_s", "out_tok_s")]
    has_medians = all(each is None or (isinstance(each, dict) and "median" in each) for each in measured)
    return found if has_medians and measured[0] is not None else None
