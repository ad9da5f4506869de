"""Checkpoints behind `http(s)://` and `s3://`: small files are cached on disk, weights are read by ranges.

A directory of the cache stands for a checkpoint in one state; its name is a hash of all ETags. Weights exist there only
as entries of `LISTING`, and this module's functions find them by path. The library (obstore) retries failed requests
and resumes cut ones; `If-Match` refuses an object that has changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from quire.loading.errors import ModelLoadError, UnreadableError, unreadable
from quire.system.user_cache import replace_file, user_cache

logger = logging.getLogger("quire")

LISTING = "quire-remote.json"
SMALL_FILES = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json", "quire-stages.json",
    "quire-planes.json",
    "model.safetensors.index.json",
)  # fmt: skip
_INDEX_FILE, _STAGES_FILE, _SINGLE_FILE = SMALL_FILES[-1], SMALL_FILES[-3], "model.safetensors"
_MAX_SMALL_BYTES = 100 * 10**6
_TIMEOUTS = {"connect_timeout": "5s", "read_timeout": "15s", "timeout": "1h"}  # read_timeout limits a silence
_RETRIES: Any = {"max_retries": 5, "retry_timeout": timedelta(seconds=60)}  # after 0.1 s, then doubled


def is_remote(name: str) -> bool:
    return name.lower().startswith(("http://", "https://", "s3://"))


def check_url(url: str) -> None:
    """Refuse a URL with a query or credentials, and any URL without the library. Raises ModelLoadError."""
    parts = urlsplit(url)
    if not parts.netloc or "@" in parts.netloc or parts.query or parts.fragment or ".." in parts.path.split("/"):
        shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        raise ModelLoadError(
            f"{shown}: a remote model is https://HOST/DIRECTORY or s3://BUCKET/DIRECTORY, without password, query or "
            "'..'; S3 credentials are read from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and related variables"
        )
    if importlib.util.find_spec("obstore") is None:
        raise ModelLoadError(f"{url}: remote models need another package: pip install 'quire-llm[remote]'")


@dataclass(frozen=True)
class RemoteFile:
    """An object on a server. Reads fail once it has changed; without ETag and time, once its size has."""

    url: str  #: of the checkpoint's directory
    name: str
    size: int
    etag: str | None
    modified_ns: int

    @property
    def identity(self) -> int:
        """A number that another content does not have, in place of an inode."""
        return int.from_bytes(hashlib.sha256(repr(self).encode()).digest()[:7], "little")

    def reader(self) -> Callable[[int, int], memoryview]:
        """Return a thread-safe function that reads a range. It raises ModelLoadError, or UnreadableError if a later
        attempt may succeed."""
        store = _open_store(self.url)
        condition: Any = {"if_match": self.etag} if self.etag and not self.etag.startswith("W/") else {}

        def read(start: int, end: int) -> memoryview:
            import obstore

            if start >= end:
                return memoryview(b"")
            try:
                got = obstore.get(store, self.name, options={"range": (start, end), **condition})
                if not self._is_same(got.meta) or len(data := memoryview(got.bytes())) != end - start:
                    raise obstore.exceptions.PreconditionError
                return data
            except Exception as error:
                raise _failed(self.url, self.name, error) from None

        return read

    def _is_same(self, meta: Mapping[str, Any]) -> bool:
        """Check a response, since servers may ignore `If-Match`, or have no ETags."""
        now, is_pinned = _from_meta(self.url, self.name, meta), self.etag is not None or self.modified_ns != 0
        return now == self if is_pinned else now.size == self.size

    def current_state(self) -> RemoteFile | None:
        """Ask the server for the object; None if there is none or no answer."""
        with contextlib.suppress(ModelLoadError):
            return _head(_open_store(self.url), self.url, self.name)
        return None


def remote_file(path: Path) -> RemoteFile | None:
    """Return the object that a path below the cache stands for; None for a file on disk."""
    try:
        key, *rest = path.relative_to(_cache()).parts
        found = json.loads((_cache() / key / LISTING).read_bytes())["files"].get("/".join(rest))
    except (ValueError, OSError):  # not below the cache, or no directory in it
        return None
    return None if found is None else RemoteFile(**found)


def file_size(path: Path) -> int | None:
    """Return the size of a file on disk or on a server; None without such a file. Raises OSError."""
    if (remote := remote_file(path)) is not None:
        return remote.size
    return path.stat().st_size if path.is_file() else None


def open_file(path: Path) -> BinaryIO:
    """Open a file on disk, on a server, or an original one of a pack with planes. Raises OSError, or ModelLoadError for
    the latter two, as reading does."""
    if (remote := remote_file(path)) is not None:
        return io.BufferedReader(RangeStream(remote.size, remote.reader()), 2**18)
    if not path.is_file() and (path.parent / "quire-planes.json").is_file():
        from quire.loading.planes import decoding, index  # they read stored files through this

        if (original := index.original_file(path)) is not None:
            return decoding.open_original(original)
    return path.open("rb")


def read_pieces(
    path: Path, start: int = 0, num_bytes: int | None = None, *, piece_bytes: int = 2**22
) -> Iterator[memoryview]:
    """Yield a file's bytes, by default all, in a buffer that the next piece overwrites. Raises ModelLoadError."""
    buffer = memoryview(bytearray(piece_bytes if num_bytes is None else min(piece_bytes, num_bytes)))
    try:
        with open_file(path) as file:
            left = file.seek(0, os.SEEK_END) if num_bytes is None else num_bytes
            file.seek(start)
            while left:
                count = file.readinto(buffer[:left])  # type: ignore[attr-defined]
                if not count:
                    raise ModelLoadError(f"{path} became shorter while it was read; try again when it is whole")
                yield buffer[:count]
                left -= count
    except OSError as error:
        raise unreadable(path, error) from None


