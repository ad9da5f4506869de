"""Retrieval: its field in a body, its part of an answer, and the hook that endpoints call.

Endpoints know no collections: the application injects a `Retriever`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Protocol, Self

from pydantic import Field

from quire.server.bodies.fields import Body, FilterFields, PlainFields, Reply, option
from quire.settings import RankBy

if TYPE_CHECKING:
    from quire.core.block_keys import DomainSpans
    from quire.prompt import Prompt
    from quire.rag.prompt_template import PromptTemplate
    from quire.rag.records import Passage


RANK_BY = "hybrid ranks by vectors and by words, vectors by vectors only. Default: hybrid."


class Retrieval(Body):
    """Passages to search for and put in front of the question."""

    collection: Annotated[str, Field(min_length=1, max_length=200)] = Field(description="A name from /v1/collections.")
    top_k: int | None = option("Maximum number of passages, best first, as far as they fit; default 1.", ge=1, le=64)
    filter: FilterFields | None = option("Metadata that documents must have; a list means any of its values.")
    query: Annotated[str, Field(min_length=1)] | None = option(
        "Search text; default: the last message of the user, or the prompt."
    )
    search: RankBy | None = option(RANK_BY)
    template: Annotated[str, Field(max_length=8192)] | None = option(
        "Form of the prompt or of the first message, with {documents} followed by {question}."
    )


class PassageCard(Reply):
    score: float = Field(description="Cosine similarity to the query.")
    document_id: int
    document: str = Field(description="Name of the document.")
    start: int = Field(description="Position in the document's text, in characters.")
    end: int
    page: int | None = Field(description="Page on which the passage starts, counted from 1; null without pages.")
    num_tokens: int
    metadata: PlainFields = Field(description="Metadata of the document.")
    text: str

    @classmethod
    def of(cls, passage: Passage) -> Self:
        return cls(**{name: getattr(passage, name) for name in cls.model_fields})


class RetrievalReply(Reply):
    collection: str
    sources: list[PassageCard] = Field(description="Passages in the prompt, best first.")


@dataclass(frozen=True)
class Passages:
    """Texts to put in front of a question."""

    texts: Sequence[str]
    template: PromptTemplate | None = None  #: None is the default template


class RetrievedPassages(Protocol):
    """The result of a search."""

    @property
    def num_characters(self) -> int: ...

    async def join(
        self, encode: Callable[[Passages | None], Awaitable[Prompt]], max_model_len: int, max_tokens: int | None
    ) -> tuple[Prompt, RetrievalReply]:
        """Return the prompt with as many passages as fit, and their description for the answer.

        Passages after the first leave room for `max_tokens`, but for no more than a quarter of `max_model_len`. Raises
        ApiError if the first does not fit.
        """

    def share(self, prompt: Prompt, domains: DomainSpans, salt: str | None) -> Prompt:
        """Let other readers of the collection share the KV of the passages; `domains` apply to the rest."""


class Retriever(Protocol):
    """The hook that searches before a prompt is made."""

    async def search(self, key_id: str, options: Retrieval, question: str | None) -> RetrievedPassages:
        """Search for the passages that a body asks for. Raises ApiError without a collection or a question, which is
        None for token ids or several texts."""
