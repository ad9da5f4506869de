"""The retrieval hook of endpoints: search a collection, then put as many passages before the question as fit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from quire.prompt import Prompt
from quire.rag.prompt_template import PromptTemplate, share
from quire.server.bodies.retrieval import PassageCard, Passages, Retrieval, RetrievalReply
from quire.server.collections.service import CollectionService
from quire.server.errors import ApiError, invalid

if TYPE_CHECKING:
    from quire.core.block_keys import DomainSpans
    from quire.rag.records import Passage


class CollectionRetriever:
    """Implements `Retriever` over a server's collections."""

    def __init__(self, service: CollectionService) -> None:
        self._service = service

    async def search(self, key_id: str, options: Retrieval, question: str | None) -> CollectionPassages:
        """See `Retriever.search`."""
        if question is None:
            raise invalid("retrieval puts passages in front of one text; send one as prompt", "prompt")
        try:
            template = None if options.template is None else PromptTemplate.parse(options.template)
        except ValueError as error:
            raise invalid(str(error), "retrieval.template") from None
        query = options.query or question
        if not query.strip():
            raise invalid("there is no question to search by; send one, or retrieval.query", "retrieval.query")
        name, top_k = options.collection, options.top_k or 1
        try:
            found = await self._service.search(key_id, name, query, top_k, options.filter, options.search)
        except ApiError as error:
            param = f"retrieval.{error.param}" if error.param in Retrieval.model_fields else error.param
            raise replace(error, param=param) from None
        return CollectionPassages(options.collection, found.collection.id, found.passages, template)


@dataclass(frozen=True)
class CollectionPassages:
    """The passages that a search found. Implements `RetrievedPassages`."""

    collection: str
    collection_id: str
    passages: Sequence[Passage]  #: best first
    template: PromptTemplate | None

    @property
    def num_characters(self) -> int:
        return sum(len(each.text) for each in self.passages)

    async def join(
        self, encode: Callable[[Passages | None], Awaitable[Prompt]], max_model_len: int, max_tokens: int | None
    ) -> tuple[Prompt, RetrievalReply]:
        """See `RetrievedPassages.join`."""
        if not self.passages:
            return await encode(None), self._reply(())
        # As without passages, an excessive max_tokens is reduced.
        room = max_model_len - min(max_tokens or max_model_len, max_model_len // 4)
        fitting, low, high = None, 0, len(self.passages)  # bisection bounds on the fitting passages
        while low < high:
            count = (low + high + 1) // 2
            prompt = await encode(Passages([each.text for each in self.passages[:count]], self.template))
            if len(prompt.token_ids) <= (room if count > 1 else max_model_len - 1):
                fitting, low = prompt, count
            else:
                high = count - 1
        if fitting is not None:
            return fitting, self._reply(self.passages[:low])
        raise invalid(
            f"the question and the first passage have {len(prompt.token_ids)} tokens, and the model takes "
            f"{max_model_len} together with its answer; use another model, or make the collection of smaller chunks",
            "retrieval",
        )

    def share(self, prompt: Prompt, domains: DomainSpans, salt: str | None) -> Prompt:
        """See `RetrievedPassages.share`."""
        return share(prompt, self.collection_id, domains, salt)

    def _reply(self, used: Sequence[Passage]) -> RetrievalReply:
        return RetrievalReply(collection=self.collection, sources=[PassageCard.of(each) for each in used])