def read_bytes(path: Path, start: int = 0, num_bytes: int | None = None) -> bytes:
    """As `read_pieces`, at once."""
    return b"".join(map(bytes, read_pieces(path, start, num_bytes)))


class RangeStream(io.RawIOBase):
    """A stream of `size` bytes that reads ranges."""

    def __init__(self, size: int, read: Callable[[int, int], memoryview]) -> None:
        self._size, self._read, self._position = size, read, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        return self._position

    def readinto(self, buffer: Any) -> int:
        end = max(self._position, min(self._size, self._position + len(buffer)))
        count = end - self._position
        buffer[:count] = self._read(self._position, end)
        self._position = end
        return count


def fetch_directory(url: str) -> Path:
    """Copy a checkpoint's small files and return the directory that stands for it. Asks the server each time for the
    state of all files. Raises ModelLoadError."""
    check_url(url)
    url = url.rstrip("/")
    store = _open_store(url)
    with ThreadPoolExecutor(len(SMALL_FILES) + 1, thread_name_prefix="quire-fetch") as pool:

        def ask(names: Iterable[str]) -> dict[str, RemoteFile]:
            asked = pool.map(lambda name: _head(store, url, name), names)
            return {each.name: each for each in asked if each is not None}

        found = ask((*SMALL_FILES, _SINGLE_FILE))
        weights = {name: found.pop(name) for name in [_SINGLE_FILE] if name in found}
        if "config.json" not in found:
            raise ModelLoadError(f"{url} has no config.json; name the directory that contains it")
        try:
            small = _cache() / f"{re.sub('[^a-zA-Z0-9._-]', '_', url[-40:])}-{_key(url, found.values())}"
            if not small.is_dir():
                _publish(small, lambda directory: list(pool.map(lambda each: _copy(each, directory), found.values())))
            weights |= ask(_listed(small, found))
            directory = small.with_name(f"{small.name}-{_key(url, weights.values())}")
            if not directory.is_dir():
                _publish(directory, lambda staging: _list(small, staging, found, weights))
        except OSError as error:
            raise ModelLoadError(f"{url}: cannot write {_cache()} ({error}); set XDG_CACHE_HOME") from None
    return directory


