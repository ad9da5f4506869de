"""Download a large file of the hub from where an interrupted process ended; huggingface_hub deletes such parts."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any


def download_blob(name: str, file: Any, token: str | None, bar: type[Any]) -> None:
    """Download a repository's file, a `DryRunFileInfo`, to its place in the hub's cache: its part grows beside the
    place, named by the ETag. Over HTTP also where the hub has Xet, which cannot continue. `bar` is a class like tqdm.
    Raises the hub's errors, and OSError if the finished file has another digest than its ETag."""
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
            if (begun := to.tell()) > file.file_size:
                to.truncate(begun := 0)
            headers = {**build_hf_headers(token=token), "Accept-Encoding": "identity"}
            http_get(url, to, resume_size=begun, headers=headers, expected_size=file.file_size, tqdm_class=bar)
        if begun and etag and len(etag) == hashlib.sha256().digest_size * 2:
            with part.open("rb") as whole:
                if hashlib.file_digest(whole, "sha256").hexdigest() != etag:
                    part.unlink()
                    raise OSError(f"{file.filename} was damaged where an earlier download ended; download it again")
        part.replace(blob)
