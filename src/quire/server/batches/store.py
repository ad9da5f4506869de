"""Files and batches of all API keys, in a directory that one server at a time uses.

OWNER/ID.json     a file or a batch, as the API shows it
OWNER/ID.jsonl    content of a file, or the answers so far of an open batch
OWNER/ID.part     an unfinished upload
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

from quire.config import format_size
from quire.server.errors import ApiError
from quire.system.user_cache import replace_file

Record = dict[str, Any]
ENDED = ("failed", "completed", "cancelled")
_MAX_RECORDS = 4000  # of a key
_MAX_ENDED = 1000  # batches of a key; the oldest are forgotten
_RECORD_BYTES = 4096  # at least, of a key's bytes


def new_id(prefix: str) -> str:
    """Return an id that sorts behind earlier ones."""
    return f"{prefix}{time.time_ns():016x}{secrets.token_hex(8)}"


def output_ids(batch_id: str) -> tuple[str, str]:
    """Return the ids of a batch's files of answers and of errors."""
    name = batch_id.replace("batch_", "file-")
    return f"{name}-output", f"{name}-error"


class BatchStore:
    """Raises BlockingIOError if another server uses the directory, OSError if it cannot be used."""

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self.records: defaultdict[str, dict[str, Record]] = defaultdict(dict)  #: by owner and id
        self._used: Counter[str] = Counter()  #: bytes by owner
        self._directory, self._max_bytes = directory, max_bytes
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for path in sorted(directory.glob("*/*.json")):
                with suppress(ValueError):  # cut off by a power failure
                    self.records[path.parent.name][path.stem] = json.loads(path.read_bytes())
            for owner, records in self.records.items():
                known = {*records, *(name for id_ in records for name in output_ids(id_))}
                for path in (directory / owner).iterdir():
                    if path.stem not in known:
                        path.unlink()
                self.count(owner)
        except BaseException:
            os.close(self._lock)
            raise

    def path(self, owner: str, id_: str, suffix: str = ".jsonl") -> Path:
        return self._directory / owner / f"{id_}{suffix}"

    def get(self, owner: str, id_: str, kind: str) -> Record:
        """Return a file or batch of this owner. Raises ApiError 404."""
        record = self.records[owner].get(id_)
        if record is None or record["object"] != kind:
            code = "file_not_found" if kind == "file" else "batch_not_found"
            raise ApiError(404, f"there is no {kind} {id_!r:.100}", code=code)
        return record

    def all(self, owner: str, kind: str) -> list[Record]:
        """Return the files or batches of an owner, the latest first."""
        found = [record for record in list(self.records[owner].values()) if record["object"] == kind]
        return sorted(found, key=lambda record: str(record["id"]), reverse=True)

    def open_batches(self, owner: str) -> list[Record]:
        """Return the batches that have not ended, the latest first."""
        return [batch for batch in self.all(owner, "batch") if batch["status"] not in ENDED]

    def put(self, owner: str, record: Record) -> None:
        """Write a record. Raises OSError."""
        replace_file(self.path(owner, record["id"], ".json"), json.dumps(record))
        self.records[owner][record["id"]] = record

    def add_file(self, owner: str, id_: str, name: str, purpose: str) -> Record:
        """Add the record of a file whose content is there. Raises OSError."""
        size = self.path(owner, id_).stat().st_size
        about = {"id": id_, "object": "file", "bytes": size, "created_at": int(time.time()), "filename": name}
        self.put(owner, record := {**about, "purpose": purpose, "status": "processed"})
        return record

    def remove(self, owner: str, id_: str) -> None:
        """Delete a file or a batch. Raises OSError."""
        for suffix in (".json", ".jsonl"):
            self.path(owner, id_, suffix).unlink(missing_ok=True)
        self.records[owner].pop(id_, None)
        self.count(owner)

    def make_room(self, owner: str) -> None:
        """Forget the oldest ended batches. Raises ApiError if the key has too many files and batches; OSError."""
        ended = [batch["id"] for batch in self.all(owner, "batch") if batch["status"] in ENDED]
        for id_ in ended[_MAX_ENDED:]:
            self.remove(owner, id_)
        if (number := len(self.records[owner])) >= _MAX_RECORDS:
            raise ApiError(413, f"this key has {number:,} files and batches; delete some", code="quota_exceeded")

    def count(self, owner: str) -> None:
        """Count the bytes that an owner's files take."""
        sizes = [path.stat().st_size for path in (self._directory / owner).glob("*")]
        self._used[owner] = sum(max(_RECORD_BYTES, size) for size in sizes)

    def charge(self, owner: str, num_bytes: int) -> None:
        """Count further bytes of an owner. Raises ApiError above its quota."""
        used = self._used[owner] + num_bytes
        if num_bytes > 0 and used > self._max_bytes:
            message = f"this key's files would take {format_size(used)} of {format_size(self._max_bytes)}; delete some"
            raise ApiError(413, f"{message}, or raise --max-batch-bytes-per-key", code="quota_exceeded")
        self._used[owner] = used

    def close(self) -> None:
        os.close(self._lock)
