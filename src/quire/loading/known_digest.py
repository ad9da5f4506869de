"""Digests of checkpoints that need not be hashed again: from this user's cache, or from a manifest beside the weights.

Cached: one file a checkpoint, believed while device, inode, size, mtime and ctime of all its weight files are what they
were. The ctime notices who sets an mtime back, as `cp -p` does over an older file. A file that was modified within the
last few seconds could change again without a new mtime, so that its digest is not kept, as in git's index.

A manifest, `quire-manifest.json`, travels with a checkpoint to machines that have no cache. It has name, size, mtime
and a sample of each file. Names and sizes alone would not do: who trains on and saves again leaves files of the same
names and sizes. Copies that keep mtimes (`cp -a`, `rsync -a`, `tar`) keep a manifest valid; after others it does not
fit. The sample is for images whose files are all set to one mtime.

A pack (`loading.stage_manifest`) says in its own manifest whose weights it has. There names, sizes and samples do:
whatever else differs is noticed when it is loaded, by the digests of its files.
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
from quire.loading.stage_manifest import STAGES_FILE, is_pack, read_stage_manifest
from quire.system.user_cache import replace_file, user_cache

logger = logging.getLogger(__name__)

MANIFEST_FILE = "quire-manifest.json"
SETTLED_NS = 3 * 10**9  #: a file that is older than this gets a new mtime by whatever changes it; FAT counts in 2 s
_VERSION = 1  #: of cached files and of manifests
_SAMPLES, _SAMPLE_BYTES = 16, 4096  #: of a file, from its first bytes to its last
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class WeightFile:
    """A file as it is now: another content has another one of these."""

    name: str
    device: int
    inode: int
    size: int  #: bytes
    mtime_ns: int
    ctime_ns: int


WeightFiles = tuple[WeightFile, ...]


def stat_weights(directory: Path) -> WeightFiles:
    """The files of a checkpoint's weights, in the order of their names.

    Raises:
        ModelLoadError: there are none, or one cannot be looked at.
    """
    found = []
    for path in weight_files(directory):
        try:
            stat = path.stat()
        except OSError as error:
            raise ModelLoadError(f"{path} cannot be read ({error.strerror or error})") from None
        name = os.path.relpath(path, directory)
        found.append(WeightFile(name, stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))
    return tuple(found)


def known_digest(directory: Path, files: WeightFiles) -> str | None:
    """The digest if it can be told without reading the weights, from the cache or else a manifest that fits.

    Args:
        files: what `stat_weights` found.
    """
    if (cached := _cached_digest(directory, files)) is not None:
        return cached
    with contextlib.suppress(ModelLoadError):
        return _promised_digest(directory, files)
    return None


def checkpoint_digest(
    directory: Path, *, files: WeightFiles | None = None, is_strict: bool = False, use_tqdm: bool = True
) -> str:
    """The digest of a checkpoint's weights: known, or hashed and then kept in the cache.

    Args:
        files: as they were when the weights were loaded; None where that does not matter.
        is_strict: a manifest that does not fit is an error; otherwise a warning tells of it.

    Raises:
        ModelLoadError: the weights cannot be read, have changed since `files`, or change meanwhile.
    """
    now = stat_weights(directory)
    if files is not None and now != files:
        raise ModelLoadError(f"the weights in {directory} changed after they were loaded; load them again")
    cached, promised = _cached_digest(directory, now), None
    try:
        promised = _promised_digest(directory, now)
        if None not in (cached, promised) and cached != promised:
            is_own = (directory / MANIFEST_FILE).exists()
            raise _misfit(directory, "names another digest than the weights have") if is_own else _bad_pack(directory)
    except ModelLoadError as error:
        if is_strict:
            raise
        if cached is None:
            logger.warning("%s. The weights are hashed instead", error)
    return cached or promised or hash_weights(directory, use_tqdm=use_tqdm)


def hash_weights(directory: Path, *, use_tqdm: bool = True) -> str:
    """Hash every byte, whatever is known, and keep the digest in the cache. Where that cannot be written, so be it.

    Raises:
        ModelLoadError: the weights cannot be read, or change meanwhile.
    """
    started_ns = time.time_ns()
    files = stat_weights(directory)
    with bytes_progress("Hashing weights", sum(file.size for file in files), use_tqdm) as advance:
        digest = hash_checkpoint(directory, advance=advance)
    _check_unchanged(directory, files)
    keep_digest(directory, files, digest, started_ns)
    return digest


def keep_digest(directory: Path, files: WeightFiles, digest: str, started_ns: int) -> None:
    """Keep a digest that was just taken in the cache. Where that cannot be written, so be it.

    Args:
        files: as they were before they were read and are after.
        started_ns: when reading began, on the system's clock.
    """
    if _seconds_to_settle(files, started_ns) <= 0:
        with contextlib.suppress(OSError):
            _keep(directory, files, digest)


def _check_unchanged(directory: Path, files: WeightFiles) -> None:
    if stat_weights(directory) != files:
        raise ModelLoadError(
            f"the weights in {directory} changed while they were hashed; try again when they are whole"
        )


def read_manifest(directory: Path, files: WeightFiles) -> str | None:
    """The digest that a manifest beside the weights promises; None where there is no manifest.

    Raises:
        ModelLoadError: there is one, and it is not of these files; how to mend it.
    """
    try:
        manifest = json.loads((directory / MANIFEST_FILE).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise _misfit(directory, f"cannot be read ({error})") from None
    if not isinstance(manifest, dict) or manifest.get("quire_manifest") != _VERSION:
        raise _misfit(directory, f"is not of version {_VERSION}")
    digest = manifest.get("weights")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise _misfit(directory, "names no digest")
    if manifest.get("files") != _describe(directory, files):
        raise _misfit(directory, "does not fit the weights beside it: their names, sizes, times or bytes are others")
    return digest


def _promised_digest(directory: Path, files: WeightFiles) -> str | None:
    """By a manifest beside the weights, or else by a pack's."""
    return read_manifest(directory, files) or _packed_digest(directory, files)


