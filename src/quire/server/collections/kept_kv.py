"""The KV of collections' passages: computed for a model before anybody asks, deleted where the passages are.

What is prepared gives way: one passage at a time, behind every request that waits, and with a pause as long as the
passage took wherever others run, so that their steps are not longer than half of the time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from starlette.types import Receive

from quire.core.block_keys import collection_domain
from quire.prompt import Prompt
from quire.rag.prompt_template import PromptTemplate, join_passage
from quire.sampling_params import SamplingParams
from quire.server.errors import ApiError, invalid
from quire.server.generation.generation import GenerationJob, wait_until_known
from quire.server.registry import ModelRegistry, ServedModel

if TYPE_CHECKING:
    from quire.rag.collection import Collection

logger = logging.getLogger("quire.server")

_BEHIND_ALL = 2**31 - 1  # priority
_PARAMS = SamplingParams(max_tokens=1, temperature=0, detokenize=False, ignore_eos=True)
_PATIENCE_S = 0.05  # between two looks at a model that has a queue
_ROLES = (None, "user", "system")  # of plain prompts, and of conversations that begin so
_PASSAGES_AT_ONCE = 128  # deleted together: some 50 ms of an engine's time
_PAUSE_S = 0.25  # until the next ones
_MOST_KNOWN = 1000  #: warmings that are told of


@dataclass
class Warming:
    """How far a collection's KV is prepared for a model, since it was asked for."""

    collection: str
    model: str
    endpoint: str
    status: str = "running"  #: running, done, failed
    num_passages: int = 0  #: that there are
    num_done: int = 0
    num_computed_tokens: int = 0
    num_cached_tokens: int = 0  #: whose KV was there
    errors: list[str] = field(default_factory=list)  #: the first few
    task: asyncio.Task[None] | None = field(default=None, repr=False)


