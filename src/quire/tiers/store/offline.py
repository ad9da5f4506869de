"""Offline maintenance of a block store: list, verify, prune, delete. Engines may use the store meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from quire.tiers.store.block_store import BlockStore
from quire.tiers.store.eviction import evict, survey, worst_first
from quire.tiers.store.layout.cipher import Cipher
from quire.tiers.store.layout.deletions import Deletions
from quire.tiers.store.layout.files import OpenFile, check_directory, locked
from quire.tiers.store.layout.generation import bump_generation
from quire.tiers.store.layout.namespace import LOCK, Namespace, read_labels, read_namespace
from quire.tiers.store.layout.record import SEGMENT_VERSIONS, read_record
from quire.tiers.store.layout.segment import NAME, Segment, read_file_header

Progress = Callable[[int, int], None]  #: processed and total bytes


@dataclass(frozen=True)
class Document:
    name: str
    num_tokens: int
    domain: str
    num_blocks: int
    num_found: int  #: how many of them are stored


@dataclass
class NamespaceStats:
    name: str  #: directory name
    model: str
    root: str
    facts: dict[str, str]
    block_bytes: int
    num_blocks: int = 0
    num_coded: int = 0  #: blocks with coded exponents
    num_bytes: int = 0  #: size of all files
    dead_bytes: int = 0  #: deleted but not compacted
    num_segments: int = 0
    is_locked: bool = False  #: encrypted, and its key was not given
    oldest_use: float | None = None  #: last use of a segment, in seconds since the epoch
    newest_use: float | None = None
    documents: list[Document] = field(default_factory=list)


@dataclass
class Verification:
    num_blocks: int = 0  #: intact
    num_coded: int = 0  #: of these, with coded exponents
    num_bytes: int = 0  #: read
    locked: list[str] = field(default_factory=list)  #: encrypted namespaces, whose key was not given
    damaged: list[str] = field(default_factory=list)  #: location and damage
    torn: list[str] = field(default_factory=list)  #: unfinished segments of killed writers: nothing is lost


def list_namespaces(directory: str | Path, cipher: Cipher | None = None) -> list[NamespaceStats]:
    """Measure every namespace of this version, by name."""
    return [_measure(namespace) for namespace in _namespaces(_checked(directory), cipher)]


def find_namespace(directory: str | Path, name: str, cipher: Cipher | None = None) -> Namespace:
    """Find a namespace by directory, model name (its first rank's) or start of its root, or raise ValueError."""
    found = [
        each
        for each in _namespaces(_checked(directory), cipher)
        if name == each.path.name
        or (name == each.model and _slice_of(each)[0] == 0)
        or (len(name) >= 4 and each.root.hex().startswith(name))
    ]
    if len(found) != 1:
        known = ", ".join(each.path.name for each in found or _namespaces(Path(directory))) or "none"
        raise ValueError(f"{'several' if found else 'no'} namespaces are called {name!r}; name one of: {known}")
    return found[0]


def verify(directory: str | Path, progress: Progress | None = None, cipher: Cipher | None = None) -> Verification:
    """Read and check every record of every namespace that is not locked."""
    namespaces = _namespaces(_checked(directory), cipher)
    found = Verification(locked=[each.path.name for each in namespaces if each.is_locked])
    files = [(each, path) for each in namespaces if not each.is_locked for path in sorted(each.path.glob("*.seg"))]
    paths = [(each, path) for each, path in files if NAME.fullmatch(path.name)]
    total = sum(path.stat().st_size for _, path in paths if path.exists())
    for namespace, path in paths:
        try:
            _verify_segment(namespace, path, found)
        except FileNotFoundError:
            continue  # evicted meanwhile
        except OSError as error:
            found.damaged.append(f"{path}: {error.strerror or error}")
        if progress is not None:
            progress(min(found.num_bytes, total), total)
    return found


def prune(directory: str | Path, max_bytes: int, namespace: str | None = None) -> list[Path]:
    """Evict the least valuable sealed segments until the directory or namespace fits in `max_bytes`. Returns them."""
    top = _checked(directory)
    only = None if namespace is None else find_namespace(top, namespace).path
    evicted: list[Path] = []
    with locked(top / LOCK):
        usage = survey(top, only)
        excess = usage.num_bytes - max_bytes
        for segment in worst_first(usage.sealed, lambda path: None):
            if excess <= 0:
                break
            index_bytes = segment.index_path.stat().st_size if segment.index_path.exists() else 0
            if evict(segment):
                evicted.append(segment.path)
                excess -= segment.size + index_bytes
    for path in {path.parent for path in evicted}:
        bump_generation(path)
    return evicted


def delete_label(directory: str | Path, namespace: str, name: str, cipher: Cipher | None = None) -> int:
    """Delete a named document with all blocks chained after it, on all ranks. Returns their number on one. ValueError
    for an unknown name, or a namespace encrypted by another key."""
    found = find_namespace(directory, namespace, cipher)
    if found.is_locked:
        raise ValueError(f"{found.path.name} is encrypted; name the file of its key with --kv-dir-key")
    label = read_labels(found).get(name)
    if label is None:
        raise ValueError(f"no document of {found.path.name} is called {name!r}; `quire kv ls` lists them")
    for other in _namespaces_of_slices(found):
        if other.root != found.root:
            with closing(_open(other)) as store:
                store.delete(label.keys)
    with closing(_open(found)) as store:
        return store.delete_label(name)


def _open(namespace: Namespace) -> BlockStore:
    return BlockStore(
        namespace.path.parent,
        model=namespace.model,
        root=namespace.root,
        block_bytes=namespace.block_bytes,
        max_bytes=1 << 50,
        facts=namespace.facts,
        cipher=namespace.cipher,
    )


def _slice_of(namespace: Namespace) -> tuple[int, int]:
    """Rank and number of ranks of a namespace."""
    rank, _, num_ranks = str(namespace.facts.get("parallel_slice", "0/1")).partition("/")
    return int(rank), int(num_ranks)


def _namespaces_of_slices(namespace: Namespace) -> list[Namespace]:
    neighbours = _namespaces(namespace.path.parent, namespace.cipher)
    found = [each for each in neighbours if _whole_facts(each) == _whole_facts(namespace)]
    return sorted(found, key=_slice_of)


def _whole_facts(namespace: Namespace) -> tuple[str, dict[str, str]]:
    """Model and facts of a namespace without its rank."""
    return namespace.model, {**namespace.facts, "parallel_slice": str(_slice_of(namespace)[1])}


def _checked(directory: str | Path) -> Path:
    path = Path(directory).expanduser()
    if not path.exists():
        raise ValueError(f"there is no directory {str(directory)!r}")
    check_directory(path)
    return path


def _namespaces(directory: Path, cipher: Cipher | None = None) -> list[Namespace]:
    found = [read_namespace(path, cipher) for path in sorted(directory.iterdir()) if path.is_dir()]
    return [namespace for namespace in found if namespace is not None]


def _load(namespace: Namespace, path: Path) -> Segment | None:
    """Load a segment; None if it is of another version, damaged or gone."""
    try:
        file = OpenFile(path)
        header = read_file_header(file)
        if header is None or header.version not in SEGMENT_VERSIONS or header.root != namespace.root:
            return None
        segment = Segment(0, path, namespace.root, namespace.block_bytes)
        if not segment.load_index():
            segment.scan(file)
        return segment
    except OSError:
        return None


def _measure(namespace: Namespace) -> NamespaceStats:
    stats = NamespaceStats(
        namespace.path.name, namespace.model, namespace.root.hex(), dict(namespace.facts), namespace.block_bytes
    )
    stats.is_locked = namespace.is_locked
    deletions = Deletions(namespace.path, namespace.root, read_only=True)
    deletions.refresh()
    keys: dict[bytes, bool] = {}  #: of stored blocks: whether they are coded
    uses: list[float] = []
    for path in namespace.path.iterdir():
        try:
            found = path.stat()
        except OSError:
            continue
        stats.num_bytes += found.st_size
        segment = _load(namespace, path) if NAME.fullmatch(path.name) else None
        if segment is not None:
            stats.num_segments += 1
            uses.append(found.st_mtime)
            for number, row in segment.enumerate_rows():
                if deletions.is_dead(row):
                    stats.dead_bytes += segment.num_bytes(number)
                else:
                    keys[row.key] = segment.is_coded(number)
    stats.num_blocks, stats.num_coded = len(keys), sum(keys.values())
    stats.oldest_use, stats.newest_use = (min(uses), max(uses)) if uses else (None, None)
    stats.documents = [
        Document(each.name, each.num_tokens, each.domain, len(each.keys), sum(key in keys for key in each.keys))
        for each in read_labels(namespace).values()
    ]
    deletions.close()
    return stats


def _verify_segment(namespace: Namespace, path: Path, found: Verification) -> None:
    file = OpenFile(path)
    size = file.size
    header = read_file_header(file)
    if header is None:
        found.damaged.append(f"{path}: its header")
        return
    if header.version not in SEGMENT_VERSIONS:
        return
    segment = Segment(0, path, namespace.root, namespace.block_bytes)
    segment.scan(file)
    intact = {number for number, _ in segment.enumerate_rows()}
    bad: list[int] = []
    for number in range(segment.num_rows):
        record = memoryview(os.pread(file.fd, segment.num_bytes(number), segment.offset(number)))
        if number in intact and read_record(segment.root, segment.block_bytes, record, namespace.cipher) is not None:
            found.num_blocks += 1
            found.num_coded += segment.is_coded(number)
        else:
            bad.append(number)
    num_rows, is_sealed, is_torn = segment.num_rows, segment.index_path.exists(), segment.size < size
    while bad and bad[-1] == num_rows - 1 and not is_sealed:
        bad.pop()  # its writer was killed while writing
        num_rows -= 1
        is_torn = True
    if is_sealed and is_torn:
        bad.append(num_rows)
    found.damaged += [f"{path}: record {number}, at byte {segment.offset(number)}" for number in bad]
    if is_torn and not is_sealed:
        found.torn.append(str(path))
    found.num_bytes += size
