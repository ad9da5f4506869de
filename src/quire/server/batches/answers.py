"""A file of answers, which survives any end of the process."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from pathlib import Path

from quire.server.batches.lines import key_of

_HEAD = b'{"id":"batch_req_'  # of every answer


class AnswerFile:
    """Answers, appended one by one. Opening the file removes a torn last one. Raises ValueError for a file of something
    else, or that another process writes to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.keys: set[bytes] = set()  #: of answered lines
        self.num_completed = 0  #: answers with status 200
        self._lock = threading.Lock()
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._end = self._read()
            os.ftruncate(self._fd, self._end)
        except BaseException as error:
            os.close(self._fd)
            if isinstance(error, BlockingIOError):
                raise ValueError(f"another process writes answers to {path}; wait for its end") from None
            raise

    def _read(self) -> int:
        """Read the answers, and return the end of the last complete one."""
        end = 0
        with self.path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                is_ours = raw.startswith(_HEAD) or _HEAD.startswith(raw) or not raw.strip(b"\0")
                if is_ours and not raw.endswith(b"\n"):  # torn
                    break
                try:
                    self._count(raw if is_ours else b"")
                except (ValueError, TypeError, KeyError):
                    raise ValueError(f"{self.path}, line {number} is no answer of a batch; name another file") from None
                end += len(raw)
        return end

    def append(self, line: bytes) -> None:
        """Write an answer. Raises OSError, such as for a full disk, and leaves the file as it was."""
        with self._lock:
            rest = line
            try:
                while rest:
                    rest = rest[os.write(self._fd, rest) :]
            except OSError:
                os.ftruncate(self._fd, self._end)
                raise
            self._end += len(line)
            self._count(line)

    def _count(self, line: bytes) -> None:
        answer = json.loads(line)
        self.keys.add(key_of(answer["custom_id"], (answer["error"] or {}).get("line", 0)))
        self.num_completed += (answer["response"] or {}).get("status_code") == 200

    def close(self) -> None:
        """Close the file; later answers fail. Idempotent."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1