class KeptKV:
    """Args:
    registry: of the models.
    """

    def __init__(self, registry: ModelRegistry) -> None:
        self._registry = registry
        self._warmings: dict[tuple[str, str, str], Warming] = {}  #: by collection, model and endpoint
        self._deletions = ThreadPoolExecutor(1, "forget")
        self._is_closed = False
        self._turns: dict[str, asyncio.Lock] = {}  #: by model: passages of all collections, one after the other

    def warmings(self, collection_id: str) -> list[Warming]:
        """What was asked for since the server started."""
        return [each for (id_, *_), each in self._warmings.items() if id_ == collection_id]

    async def warm(
        self,
        collection: Collection,
        name: str,
        model_name: str | None,
        endpoint: str | None,
        form: str | None,
        receive: Receive,
    ) -> Warming:
        """Begin to prepare, or tell how far it is. A warming that has ended begins again, in whatever form.

        Args:
            name: of the collection.
            endpoint: whose prompts begin with the passages: chat/completions or completions; by default the first
                where the model has a chat template.
            form: a template as of `PromptTemplate.parse`, in place of the usual one.
            receive: of the request, which waits while the model is loaded.

        Raises:
            ApiError: the model keeps no KV, or cannot be asked.
            ClientDisconnected: the client waits no longer.
        """
        model = self._registry.get(model_name)
        await wait_until_known(model, receive)
        if not model.async_engine.limits.has_disk_tier:
            raise ApiError(
                400, f"the model {model.name!r} keeps no KV; start the server with --kv-dir DIR", "model", "no_kv_dir"
            )
        tokenizer = model.async_engine.engine.tokenizer
        if tokenizer is None:
            raise invalid(f"the model {model.name!r} is served without a tokenizer, and passages are text", "model")
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
            if len(self._warmings) >= _MOST_KNOWN:
                self._warmings = {of: each for of, each in self._warmings.items() if each.status == "running"}
            warming = self._warmings[key] = Warming(name, model.name, endpoint)
            warming.task = asyncio.create_task(self._run(warming, collection, model, template))
        return warming

    def forget(self, collection_id: str, passages: Sequence[str]) -> None:
        """Have the KV of passages that are deleted deleted, of every model that is served; of one that is unloaded
        when it comes back. Returns at once.

        KV in a form of a request's own, under a salt, and of passages that stood behind others, stays on disk until its
        turn to be evicted comes. Nothing finds it: nobody can search for the passages any more.
        """
        if not self._is_closed:
            self._deletions.submit(self._forget, collection_id, passages)

    def close(self) -> None:
        """Delete nothing more."""
        self._is_closed = True
        self._deletions.shutdown(wait=False, cancel_futures=True)

    def _forget(self, collection_id: str, passages: Sequence[str]) -> None:
        for model in self._registry:
            if not model.async_engine.is_known or not model.async_engine.limits.has_disk_tier:
                continue
            try:
                for start in range(0, len(passages), _PASSAGES_AT_ONCE):
                    some = passages[start : start + _PASSAGES_AT_ONCE]
                    found = (_prompt_of(model, each, collection_id, role, None) for each in some for role in _ROLES)
                    model.async_engine.forget([prompt for prompt in found if prompt is not None])
                    if start + _PASSAGES_AT_ONCE < len(passages):
                        time.sleep(_PAUSE_S)
                    if self._is_closed:
                        return
            except Exception:  # the documents are deleted, whatever becomes of their KV
                logger.exception("%s: KV of deleted documents could not be deleted", model.name)

    async def _run(
        self, warming: Warming, collection: Collection, model: ServedModel, template: PromptTemplate | None
    ) -> None:
        try:
            documents = await asyncio.to_thread(collection.documents)
            warming.num_passages = sum(each.num_chunks for each in documents)
            for document in documents:
                passages = await asyncio.to_thread(collection.passages_of, document.id)
                for passage in passages:
                    async with self._turns.setdefault(model.name, asyncio.Lock()):
                        await self._prepare(warming, collection.id, model, passage, template)
                    warming.num_done += 1
                left = set(await asyncio.to_thread(collection.passages_of, document.id))
                self.forget(collection.id, [passage for passage in passages if passage not in left])
            warming.status = "failed" if warming.errors else "done"
        except ApiError as error:  # the model is gone
            _note(warming, str(error))
            warming.status = "failed"
        except Exception as error:
            logger.exception("KV of collection %s could not be prepared", collection.id)
            _note(warming, str(error))
            warming.status = "failed"

    async def _prepare(
        self, warming: Warming, id_: str, model: ServedModel, passage: str, template: PromptTemplate | None
    ) -> None:
        role = "user" if warming.endpoint == "chat/completions" else None
        found = await asyncio.to_thread(_prompt_of, model, passage, id_, role, template)
        prompt = None if found is None else found[0]
        engine = model.async_engine
        if prompt is None or len(prompt.token_ids) >= engine.engine.max_model_len:
            why = "is too long for it" if prompt is not None else "does not stand at the start of its prompts"
            _note(warming, f"a passage {why}: {passage:.60}")
            return
        # KV of another stage would be of no use once the model has arrived
        last = engine.last_stage
        job = GenerationJob(model, [prompt], _PARAMS, f"warm-{id_[:8]}", int(time.time()), _BEHIND_ALL, min_stage=last)
        while True:
            while engine.num_queued:
                await asyncio.sleep(_PATIENCE_S)
            began_at = time.monotonic()
            try:
                (output,) = await job.outputs()
                break
            except ApiError as error:
                if error.status != 429:  # the queue is full again: it may wait
                    raise
        num_cached = sum(output.cached_tokens.values())
        warming.num_cached_tokens += num_cached
        warming.num_computed_tokens += len(prompt.token_ids) - num_cached
        if engine.num_requests:
            await asyncio.sleep(time.monotonic() - began_at)


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


def _note(warming: Warming, error: str) -> None:
    if len(warming.errors) < 10:
        warming.errors.append(error)
