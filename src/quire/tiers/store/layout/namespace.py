"""The directory of a namespace, named after its model, and the labels of its documents."""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from quire.tiers.store.layout.cipher import SEAL_BYTES, Cipher
from quire.tiers.store.layout.files import OpenFile, check_directory, locked, make_directory, write_whole
from quire.tiers.store.layout.record import KEY_BYTES, VERSION

logger = logging.getLogger("quire")

FACTS = "namespace.json"
LABELS = "labels"  #: lines of JSON behind their checksums; damaged ones are skipped
LOCK = "lock"
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)


@dataclass(frozen=True)
class Namespace:
    """The content of `namespace.json`."""

    path: Path
    model: str
    root: bytes
    block_bytes: int
    facts: Mapping[str, str]
    cipher: Cipher | None = None

    @property
    def is_locked(self) -> bool:
        """Whether the blocks are encrypted by an unknown key."""
        return self.cipher is None and bool(self.facts.get("encrypted_by"))

    @property
    def lock_path(self) -> Path:
        """The directory's lock."""
        return self.path.parent / LOCK


def open_directory(directory: str | os.PathLike[str]) -> tuple[Path, bool]:
    """Create the store's directory unless it exists. Returns it, and whether it is read-only."""
    path = Path(directory).expanduser()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        make_directory(path)
        check_directory(path)
        try:
            OpenFile(path / LOCK, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            if error.errno not in _READ_ONLY:
                raise
            return path, True
    except OSError as error:
        raise ValueError(
            f"kv_dir={str(directory)!r} cannot be used: {error.strerror or error}; name a directory on a disk where "
            "this user may write"
        ) from None
    return path, False


def open_namespace(
    directory: Path, read_only: bool, model: str, root: bytes, block_bytes: int, facts: Mapping[str, str]
) -> Namespace:
    """Create or check a namespace's directory, under the directory's lock. ValueError if it cannot be used."""
    if len(root) != KEY_BYTES:
        raise ValueError(f"a namespace's root has {KEY_BYTES} bytes")
    path = _locate(directory, model, root)
    if read_only:
        if not path.is_dir():
            raise ValueError(
                f"kv_dir={str(directory)!r} cannot be written to, and holds nothing of this model; name a directory "
                "where this user may write"
            )
    else:
        make_directory(path)
    check_directory(path)
    known = _read_facts(path)
    own = {"format": VERSION, "model": model, "root": root.hex(), "block_bytes": block_bytes, "facts": dict(facts)}
    is_other = known is not None and any(known.get(each) != own[each] for each in ("format", "root", "block_bytes"))
    if known is not None and known.get("format") in (None, VERSION) and is_other:
        logger.warning("%s is damaged: it describes other KV; it is put aside and written again", path / FACTS)
        if not read_only:
            os.replace(path / FACTS, path / f"{FACTS}.damaged")
        known = None
    if known is None and not read_only:
        write_whole(path / FACTS, json.dumps(own, indent=2).encode() + b"\n")
    if known is not None and known.get("format") != VERSION:
        raise ValueError(
            f"{str(path)!r} was written by another version of Quire (format {known.get('format')}, and this one has "
            f"{VERSION}); remove it, or name another kv_dir"
        )
    return Namespace(path, model, root, block_bytes, dict(facts))


def _locate(directory: Path, model: str, root: bytes) -> Path:
    """The path of a namespace. One with another model name, as after a copy, is found by its root."""
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip("-.")[-48:] or "model"
    path = directory / f"{slug}-{root.hex()[:12]}"
    return path if path.is_dir() else min(directory.glob(f"*-{root.hex()[:12]}"), default=path)


def read_namespace(path: Path, cipher: Cipher | None = None) -> Namespace | None:
    """Read a namespace, locked unless it is encrypted by this cipher or none; None if it is not of this version."""
    known = _read_facts(path)
    if known is None or known.get("format") != VERSION:
        return None
    try:
        root, facts = bytes.fromhex(known["root"]), dict(known["facts"])
        own = cipher if cipher is not None and facts.get("encrypted_by") == cipher.name else None
        return Namespace(path, str(known["model"]), root, int(known["block_bytes"]), facts, own)
    except (KeyError, TypeError, ValueError):
        return None


def _read_facts(path: Path) -> dict[str, Any] | None:
    """None if the file is missing or damaged; then it is written again."""
    with contextlib.suppress(OSError, ValueError):
        known = json.loads((path / FACTS).read_text())
        if isinstance(known, dict):
            return known
    return None


@dataclass(frozen=True)
class Label:
    """A named document. The last label of a name is valid; one without keys marks a deleted document."""

    name: str
    keys: tuple[bytes, ...]  #: known keys of its blocks, in order
    num_tokens: int = 0
    domain: str = ""


def write_label(namespace: Namespace, label: Label) -> None:
    fields = [label.name, [key.hex() for key in label.keys], label.num_tokens, label.domain]
    line = json.dumps(fields).encode()
    if namespace.cipher is not None:
        line = base64.b64encode(b"".join(namespace.cipher.encrypt(namespace.root, line)))
    with locked(namespace.path / LABELS, os.O_APPEND) as file:
        os.write(file.fd, b"\n%016x %s\n" % (xxhash.xxh3_64_intdigest(line), line))  # the file may end in half a line


def read_labels(namespace: Namespace) -> Mapping[str, Label]:
    """Read the valid labels by name, oldest first. A locked namespace shows none."""
    labels: dict[str, Label] = {}
    try:
        lines = [] if namespace.is_locked else (namespace.path / LABELS).read_bytes().split(b"\n")
    except OSError:
        return labels
    for line in lines:
        if line[17:] and line[:16] == b"%016x" % xxhash.xxh3_64_intdigest(line[17:]):
            fields = _decrypt(namespace, line[17:])
            if fields is None:
                continue
            name, keys, num_tokens, domain = json.loads(fields)
            labels.pop(name, None)
            if keys:
                labels[name] = Label(name, tuple(bytes.fromhex(key) for key in keys), num_tokens, domain)
    return labels


def _decrypt(namespace: Namespace, line: bytes) -> bytes | None:
    """Decrypt a label's line; None if it was altered."""
    if namespace.cipher is None:
        return line
    with contextlib.suppress(ValueError):
        data = bytearray(base64.b64decode(line))
        seal, fields = bytes(data[:SEAL_BYTES]), data[SEAL_BYTES:]
        return bytes(fields) if namespace.cipher.decrypt(namespace.root, seal, fields) else None
    return None
