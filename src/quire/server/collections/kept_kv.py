"""The KV of collections' passages: computed for a model before anybody asks, deleted where the passages are.

What is prepared gives way: one passage at a time, behind every request that waits, and with a pause as long as the
passage took wherever others run, so that their steps are not longer than half of the time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from quire.core.block_keys import collection_domain
from quire.prompt import Prompt
from quire.rag.prompt_template import PromptTemplate, join_passage
from quire.sampling_params import SamplingParams
from quire.server.errors import ApiError, invalid
from quire.server.openai.generation import Generation, check_ready
from quire.server.registry import ModelRegistry, ServedModel

if TYPE_CHECKING:
    from quire.rag.collections import Collection, CollectionInfo

logger = logging.getLogger("quire.server")

_BEHIND_ALL = 2**31 - 1  # priority
_PARAMS = SamplingParams(max_tokens=1, temperature=0, detokenize=False, ignore_eos=True)
_PATIENCE_S = 0.05  # between two looks at a model that has a queue


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
        self._turns: dict[str, asyncio.Lock] = {}  #: by model: passages of all collections, one after the other

    def warmings(self, collection_id: str) -> list[Warming]:
        """What was asked for since the server started."""
        return [each for (id_, *_), each in self._warmings.items() if id_ == collection_id]

    def warm(
        self, collection: Collection, name: str, model_name: str | None, endpoint: str | None, form: str | None
    ) -> Warming:
        """Begin to prepare, or tell how far it is. A warming that has ended begins again, in whatever form.

        Args:
            name: of the collection.
            endpoint: whose prompts begin with the passages: chat/completions or completions; by default the first
                where the model has a chat template.
            form: a template as of `PromptTemplate.parse`, in place of the usual one.

        Raises:
            ApiError: the model keeps no KV, or cannot be asked.
        """
        model = self._registry.get(model_name)
        check_ready(model)
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
            warming = self._warmings[key] = Warming(name, model.name, endpoint)
            warming.task = asyncio.create_task(self._run(warming, collection, model, template))
        return warming

    def forget(self, info: CollectionInfo, passages: Sequence[str]) -> None:
        """Delete the KV of passages that are deleted, of every model. In a thread; it encodes them anew.

        KV of prompts in a form of the request's own, and of passages that stood behind others, stays on disk until its
        turn to be evicted comes. Nothing finds it: nobody can search for the passages any more.
        """
        for model in self._registry:
            try:
                if not model.async_engine.limits.has_disk_tier:
                    continue
                prompts = [
                    prompt
                    for passage in passages
                    for is_chat in (False, True)
                    if (prompt := _prompt_of(model, passage, info.id, is_chat, None)) is not None
                ]
                model.async_engine.forget(prompts)
            except Exception:  # the documents are deleted, whatever becomes of their KV
                logger.exception("%s: KV of deleted documents could not be deleted", model.name)

    async def _run(
        self, warming: Warming, collection: Collection, model: ServedModel, template: PromptTemplate | None
    ) -> None:
        try:
            documents = await asyncio.to_thread(collection.documents)
            warming.num_passages = sum(each.num_chunks for each in documents)
            for document in documents:
                for passage in await asyncio.to_thread(collection.passages_of, document.id):
                    async with self._turns.setdefault(model.name, asyncio.Lock()):
                        await self._prepare(warming, collection.id, model, passage, template)
                    warming.num_done += 1
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
        is_chat = warming.endpoint == "chat/completions"
        prompt = await asyncio.to_thread(_prompt_of, model, passage, id_, is_chat, template)
        engine = model.async_engine
        if prompt is None or len(prompt.token_ids) >= engine.engine.max_model_len:
            why = "is too long for it" if prompt is not None else "does not stand at the start of its prompts"
            _note(warming, f"a passage {why}: {passage:.60}")
            return
        while engine.num_queued:
            await asyncio.sleep(_PATIENCE_S)
        began_at = time.monotonic()
        about = Generation(model, [prompt], _PARAMS, f"warm-{id_[:8]}", int(time.time()), _BEHIND_ALL)
        (output,) = await about.outputs()
        num_cached = sum(output.cached_tokens.values())
        warming.num_cached_tokens += num_cached
        warming.num_computed_tokens += len(prompt.token_ids) - num_cached
        if engine.num_requests:
            await asyncio.sleep(time.monotonic() - began_at)


def _prompt_of(
    model: ServedModel, passage: str, collection_id: str, is_chat: bool, template: PromptTemplate | None
) -> Prompt | None:
    tokenizer = model.async_engine.engine.tokenizer
    if tokenizer is None or (is_chat and not (model.chat_template or tokenizer.chat_templates)):
        return None
    joined = join_passage(tokenizer, passage, is_chat=is_chat, template=template, chat_template=model.chat_template)
    return None if joined is None else replace(joined, domains=((0, collection_domain(collection_id)),))


def _note(warming: Warming, error: str) -> None:
    if len(warming.errors) < 10:
        warming.errors.append(error)
