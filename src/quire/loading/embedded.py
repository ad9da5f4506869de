"""The models that ship with Quire: small, made by `train/`, and named without a path."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent.parent / "embedded"

EMBEDDED_MODELS = {
    "quire-mini": "Reads a passage and answers a question about it in a few words (Llama architecture).",
    "quire-chat": "Small talk in full sentences (GPT-2 architecture).",
}
"""Name -> what it is for, in the order in which they are served by default."""


def embedded_path(name: str) -> Path | None:
    """The folder of an embedded model, in the Hugging Face format; None for any other name."""
    return _FOLDER / name if name in EMBEDDED_MODELS else None
