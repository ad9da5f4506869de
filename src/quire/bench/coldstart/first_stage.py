"""What a pack serves first, as a checkpoint of its own: the yardstick for streams that run while the rest arrives."""

from __future__ import annotations

import json
import re
from pathlib import Path

from quire.loading.checkpoint import SINGLE_FILE, read_headers
from quire.loading.source import read_json_object
from quire.loading.stage_manifest import StageManifest
from quire.progressive.group_file import write_tensors

_NUM_LAYERS = ("num_hidden_layers", "n_layer")


def write_first_stage(manifest: StageManifest, directory: Path) -> Path:
    """Write the first stage's layers as a model that has no others, without adapter and tokenizer."""
    source = manifest.directory
    index = {layer: place for place, layer in enumerate(manifest.groups[0].layers)}
    tensors = {
        re.sub(r"\.(\d+)\.", lambda found: f".{index[int(found[1])]}.", name, count=1): entry
        for name, entry in read_headers(source).items()
        if entry.file.name == manifest.groups[0].file
    }
    write_tensors(directory, SINGLE_FILE, tensors, lambda num_bytes: None)
    config = read_json_object(source / "config.json")
    config |= {name: len(index) for name in _NUM_LAYERS if name in config}
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return directory
