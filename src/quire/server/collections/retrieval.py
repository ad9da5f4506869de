"""`retrieval` in a body: search first, then put as many passages in front of the question as fit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from quire.prompt import Prompt
from quire.rag.prompt_template import PromptTemplate
from quire.sampling_params import SamplingParams
from quire.server.bodies.conversation import Message
from quire.server.bodies.replies import PassageCard, RetrievalReply
from quire.server.collections.service import CollectionService
from quire.server.errors import ApiError, invalid
from quire.server.openai.prompts import Passages
from quire.server.openai.schema import GenerationRequest, Retrieval

if TYPE_CHECKING:
    from quire.rag.records import Passage

_EXCLUDED = ("truncate_prompt_tokens", "echo")  #: fields that would cut passages off, or show them again


@dataclass(frozen=True)
class Retrieved:
    """What a search found."""

    collection: str
    collection_id: str
    passages: Sequence[Passage]  #: best first
    template: PromptTemplate | None

    @property
    def num_characters(self) -> int:
        return sum(len(each.text) for each in self.passages)

    async def join(
        self, encode: Callable[[Passages | None], Awaitable[Prompt]], limit: int, params: SamplingParams
    ) -> tuple[Prompt, RetrievalReply]:
        """The prompt with as many passages as fit, and what the answer tells of them.

        Args:
            encode: makes the prompt with passages; with None, without.
            limit: the most tokens of prompt and answer.
            params: say how long the answer may be: later passages leave it so much room, but no more than a quarter.

        Raises:
            ApiError: not one passage fits.
        """
        if not self.passages:
            return await encode(None), self._reply(())
        # A longer max_tokens than there is room for is cut, as it is without passages.
        room = limit - min(params.max_tokens or limit, limit // 4)
        fitting, low, high = None, 0, len(self.passages)  # so many fit, and so many do not
        while low < high:
            count = (low + high + 1) // 2
            prompt = await encode(Passages([each.text for each in self.passages[:count]], self.template))
            if len(prompt.token_ids) <= (room if count > 1 else limit - 1):
                fitting, low = prompt, count
            else:
                high = count - 1
        if fitting is not None:
            return fitting, self._reply(self.passages[:low])
        raise invalid(
            f"the question and the passage that was found are {len(prompt.token_ids)} tokens, and the model takes "
            f"{limit} with its answer; take another model, or make the collection of smaller chunks",
            "retrieval",
        )

    def _reply(self, used: Sequence[Passage]) -> RetrievalReply:
        return RetrievalReply(collection=self.collection, sources=[PassageCard.of(each) for each in used])


async def retrieve(service: CollectionService, key_id: str, body: GenerationRequest, question: str | None) -> Retrieved:
    """Search for what a body asks.

    Args:
        question: None where the body has no text, or several.

    Raises:
        ApiError: there is no such collection, no collections at all, or other fields do not go with it.
    """
    asked = body.retrieval
    assert asked is not None
    for name in _EXCLUDED:
        if getattr(body, name, None):
            raise invalid(f"{name} does not go with retrieval; leave it out", name)
    if question is None:
        raise invalid("retrieval puts passages in front of one text; send one as prompt", "prompt")
    try:
        template = None if asked.template is None else PromptTemplate.parse(asked.template)
    except ValueError as error:
        raise invalid(str(error), "retrieval.template") from None
    query = asked.query or question
    if not query.strip():
        raise invalid("there is no question to search by; send one, or retrieval.query", "retrieval.query")
    try:
        found = await service.search(key_id, asked.collection, query, top_k=asked.top_k or 1, where=asked.filter)
    except ApiError as error:
        param = f"retrieval.{error.param}" if error.param in Retrieval.model_fields else error.param
        raise replace(error, param=param) from None
    return Retrieved(asked.collection, found.collection.id, found.passages, template)


def last_question(messages: Sequence[Message]) -> str:
    """The text of the last message of the user; "" where there is none."""
    return next((message.text for message in reversed(messages) if message.role == "user"), "")