def _packed_digest(directory: Path, files: WeightFiles) -> str | None:
    """The digest of the original that a pack was made of; None where there is no pack."""
    if not is_pack(directory):
        return None
    manifest = read_stage_manifest(directory)
    packed = [manifest.files[group.file] for group in manifest.groups]
    promised = {file.name: (file.num_bytes, file.sample) for file in packed}
    if promised != {file.name: (file.size, sample_file(directory / file.name, file.size)) for file in files}:
        raise _bad_pack(directory)
    return manifest.weights


def _bad_pack(directory: Path) -> ModelLoadError:
    return ModelLoadError(
        f"{directory / STAGES_FILE} does not fit the weights beside it; `quire stages verify {directory}` says why"
    )


def write_manifest(directory: Path, *, use_tqdm: bool = True) -> str:
    """Hash every byte and write the manifest, in the place of an earlier one. Returns the digest.

    Waits up to three seconds where the weights were just written, until a later change would show.

    Raises:
        ModelLoadError: the weights cannot be read or change meanwhile, or the directory cannot be written.
    """
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
    """What a manifest says of files. mtimes are in whole seconds: archives keep no more."""
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
    """A digest of 64 KiB of a file, from its first bytes to its last: files that were trained on differ in it."""
    digest = hashlib.sha256()
    last = max(0, size - _SAMPLE_BYTES)
    try:
        with path.open("rb", buffering=0) as file:
            for i in range(_SAMPLES):
                file.seek(last * i // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE_BYTES))
    except OSError as error:
        raise ModelLoadError(f"{path} cannot be read ({error.strerror or error})") from None
    return digest.hexdigest()


def _misfit(directory: Path, what: str) -> ModelLoadError:
    return ModelLoadError(
        f"{directory / MANIFEST_FILE} {what}; if the weights are as they should be, write it anew with "
        f"`quire digest --write-manifest {directory}`, or delete it"
    )


def _seconds_to_settle(files: WeightFiles, now_ns: int) -> float:
    """Until any further change of the files shows in an mtime; not above 0 if it does already."""
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
        "directory": os.path.realpath(directory),  # for people
        "files": content[0],
        "weights": digest,
        "sha256": _checksum(content),
    }
    replace_file(_cache_path(directory), json.dumps(kept))


def _checksum(content: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
