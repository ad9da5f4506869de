"""Download models from the Hugging Face hub with one progress display."""

from __future__ import annotations

import hashlib
import io
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quire.config import HubOptions
from quire.gguf_header import gguf_models, is_part_of, quantization_of
from quire.loading.errors import ModelLoadError
from quire.loading.progress import bytes_progress, load_listener
from quire.outputs import LoadProgress

if TYPE_CHECKING:
    from huggingface_hub import DryRunFileInfo

#: Quantizations of GGUF files, of which the first one is taken where none is named.
_USUAL = ("Q4_K_M", "Q4_0", "MXFP4", "Q8_0", "BF16", "F16")


class NotDownloadedError(ModelLoadError):
    """A model's weights are not on this machine."""


def download_gguf(name: str, quantization: str, directory: Path, options: HubOptions, *, is_local: bool) -> Path:
    """Download a repository's GGUF model in a quantization, or in the usual one, and return its first file. `directory`
    is the repository's in the cache; `is_local` raises NotDownloadedError instead of a download. Raises as
    `download_files`, or ModelLoadError if there is no such model."""
    files = _gguf_files(name, directory, options)
    chosen = _choose_gguf(name, list(files), quantization)
    parts = [each for each in files if is_part_of(each, chosen)]
    if is_local and not all(files[part] for part in parts):
        raise NotDownloadedError(f"{chosen} of {name} is not on this machine; quire pull downloads it")
    return (directory if is_local else download_files(name, parts, options)) / chosen


def _gguf_files(name: str, directory: Path, options: HubOptions) -> dict[str, bool]:
    """Return a repository's GGUF files, and which are in the cache; without the hub only those."""
    if (found := _matching(name, ["*.gguf"], options)) is not None:
        return {each.filename: each.is_cached for each in found}
    return {each.relative_to(directory).as_posix(): True for each in sorted(directory.rglob("*.gguf"))}


def _matching(name: str, patterns: Sequence[str], options: HubOptions) -> list[DryRunFileInfo] | None:
    """Return a repository's matching files; None without the hub."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import DryRunError

    try:
        return snapshot_download(
            name, allow_patterns=list(patterns), dry_run=True, tqdm_class=_bar_class(_ignore), **_place(options)
        )
    except DryRunError:
        return None


def _choose_gguf(name: str, files: Sequence[str], quantization: str) -> str:
    models = sorted(gguf_models(files), key=len)
    for wanted in (quantization,) if quantization else _USUAL:
        for model in models:
            if quantization_of(model) == wanted.upper():
                return model
    if len(models) == 1 and not quantization:
        return models[0]
    if not models:
        hint = "; leave out the quantization to take its safetensors" if quantization else " and no config.json"
        raise ModelLoadError(f"{name} has no GGUF model{hint}")
    there = ", ".join(sorted({quantization_of(model) or model for model in models}))
    raise ModelLoadError(f"{name} has no GGUF model {quantization or 'of a usual kind'}; it has {there}")


def download_files(name: str, patterns: Sequence[str], options: HubOptions) -> Path:
    """Download a repository's matching files; return their directory. Weights continue where an earlier process ended.
    The listener of a starting engine gets the progress. Raises the errors of `huggingface_hub.snapshot_download`, and
    OSError."""
    from huggingface_hub import constants, snapshot_download

    missing = [each for each in _matching(name, patterns, options) or () if each.will_download]
    total = sum(each.file_size or 0 for each in missing)
    with ExitStack() as shown:
        listener = load_listener.get()
        if listener is None:
            advance = shown.enter_context(bytes_progress(f"downloading {name}", total, sys.stderr.isatty()))
        else:
            advance = partial(_report, listener, [0], total)
        bar = _bar_class(advance)
        for each in missing:
            is_weights = each.filename.endswith((".gguf", ".safetensors"))
            if is_weights and 0 < (each.file_size or 0) <= constants.MAX_HTTP_DOWNLOAD_SIZE:
                _download_weights(name, each, options.hf_token, bar)
        return Path(snapshot_download(name, allow_patterns=list(patterns), tqdm_class=bar, **_place(options)))


def _download_weights(name: str, file: DryRunFileInfo, token: str | None, bar: type[Any]) -> None:
    """Download a file to its place in the hub's cache, from where an interrupted process ended: its part is named by
    the ETag. huggingface_hub deletes such parts, and continues no transfers of Xet, hence HTTP."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import WeakFileLock, build_hf_headers  # type: ignore[attr-defined]

    url = hf_hub_url(name, file.filename, revision=file.commit_hash)
    etag = get_hf_file_metadata(url, token=token).etag
    repository = Path(file.local_path).parents[len(Path(file.filename).parts) + 1]  # REPOSITORY/snapshots/COMMIT/FILE
    lock = repository.parent / ".locks" / repository.name / f"{etag}.lock"  # of huggingface_hub
    blob = repository / "blobs" / str(etag)
    part = blob.with_name(f"{etag}.incomplete")
    for each in (lock, blob):
        each.parent.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(lock):
        if blob.exists():
            return
        with part.open("ab") as to:
            if (begun := to.tell()) > (file.file_size or 0):
                to.truncate(begun := 0)
            headers = {**build_hf_headers(token=token), "Accept-Encoding": "identity"}
            http_get(url, to, resume_size=begun, headers=headers, expected_size=file.file_size, tqdm_class=bar)
        if begun and etag and len(etag) == hashlib.sha256().digest_size * 2:
            with part.open("rb") as whole:
                if hashlib.file_digest(whole, "sha256").hexdigest() != etag:
                    part.unlink()
                    raise OSError(f"{file.filename} was damaged where an earlier download ended; download it again")
        part.replace(blob)


def _place(options: HubOptions) -> dict[str, Any]:
    return {"revision": options.revision, "cache_dir": options.download_dir, "token": options.hf_token}


def _ignore(num_bytes: int) -> None:
    """Show nothing."""


def _report(listener: Callable[[LoadProgress], None], loaded: list[int], total: int, num_bytes: int) -> None:
    loaded[0] += num_bytes
    listener(LoadProgress(stage=0, num_stages=1, bytes_loaded=loaded[0], bytes_total=total, phase="download"))


def _bar_class(advance: Callable[[int], None]) -> type[Any]:
    """Return a silent bar for the hub's library, which calls `advance(num_bytes)` with the bytes on disk."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    class Bar(tqdm):
        monitor_interval = 0  # no thread

        def __init__(self, *args: Any, **options: Any) -> None:
            self._counts = options.get("unit") == "B" and options.get("desc") != "Downloading bytes"
            super().__init__(*args, **{**options, "file": io.StringIO()})
            if self._counts and self.n:
                advance(int(self.n))  # of an earlier process

        def display(self, *args: Any, **options: Any) -> None:
            """Write nothing."""

        def update(self, n: float | None = 1) -> bool:
            if self._counts:
                advance(int(n or 0))
            return bool(super().update(n))

    return Bar
