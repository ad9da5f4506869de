"""Cost models on disk: one file a machine and namespace, so that a start need not measure again.

A file that is torn, changed, of another version, or of another machine or namespace is as good as none: the model is
measured anew and replaces it. Writing is by replacing whole files, so that a reader never sees half of one.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

from quire.core.costs.cost_model import CostModel

_VERSION = 1  #: of the file around the model


def describe_machine(device: str = "cpu") -> dict[str, str | int]:
    """What makes timings of one machine comparable: its processor, the cores of it that this process may use, memory.

    Args:
        device: where the model computes, by a name that another kind of device does not have.
    """
    return {
        "cpu": _cpu_name(),
        "architecture": platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "memory_gib": _memory_gib(),
        "device": device,
    }


def profile_path(directory: Path, machine: dict[str, str | int], namespace: bytes) -> Path:
    """The file of a machine and namespace.

    Args:
        directory: where profiles are kept.
        machine: `describe_machine`.
        namespace: the namespace's key (`block_keys.Namespace.root`).
    """
    digest = hashlib.sha256(_canonical(machine)).hexdigest()
    return directory / f"{namespace.hex()[:16] or 'none'}-{digest[:16]}.json"


def save_profile(path: Path, model: CostModel, machine: dict[str, str | int], namespace: bytes) -> None:
    """Write a model, in the place of what is there.

    Raises:
        OSError: the disk is full, or the directory cannot be written.
    """
    content = {"machine": machine, "namespace": namespace.hex(), "model": model.to_dict()}
    envelope = {"version": _VERSION, "sha256": hashlib.sha256(_canonical(content)).hexdigest(), **content}
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(envelope, file)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def load_profile(path: Path, machine: dict[str, str | int], namespace: bytes) -> CostModel | None:
    """The model that was saved for this machine and namespace. None where there is none that can be trusted."""
    try:
        envelope = json.loads(path.read_bytes())
        content = {name: envelope[name] for name in ("machine", "namespace", "model")}
        if envelope["version"] != _VERSION or envelope["sha256"] != hashlib.sha256(_canonical(content)).hexdigest():
            return None
        if content["machine"] != machine or content["namespace"] != namespace.hex():
            return None
        return CostModel.from_dict(envelope["model"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _canonical(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Hardware", "cpu model"):
                return value.strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _memory_gib() -> int:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    except (AttributeError, ValueError, OSError):
        return 0
