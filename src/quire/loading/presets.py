"""Presets `random:NAME`: known shapes, random weights, and a tokenizer of bytes (0 to 255; 256 ends a text)."""

from __future__ import annotations

import difflib
import functools
import json
from pathlib import Path
from typing import Any

from quire.loading.errors import ModelLoadError

PRESET_PREFIX = "random:"
_FILE = Path(__file__).with_suffix(".json")
_END_OF_TEXT = 256


@functools.cache
def presets() -> dict[str, dict[str, Any]]:
    """Return the presets by name, in the form of a `config.json`. The large initializer range of the tiny ones makes
    their random text vary."""
    content = json.loads(_FILE.read_text(encoding="utf-8"))
    families = content["families"]  #: values that presets share
    return {name: {**families[values.pop("family")], **values} for name, values in content["presets"].items()}


def preset_names() -> list[str]:
    return [PRESET_PREFIX + name for name in presets()]


def preset_config(name: str) -> dict[str, Any]:
    """Return a preset's config in the form of a `config.json`; raise ModelLoadError for unknown names."""
    key = name.removeprefix(PRESET_PREFIX).lower()
    if key not in presets():
        close = difflib.get_close_matches(key, presets(), n=3)
        hint = f"did you mean {' or '.join(PRESET_PREFIX + c for c in close)}? " if close else ""
        raise ModelLoadError(f"there is no preset {name!r}; {hint}Presets: {', '.join(preset_names())}")
    return {**presets()[key], "bos_token_id": _END_OF_TEXT, "eos_token_id": _END_OF_TEXT}
