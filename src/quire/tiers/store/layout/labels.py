"""Names of documents, for listing and deleting.

Each label is a line of JSON behind its checksum. The last label of a name is valid; one without keys marks a deleted
document. Damaged lines are skipped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import xxhash

from quire.tiers.store.layout.files import OpenFile

NAME = "labels"


@dataclass(frozen=True)
class Label:
    """A named document."""

    name: str
    keys: tuple[bytes, ...]  #: known keys of its blocks, in order
    num_tokens: int = 0
    domain: str = ""


def write_label(namespace: Path, label: Label) -> None:
    fields = [label.name, [key.hex() for key in label.keys], label.num_tokens, label.domain]
    line = json.dumps(fields).encode()
    file = OpenFile(namespace / NAME, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        file.wait_for_lock()
        os.write(file.fd, b"\n%016x %s\n" % (xxhash.xxh3_64_intdigest(line), line))  # the file may end in half a line
    finally:
        file.close()


def read_labels(namespace: Path) -> Mapping[str, Label]:
    """Read the valid labels by name, oldest first."""
    labels: dict[str, Label] = {}
    try:
        lines = (namespace / NAME).read_bytes().split(b"\n")
    except OSError:
        return labels
    for line in lines:
        if line[17:] and line[:16] == b"%016x" % xxhash.xxh3_64_intdigest(line[17:]):
            name, keys, num_tokens, domain = json.loads(line[17:])
            labels.pop(name, None)
            if keys:
                labels[name] = Label(name, tuple(bytes.fromhex(key) for key in keys), num_tokens, domain)
    return labels
