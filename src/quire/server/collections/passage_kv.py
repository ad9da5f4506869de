"""KV of collections' passages: computed ahead of requests, and deleted with the passages.

Warming yields to requests: it computes one passage at a time behind all waiting requests, and while others run it
pauses for as long as the passage took, so it slows their steps at most half of the time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from starlette.types import Receive

from quire.core.block_keys import collection_domain
from quire.prompt import Prompt
from quire.rag.prompt_template import PromptTemplate, join_passage
from quire.sampling_params import SamplingParams
from quire.server.collections.schema import WarmReply
from quire.server.errors import ApiError, invalid
from quire.server.generation.generation import GenerationJob, wait_until_known
from quire.server.registry import ModelRegistry, ServedModel

if TYPE_CHECKING:
    from quire.rag.collection import Collection

logger = logging.getLogger("quire.server")

_LOWEST_PRIORITY = 2**31 - 1
_PARAMS = SamplingParams(max_tokens=1, temperature=0, detokenize=False, ignore_eos=True)
_POLL_S = 0.05  # while a model has a queue
_ROLES = (None, "user", "system")  # plain prompts, and conversations with such a first message
_DELETED_AT_ONCE = 128  # passages: some 50 ms of an engine's time
_PAUSE_S = 0.25  # between deletions
_MAX_WARMINGS = 1000  #: remembered for status requests


class PassageKV:
    """Warms and deletes the KV of passages for the models of a registry."""

    def __init__(self, registry: ModelRegistry) -> None:
        self._registry = registry
        self._warmings: dict[tuple[str, str, str], WarmReply] = {}  #: by collection, model and endpoint
        self._tasks: dict[tuple[str, str, str], asyncio.Task[None]] = {}
        self._deletions = ThreadPoolExecutor(1, "delete KV")
        self._is_closed = False
        self._locks: dict[str, asyncio.Lock] = {}  #: by model, so one passage is computed at a time

    def warmings(self, collection_id: str) -> list[WarmReply]:
        """A collection's warmings since the server started."""
        return [each for (id_, *_), each in self._warmings.items() if id_ == collection_id]

    async def warm(
        self,
        collection: Collection,
        name: str,
        model_name: str | None,
        endpoint: str | None,
        form: str | None,
        receive: Receive,
    ) -> WarmReply:
        """Start a warming, or return the running one, once the model is loaded.

        `endpoint` (chat/completions or completions) defaults to the former for models with a chat template; `form`
        replaces the default template. Raises ApiError, or ClientDisconnected.
        """
        model = self._registry.get(model_name)
        await wait_until_known(model, receive)
        if not model.async_engine.limits.has_disk_tier:
            message = f"the model {model.name!r} stores no KV; start the server with --kv-dir DIR"
            raise ApiError(400, message, "model", "no_kv_dir")
        tokenizer = model.async_engine.engine.tokenizer
        if tokenizer is None:
            raise invalid(f"the model {model.name!r} is served without a tokenizer, which passages need", "model")
        has_template = bool(model.chat_template or tokenizer.chat_templates)
        if endpoint is None:
            endpoint = "chat/completions" if has_template else "completions"
        if endpoint == "chat/completions" and not has_template:
            raise invalid(f"the model {model.name!r} has no chat template; warm it for completions", "endpoint")
        try:
            template = None if form is None else PromptTemplate.parse(form)
        except ValueError as error:
            raise invalid(str(error), "template") from None
        key = collection.id, model.name, endpoint
        warming = self._warmings.get(key)
        if warming is None or warming.status != "running":
            if len(self._warmings) >= _MAX_WARMINGS:
                self._warmings = {old: each for old, each in self._warmings.items() if each.status == "running"}
            warming = self._warmings[key] = WarmReply(collection=name, model=model.name, endpoint=endpoint)
            self._tasks[key] = asyncio.create_task(self._run(warming, collection, model, template))
        return warming

    def delete(self, collection_id: str, passages: Sequence[str]) -> None:
        """Schedule deletion of the KV of deleted passages for every served model, once it is loaded.

        KV behind other passages, with a salt or with a request's own template stays on disk until it is evicted. It
        is unreachable, since no search returns the passages.
        """
        if not self._is_closed:
            self._deletions.submit(self._delete, collection_id, passages)

    def close(self) -> None:
        """Cancel pending deletions."""
        self._is_closed = True
        self._deletions.shutdown(wait=False, cancel_futures=True)

    def _delete(self, collection_id: str, passages: Sequence[str]) -> None:
        for model in self._registry:
            if not model.async_engine.is_known or not model.async_engine.limits.has_disk_tier:
                continue
            try:
                for start in range(0, len(passages), _DELETED_AT_ONCE):
                    some = passages[start : start + _DELETED_AT_ONCE]
                    found = (_prompt_of(model, each, collection_id, role, None) for each in some for role in _ROLES)
                    model.async_engine.delete_documents([prompt for prompt in found if prompt is not None])
                    if start + _DELETED_AT_ONCE < len(passages):
                        time.sleep(_PAUSE_S)
                    if self._is_closed:
                        return
            except Exception:  # the documents are deleted all the same
                logger.exception("%s: KV of deleted documents could not be deleted", model.name)

    async def _run(
        self, warming: WarmReply, collection: Collection, model: ServedModel, template: PromptTemplate | None
    ) -> None:
        try:
            documents = await asyncio.to_thread(collection.documents)
            warming.num_passages = sum(each.num_chunks for each in documents)
            for document in documents:
                passages = await asyncio.to_thread(collection.passages_of, document.id)
                for passage in passages:
                    async with self._locks.setdefault(model.name, asyncio.Lock()):
                        await self._compute(warming, collection.id, model, passage, template)
                    warming.num_done += 1
                left = set(await asyncio.to_thread(collection.passages_of, document.id))
                self.delete(collection.id, [passage for passage in passages if passage not in left])
            warming.status = "failed" if warming.errors else "done"
        except Exception as error:
            if not isinstance(error, ApiError):  # else the model is gone
                logger.exception("KV of collection %s could not be prepared", collection.id)
            _record(warming, str(error))
            warming.status = "failed"

    async def _compute(
        self, warming: WarmReply, id_: str, model: ServedModel, passage: str, template: PromptTemplate | None
    ) -> None:
        role = "user" if warming.endpoint == "chat/completions" else None
        found = await model.async_engine.in_thread("", _prompt_of, model, passage, id_, role, template)
        prompt = None if found is None else found[0]
        engine = model.async_engine
        if prompt is None or len(prompt.token_ids) >= engine.engine.max_model_len:
            why = "is too long for the model" if prompt is not None else "cannot be at the start of its prompts"
            _record(warming, f"a passage {why}: {passage:.60}")
            return
        last = engine.last_stage  # KV of earlier stages becomes useless
        name = f"warm-{id_[:8]}"
        job = GenerationJob(model, [prompt], _PARAMS, name, int(time.time()), _LOWEST_PRIORITY, min_stage=last)
        while True:
            while engine.num_queued:
                await asyncio.sleep(_POLL_S)
            started_at = time.monotonic()
            try:
                (output,) = await job.outputs()
                break
            except ApiError as error:
                if error.status != 429:  # the queue filled up again
                    raise
        num_cached = sum(output.cached_tokens.values())
        warming.num_cached_tokens += num_cached
        warming.num_computed_tokens += len(prompt.token_ids) - num_cached
        if engine.num_requests:
            await asyncio.sleep(time.monotonic() - started_at)


def _prompt_of(
    model: ServedModel, passage: str, collection_id: str, role: str | None, template: PromptTemplate | None
) -> tuple[Prompt, int] | None:
    tokenizer = model.async_engine.engine.tokenizer
    if tokenizer is None or (role is not None and not (model.chat_template or tokenizer.chat_templates)):
        return None
    joined = join_passage(tokenizer, passage, role=role, template=template, chat_template=model.chat_template)
    if joined is None:
        return None
    prompt, start = joined
    return replace(prompt, domains=((0, collection_domain(collection_id)),)), start


def _record(warming: WarmReply, error: str) -> None:
    if len(warming.errors) < 10:
        warming.errors.append(error)
