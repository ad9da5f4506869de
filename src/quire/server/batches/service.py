"""Answers batches in the background: those of a key in order, those of several keys at once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp

from quire.server.batches.store import ENDED, BatchStore, Record, new_id, output_ids
from quire.server.errors import RETRY_SOON, ApiError, invalid

if TYPE_CHECKING:
    from quire.server.batches.answers import AnswerFile

logger = logging.getLogger("quire.server")

MAX_CONCURRENT = 128  #: lines in flight

_MAX_ERRORS = 100  # shown of an invalid file
_PAUSE_S = 5.0  # after a failure of the disk or of the engine


@contextmanager
def disk_errors() -> Iterator[None]:
    """Raise ApiError 503 for an OSError."""
    try:
        yield
    except OSError as error:
        why = "another server uses them" if isinstance(error, BlockingIOError) else error.strerror
        message = f"files and batches cannot be used now: {why}; --batch-dir names another directory"
        raise ApiError(503, message, code="storage_failed", headers=RETRY_SOON) from None


class BatchService:
    """Files and batches in a directory (None: there are none), answered by `app` between `start` and `stop`."""

    def __init__(self, app: ASGIApp, directory: Path | None, max_bytes: int, max_concurrent: int) -> None:
        self._app, self._directory, self._max_bytes = app, directory, max_bytes
        self._slots = asyncio.Semaphore(max_concurrent)
        self._store: BatchStore | None = None
        self._workers: dict[str, asyncio.Task[None]] = {}  #: by owner
        self._asking: dict[str, asyncio.Task[None]] = {}  #: by batch
        self._answers: dict[str, list[AnswerFile]] = {}  #: by batch
        self._changing = asyncio.Lock()

    @property
    def store(self) -> BatchStore:
        """The store, whose batches go on when it is opened. Raises ApiError if there is none."""
        if self._directory is None:
            raise ApiError(404, "this server keeps no files; start it with --batch-dir DIR", code="batches_off")
        if self._store is None:
            with disk_errors():
                self._store = BatchStore(self._directory, self._max_bytes)
            for owner in list(self._store.records):
                self._wake(owner)
        return self._store

    def start(self) -> None:
        try:
            if self._directory is not None:
                assert self.store
        except ApiError as error:  # the first request tries again
            logger.warning("%s", error)

    async def create(self, owner: str, input_file_id: str, **fields: Any) -> Record:
        """Queue a batch of an uploaded file. Raises ApiError."""
        self.store.get(owner, input_file_id, "file")
        batch = {"id": new_id("batch_"), "object": "batch", "input_file_id": input_file_id, **fields}
        batch |= {"status": "validating", "created_at": int(time.time()), "request_counts": _counts(0)}
        with disk_errors():
            await asyncio.to_thread(self.store.make_room, owner)
            await asyncio.to_thread(self.store.put, owner, batch)
        self._wake(owner)
        return batch

    def show(self, owner: str, id_: str) -> Record:
        """Return a batch with its counts so far. Raises ApiError 404."""
        batch = self.store.get(owner, id_, "batch")
        files = self._answers.get(id_)
        return batch if files is None else batch | {"request_counts": _counts(batch["request_counts"]["total"], files)}

    async def cancel(self, owner: str, id_: str) -> None:
        """Cancel a batch, whose answers so far stay. Raises ApiError if it has ended."""
        if (status := self.store.get(owner, id_, "batch")["status"]) in ENDED:
            raise ApiError(409, f"the batch has ended: it is {status}", code="batch_ended")
        with disk_errors():
            await self._change(owner, id_, "cancelling", since=("validating", "in_progress"))
        if (asking := self._asking.get(id_)) is not None:
            asking.cancel()

    async def _change(self, owner: str, id_: str, status: str, *, since: Sequence[str], **fields: Any) -> None:
        """Change the status of a batch, on disk first, unless it has changed since. Raises OSError."""
        async with self._changing:
            batch = self.store.get(owner, id_, "batch")
            if batch["status"] in since:
                changed = batch | {"status": status, f"{status}_at": int(time.time()), **fields}
                await asyncio.to_thread(self.store.put, owner, changed)

    def _wake(self, owner: str) -> None:
        if owner not in self._workers:
            self._workers[owner] = asyncio.create_task(self._work(owner))

    async def _work(self, owner: str) -> None:
        """Answer the open batches of a key, the oldest first."""
        try:
            while open_ := self.store.open_batches(owner):
                batch = open_[-1]
                try:
                    await (self._check if batch["status"] == "validating" else self._answer)(owner, batch)
                except Exception as error:  # a full disk, a lost engine
                    logger.warning("%s pauses: %s", batch["id"], error)
                    await asyncio.sleep(_PAUSE_S)
        finally:
            del self._workers[owner]

    async def _check(self, owner: str, batch: Record) -> None:
        total, errors = await asyncio.to_thread(
            _check, self.store.path(owner, batch["input_file_id"]), batch["endpoint"]
        )
        status = "failed" if errors else "in_progress"
        fields = {"errors": {"object": "list", "data": errors}} if errors else {}
        await self._change(owner, batch["id"], status, since=["validating"], request_counts=_counts(total), **fields)

    async def _answer(self, owner: str, batch: Record) -> None:
        """Answer the rest of a batch, and end it."""
        from quire.server.batches.answers import AnswerFile

        store, id_, end, fields = self.store, batch["id"], "completed", Record()
        await asyncio.to_thread(store.count, owner)
        files = self._answers[id_] = list[AnswerFile]()
        try:
            for name in output_ids(id_):
                files.append(await asyncio.to_thread(AnswerFile, store.path(owner, name)))
            try:
                await self._ask(owner, batch, files)
            except ApiError as error:  # the quota
                end, fields["errors"] = "failed", {"object": "list", "data": [_error(error)]}
            for file in files:
                file.close()  # threads may still append
            status = store.get(owner, id_, "batch")["status"]
            for file, name, field in zip(files, output_ids(id_), ("output_file_id", "error_file_id"), strict=True):
                if file.keys:
                    await asyncio.to_thread(store.add_file, owner, name, f"{name}.jsonl", "batch_output")
                    fields[field] = name
            end = "cancelled" if status == "cancelling" else end
            fields["request_counts"] = _counts(batch["request_counts"]["total"], files)
            await self._change(owner, id_, end, since=[status], **fields)
        finally:
            del self._answers[id_]
            for file in files:
                file.close()

    async def _ask(self, owner: str, batch: Record, files: Sequence[AnswerFile]) -> None:
        """Ask for the missing answers, unless the batch is cancelled. Raises like `answer_lines`."""
        from quire.server.batches.run import answer_lines, app_client

        path, charge = self.store.path(owner, batch["input_file_id"]), partial(self.store.charge, owner)
        async with app_client(self._app, owner) as client:
            if self.store.get(owner, batch["id"], "batch")["status"] == "in_progress":
                work = answer_lines(path, files[0], files[1], client, self._slots, charge)
                asking = self._asking[batch["id"]] = asyncio.create_task(work)
                try:
                    await asyncio.wait({asking})
                    if not asking.cancelled():
                        asking.result()
                finally:
                    del self._asking[batch["id"]]
                    asking.cancel()
                    await asyncio.gather(asking, return_exceptions=True)

    def stop(self) -> None:
        """Stop answering; the next start goes on."""
        for task in self._workers.values():
            task.cancel()

    async def close(self) -> None:
        self.stop()
        await asyncio.gather(*self._workers.values(), return_exceptions=True)
        if self._store is not None:
            self._store.close()


def _counts(total: int, files: Sequence[AnswerFile] = ()) -> dict[str, int]:
    answered, completed = sum(len(file.keys) for file in files), sum(file.num_completed for file in files)
    return {"total": total, "completed": completed, "failed": answered - completed}


def _error(error: ApiError, line: int | None = None) -> Record:
    return {"code": error.code, "message": error.message, "param": error.param, "line": line}


def _check(path: Path, endpoint: str) -> tuple[int, list[Record]]:
    """Return the number of lines and the first errors of a file."""
    from quire.server.batches.lines import check_lines

    total, errors = 0, list[Record]()
    for line in check_lines(path) if path.exists() else ():
        total, error = total + 1, line.error
        if line.request is not None and line.request.url != endpoint:
            error = invalid(f"line {line.number}: url={line.request.url!r} is not {endpoint}", "url")
        if error is not None and len(errors) < _MAX_ERRORS:
            errors.append(_error(error, line.number))
    return total, errors if total else [_error(ApiError(400, "the file has no line", code="empty_file"))]
