"""The directory of a healing: what it is about, its checkpoint while it runs, and at the end the adapter."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from quire.system.user_cache import replace_file

ADAPTER_FILE = "adapter_model.safetensors"
_CONFIG_FILE = "adapter_config.json"
_ABOUT_FILE = "healing.json"
_CHECKPOINT_FILE = "checkpoint.pt"
_GENERATED_FILE = "generated.json"
_OWN_FILES = {ADAPTER_FILE, _CONFIG_FILE, _ABOUT_FILE, _CHECKPOINT_FILE, _GENERATED_FILE}


class HealRun:
    """Whatever it writes appears whole: a run may be killed at any moment.

    Args:
        directory: made if there is none.
        resume: go on with what is there; otherwise it must be empty.

    Raises:
        ValueError: it holds something else, or something at all without `resume`, or cannot be written.
    """

    def __init__(self, directory: Path, *, resume: bool) -> None:
        self.directory = directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
            found = {path.name for path in directory.iterdir() if not path.name.startswith(".")}
        except OSError as error:
            raise ValueError(f"{directory} cannot be used: {error.strerror or error}; name a directory") from None
        if found and not resume:
            raise ValueError(f"{directory} is not empty; go on with what is there by --resume, or name another one")
        if found - _OWN_FILES:
            raise ValueError(f"{directory} holds {sorted(found - _OWN_FILES)[0]}, which is of no healing; name another")

    def final_loss(self) -> float | None:
        """Of a run that is finished."""
        if not (self.directory / ADAPTER_FILE).exists():
            return None
        return float(json.loads((self.directory / _ABOUT_FILE).read_text())["loss"])

    def check_same(self, about: Mapping[str, Any]) -> None:
        """Write down what the run is about, or compare: a run that goes on must be the same.

        Raises:
            ValueError: it is another one; the message names what differs.
        """
        file = self.directory / _ABOUT_FILE
        about = json.loads(json.dumps(about))
        if not file.exists():
            self._write_json(_ABOUT_FILE, about)
            return
        before = json.loads(file.read_text())
        for name in (about.keys() | before.keys()) - {"loss"}:
            if about.get(name) != before.get(name):
                raise ValueError(
                    f"{self.directory} was begun with another {name} ({_shown(before.get(name))}, and now it is "
                    f"{_shown(about.get(name))}); resume with the same options and files, or name another directory"
                )

    def generated(self) -> list[list[int]] | None:
        """Token ids of the texts that were generated for this run, if they were."""
        file = self.directory / _GENERATED_FILE
        return json.loads(file.read_text()) if file.exists() else None

    def keep_generated(self, texts: list[list[int]]) -> None:
        replace_file(self.directory / _GENERATED_FILE, json.dumps(texts) + "\n", mode=0o644)

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        _write_whole(self.directory / _CHECKPOINT_FILE, lambda path: torch.save(state, path))

    def load_checkpoint(self) -> dict[str, Any] | None:
        file = self.directory / _CHECKPOINT_FILE
        return torch.load(file, weights_only=True) if file.exists() else None

    def finish(self, config: Mapping[str, Any], adapter: Mapping[str, Tensor], *, loss: float) -> None:
        """Leave the adapter in PEFT's format in the place of the checkpoint."""
        about = json.loads((self.directory / _ABOUT_FILE).read_text())
        self._write_json(_ABOUT_FILE, about | {"loss": loss})
        self._write_json(_CONFIG_FILE, config)
        tensors = {name: tensor.contiguous() for name, tensor in adapter.items()}
        # One entry of metadata: several come in an order that differs from process to process.
        _write_whole(self.directory / ADAPTER_FILE, lambda path: save_file(tensors, path, {"format": "pt"}))
        (self.directory / _CHECKPOINT_FILE).unlink(missing_ok=True)

    def _write_json(self, name: str, value: Any) -> None:
        replace_file(self.directory / name, json.dumps(value, indent=2, sort_keys=True) + "\n", mode=0o644)


def _write_whole(path: Path, write: Any) -> None:
    temporary = path.with_name(f".{path.name}")
    write(temporary)
    temporary.chmod(0o644)
    os.replace(temporary, path)


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 60 else f"{text[:56]}..."
