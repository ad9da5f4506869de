"""Digests of checkpoints that were hashed before.

The user's cache has a file per checkpoint. It is valid while device, inode, size, mtime and ctime of all weight files
are unchanged; ctime reveals an mtime that was set back. As in git's index, files modified within the last seconds are
not cached. The manifest `quire-manifest.json` lies beside the weights, with name, size, mtime and a sample of each
file: it remains valid after `cp -a`, and not after training. A pack has its own manifest (`loading.stage_manifest`),
whose names, sizes and samples must match; loading verifies the checksums.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from quire.loading.checkpoint import weight_files
from quire.loading.digest import hash_checkpoint
from quire.loading.errors import ModelLoadError
from quire.loading.progress import bytes_progress
from quire.loading.remote import open_file, remote_file
from quire.loading.stage_manifest import STAGES_FILE, is_pack, read_stage_manifest
from quire.system.user_cache import replace_file, user_cache

logger = logging.getLogger(__name__)

MANIFEST_FILE = "quire-manifest.json"
SETTLED_NS = 3 * 10**9  #: any change of an older file gives it a new mtime; FAT counts in 2 s
_VERSION = 1  #: of cache files and manifests
_SAMPLES, _SAMPLE_BYTES = 16, 4096  #: spread over a file
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class WeightFile:
    """The identity of a file's content: a changed file has another one."""

    name: str
    device: int
    inode: int
    size: int  #: bytes
    mtime_ns: int
    ctime_ns: int


WeightFiles = tuple[WeightFile, ...]


def stat_weights(directory: Path) -> WeightFiles:
    """Return the identities of a checkpoint's weight files, by name."""
    found = []
    for path in weight_files(directory):
        name = os.path.relpath(path, directory)
        if (remote := remote_file(path)) is not None:
            found.append(WeightFile(name, 0, remote.identity, remote.size, remote.modified_ns, 0))
            continue
        try:
            stat = path.stat()
        except OSError as error:
            raise ModelLoadError(f"{path} cannot be read ({error.strerror or error})") from None
        found.append(WeightFile(name, stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))
    return tuple(found)


def known_digest(directory: Path, files: WeightFiles) -> str | None:
    """Return the digest from the cache or a valid manifest; None if the weights must be hashed."""
    if (cached := _cached_digest(directory, files)) is not None:
        return cached
    with contextlib.suppress(ModelLoadError):
        return _manifest_digest(directory, files)
    return None


def checkpoint_digest(
    directory: Path, *, files: WeightFiles | None = None, is_strict: bool = False, use_tqdm: bool = True
) -> str:
    """Return the digest of a checkpoint's weights; compute and cache an unknown one. An invalid manifest is a warning,
    or an error if `is_strict`. ModelLoadError if weights cannot be read, or changed during hashing or since `files`."""
    now = stat_weights(directory)
    if files is not None and now != files:
        raise ModelLoadError(f"the weights in {directory} changed after they were loaded; load them again")
    cached, stated = _cached_digest(directory, now), None
    try:
        stated = _manifest_digest(directory, now)
        if None not in (cached, stated) and cached != stated:
            is_own = (directory / MANIFEST_FILE).exists()
            raise _misfit(directory, "names another digest than the weights have") if is_own else _bad_pack(directory)
    except ModelLoadError as error:
        if is_strict:
            raise
        if cached is None:
            logger.warning("%s. The weights are hashed instead", error)
    return cached or stated or hash_weights(directory, use_tqdm=use_tqdm)


def hash_weights(directory: Path, *, use_tqdm: bool = True) -> str:
    """Hash all weights and cache the digest. Raises as `checkpoint_digest`."""
    started_ns = time.time_ns()
    files = stat_weights(directory)
    with bytes_progress("Hashing weights", sum(file.size for file in files), use_tqdm) as advance:
        digest = hash_checkpoint(directory, advance=advance)
    _check_unchanged(directory, files)
    keep_digest(directory, files, digest, started_ns)
    return digest


def keep_digest(directory: Path, files: WeightFiles, digest: str, started_ns: int) -> None:
    """Cache the digest of unchanged files that were read from `started_ns` on, if the cache is writable."""
    if _seconds_to_settle(files, started_ns) <= 0:
        with contextlib.suppress(OSError):
            _keep(directory, files, digest)


def _check_unchanged(directory: Path, files: WeightFiles) -> None:
    if stat_weights(directory) != files:
        raise ModelLoadError(
            f"the weights in {directory} changed while they were hashed; try again when they are complete"
        )


