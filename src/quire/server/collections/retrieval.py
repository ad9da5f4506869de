"""`retrieval` in a body: search first, then put as many passages in front of the question as fit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from quire.prompt import Prompt
from quire.rag.collections import Passage
from quire.rag.prompt_template import PromptTemplate
from quire.sampling_params import SamplingParams
from quire.server.collections.library import Library
from quire.server.errors import invalid
from quire.server.openai.prompts import Passages
from quire.server.openai.schema import GenerationRequest, Message, RetrievalReply, Source

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
            params: say how long the answer may be. Where they do not, later passages leave it a quarter of the room.

        Raises:
            ApiError: not one passage fits.
        """
        if not self.passages:
            return await encode(None), self._reply(())
        for count in range(len(self.passages), 0, -1):
            used = self.passages[:count]
            prompt = await encode(Passages([each.text for each in used], self.template))
            room = limit - (params.max_tokens or (limit // 4 if count > 1 else 1))
            if len(prompt.token_ids) <= room:
                return prompt, self._reply(used)
        raise invalid(
            f"the question and the passage that was found are {len(prompt.token_ids)} tokens, and there is room for "
            f"{room}; ask for fewer max_tokens, take another model, or make the collection of smaller chunks",
            "retrieval",
        )

    def _reply(self, used: Sequence[Passage]) -> RetrievalReply:
        sources = [
            Source(
                document=each.document,
                document_id=each.document_id,
                score=round(each.score, 6),
                start=each.start,
                end=each.end,
                text=each.text,
                metadata=each.metadata,
            )
            for each in used
        ]
        return RetrievalReply(collection=self.collection, sources=sources)


async def retrieve(library: Library, key_id: str, body: GenerationRequest, question: str | None) -> Retrieved:
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
    found = await library.search(key_id, asked.collection, query, top_k=asked.top_k or 1, where=asked.filter)
    return Retrieved(asked.collection, found.collection.id, found.passages, template)


def last_question(messages: Sequence[Message]) -> str:
    """The text of the last message of the user; "" where there is none."""
    for message in reversed(messages):
        if message.role == "user":
            content = message.content
            return "\n".join(part.text for part in content) if isinstance(content, list) else content or ""
    return ""