def _listed(directory: Path, found: Mapping[str, RemoteFile]) -> list[str]:
    """Return the further files that the index and a pack's manifest name. Loading refuses invalid ones."""
    names: set[Any] = set()
    for file, key in ((_INDEX_FILE, "weight_map"), (_STAGES_FILE, "files")):
        with contextlib.suppress(OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
            listed = json.loads((directory / file).read_bytes())[key]
            names |= set(listed.values()) if key == "weight_map" else {each["name"] for each in listed}
    valid = {name for name in names if isinstance(name, str) and name.isprintable() and ".." not in name.split("/")}
    return sorted(valid - set(found))[:10_000]


def _copy(file: RemoteFile, directory: Path) -> None:
    if file.size > _MAX_SMALL_BYTES:
        raise ModelLoadError(f"{file.url}/{file.name} has {file.size} bytes, more than {_MAX_SMALL_BYTES}")
    (directory / file.name).write_bytes(file.reader()(0, file.size))


def _list(small: Path, staging: Path, found: Mapping[str, RemoteFile], weights: Mapping[str, RemoteFile]) -> None:
    for name in found:
        os.link(small / name, staging / name)
    replace_file(staging / LISTING, json.dumps({"files": {name: vars(file) for name, file in weights.items()}}))


def _publish(directory: Path, fill: Callable[[Path], object]) -> None:
    """Fill a directory and then give it its name, unless another process has done so."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".new-", dir=directory.parent))
    try:
        fill(staging)
        staging.rename(directory)
    except OSError:
        if not directory.is_dir():  # otherwise another process was first
            raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _cache() -> Path:
    return user_cache() / "remote"


def _key(url: str, files: Iterable[RemoteFile]) -> str:
    return hashlib.sha256(repr([url, *sorted(map(repr, files))]).encode()).hexdigest()[:24]


def _open_store(url: str) -> Any:
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    options: Any = {
        "allow_http": (endpoint if url.lower().startswith("s3:") else url).lower().startswith("http:"),
        **_TIMEOUTS,
    }
    try:
        return from_url(url, client_options=options, retry_config=_RETRIES)
    except (BaseError, ValueError) as error:
        raise ModelLoadError(f"{url}: {error}; check AWS_* variables and root certificates") from None


def _head(store: Any, url: str, name: str) -> RemoteFile | None:
    """Ask for a file's state; None if there is none."""
    import obstore

    try:
        return _from_meta(url, name, obstore.head(store, name))
    except FileNotFoundError:
        return None
    except Exception as error:
        if not isinstance(error, obstore.exceptions.PermissionDeniedError) or name == "config.json":
            raise _failed(url, name, error) from None
        logger.warning("%s/%s: access denied, which S3 also says of a missing file; it is taken as missing", url, name)
        return None


def _from_meta(url: str, name: str, meta: Mapping[str, Any]) -> RemoteFile:
    return RemoteFile(url, name, meta["size"], meta["e_tag"], int(meta["last_modified"].timestamp()) * 10**9)


def _failed(url: str, name: str, error: Exception) -> ModelLoadError:
    from obstore import exceptions

    where = f"{url}/{name}"
    if isinstance(error, exceptions.PreconditionError):
        return ModelLoadError(f"{where} changed after loading started; load the model again")
    if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError):
        variables = "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and AWS_REGION"
        remedy = f"check {variables}" if url.startswith("s3:") else "allow this machine to read it"
        return UnreadableError(f"{where}: access denied; {remedy}")
    if isinstance(error, exceptions.NotSupportedError):
        return ModelLoadError(f"{where}: the server ignores range requests; use one that supports them, such as nginx")
    first_line = str(error).partition("\n")[0]
    return UnreadableError(f"{where} cannot be read ({first_line}); check the network and the server")