def read_manifest(directory: Path, files: WeightFiles) -> str | None:
    """Return the digest from the manifest beside the weights; None without one. A mismatch is an error."""
    try:
        manifest = json.loads((directory / MANIFEST_FILE).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise _misfit(directory, f"cannot be read ({error})") from None
    if not isinstance(manifest, dict) or manifest.get("quire_manifest") != _VERSION:
        raise _misfit(directory, f"does not have version {_VERSION}")
    digest = manifest.get("weights")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise _misfit(directory, "names no digest")
    if manifest.get("files") != _describe(directory, files):
        raise _misfit(directory, "does not match the weights beside it: their names, sizes, times or bytes differ")
    return digest


def _manifest_digest(directory: Path, files: WeightFiles) -> str | None:
    if (digest := read_manifest(directory, files)) is not None or not is_pack(directory):
        return digest
    manifest = read_stage_manifest(directory)
    packed = [manifest.files[group.file] for group in manifest.groups]
    stated = {file.name: (file.num_bytes, file.sample) for file in packed}
    if stated != {file.name: (file.size, sample_file(directory / file.name, file.size)) for file in files}:
        raise _bad_pack(directory)
    return manifest.weights


def _bad_pack(directory: Path) -> ModelLoadError:
    return ModelLoadError(
        f"{directory / STAGES_FILE} does not match the weights beside it; `quire stages verify {directory}` says why"
    )


def write_manifest(directory: Path, *, use_tqdm: bool = True) -> str:
    """Hash all weights and write the manifest, up to three seconds later, when changes give a new mtime."""
    if not directory.is_dir():
        raise ModelLoadError(f"{directory} is one file, and a manifest lies in a directory; its digest is cached")
    files = stat_weights(directory)
    seconds = _seconds_to_settle(files, time.time_ns())
    if seconds > SETTLED_NS / 1e9:
        raise ModelLoadError(f"weights in {directory} are dated in the future; `touch` them or set the clock")
    time.sleep(max(0.0, seconds))
    digest = hash_weights(directory, use_tqdm=use_tqdm)
    _check_unchanged(directory, files)
    manifest = {"quire_manifest": _VERSION, "weights": digest, "files": _describe(directory, files)}
    try:
        replace_file(directory / MANIFEST_FILE, json.dumps(manifest, indent=2) + "\n", mode=0o644)
    except OSError as error:
        raise ModelLoadError(f"{directory / MANIFEST_FILE} cannot be written: {error.strerror or error}") from None
    return digest


def _describe(directory: Path, files: WeightFiles) -> list[dict[str, Any]]:
    """Describe files for a manifest. mtimes are in whole seconds, as in archives."""
    return [
        {
            "name": file.name,
            "size": file.size,
            "mtime": file.mtime_ns // 10**9,
            "sample": sample_file(directory / file.name, file.size),
        }
        for file in files
    ]


def sample_file(path: Path, size: int) -> str:
    """Hash 64 KiB spread over a file. Further training changes this sample."""
    digest = hashlib.sha256()
    last = max(0, size - _SAMPLE_BYTES)
    try:
        with open_file(path) as file:
            for i in range(_SAMPLES):
                file.seek(last * i // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE_BYTES))
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be read ({error.strerror or error})") from None
    return digest.hexdigest()


def _misfit(directory: Path, what: str) -> ModelLoadError:
    return ModelLoadError(
        f"{directory / MANIFEST_FILE} {what}; if the weights are correct, write it again with "
        f"`quire digest --write-manifest {directory}`, or delete it"
    )


def _seconds_to_settle(files: WeightFiles, now_ns: int) -> float:
    """Return the time until further changes give a new mtime; 0 or less if they already do."""
    return (max(file.mtime_ns for file in files) + SETTLED_NS - now_ns) / 1e9


def _cache_path(directory: Path) -> Path:
    place = hashlib.sha256(os.fsencode(os.path.realpath(directory))).hexdigest()
    return user_cache() / "digests" / f"{place[:32]}.json"


def _cached_digest(directory: Path, files: WeightFiles) -> str | None:
    try:
        kept = json.loads(_cache_path(directory).read_bytes())
        content = [kept["files"], kept["weights"]]
        if kept["version"] != _VERSION or kept["sha256"] != _checksum(content):
            return None
        if kept["files"] != [list(astuple(file)) for file in files] or not _DIGEST.fullmatch(kept["weights"]):
            return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return str(kept["weights"])


def _keep(directory: Path, files: WeightFiles, digest: str) -> None:
    content = [[list(astuple(file)) for file in files], digest]
    kept = {
        "version": _VERSION,
        "directory": os.path.realpath(directory),  # for human readers
        "files": content[0],
        "weights": digest,
        "sha256": _checksum(content),
    }
    replace_file(_cache_path(directory), json.dumps(kept))


def _checksum(content: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
