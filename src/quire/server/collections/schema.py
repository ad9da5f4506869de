"""Bodies of requests and answers about collections and embeddings, as OpenAPI shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field

from quire.server.bodies.fields import Body, FilterFields, Hint, Items, ModelBody, PlainFields, Reply, option
from quire.server.bodies.replies import ERROR_RESPONSES, ErrorBody, ErrorDetail
from quire.server.bodies.retrieval import PassageCard

if TYPE_CHECKING:
    from quire.rag.records import CollectionInfo, DocumentInfo
    from quire.server.collections.uploads import UploadOutcome

MAX_TOP_K = 100
MAX_DOCUMENTS = 10_000  #: of a request
MAX_INPUTS = 2048  #: of a request for embeddings

Kind = Literal["text", "markdown", "html", "pdf", "squad"]

RESPONSES: dict[int | str, dict[str, Any]] = {
    **ERROR_RESPONSES,
    404: {"model": ErrorBody, "description": "There is no such collection or document, or the server keeps none."},
    409: {"model": ErrorBody, "description": "It is there already, or something else changes it now."},
    413: {"model": ErrorBody, "description": "The body is too large, or the key's quota is used."},
    501: {"model": ErrorBody, "description": "The server lacks what collections need."},
    503: {"model": ErrorBody, "description": "The disk, or the embedder, does not do its part now."},
}


# -- collections ---------------------------------------------------------------------------------------------------


class CollectionRequest(Body):
    name: str = Field(description="What it is called: 1 to 200 printable characters, no slash.")
    public: bool | None = option("All keys may read it; only an admin key may say so. false by default.")
    chunk_tokens: int | None = option(
        "The longest chunk, in tokens; 256 by default, or what the embedder and half of the context of each model "
        "leave.",
        ge=8,
        lt=2**31,
    )
    overlap_tokens: int | None = option(
        "Tokens that a chunk repeats of the one before, at most; 32 by default.", ge=0, lt=2**31
    )


class CollectionCard(Reply):
    id: str = Field(description="Random; new when a collection is made again.")
    object: Literal["collection"]
    name: str
    public: bool = Field(description="All keys may read it.")
    created: int = Field(description="Seconds since 1970.")
    chunk_tokens: int
    overlap_tokens: int
    num_documents: int
    num_chunks: int

    @classmethod
    def of(cls, info: CollectionInfo) -> Self:
        return cls(
            id=info.id,
            object="collection",
            name=info.name,
            public=info.is_public,
            created=int(info.created),
            chunk_tokens=info.chunk_tokens,
            overlap_tokens=info.overlap_tokens,
            num_documents=info.num_documents,
            num_chunks=info.num_chunks,
        )


class CollectionList(Reply):
    object: Literal["list"]
    data: list[CollectionCard]


class Deleted(Reply):
    id: str | int
    object: Literal["collection", "document"]
    deleted: Literal[True]


# -- documents -----------------------------------------------------------------------------------------------------


class DocumentUpload(Body):
    name: str = Field(
        description="Stands for the document: another one of the same name replaces it. 1 to 1024 printable "
        "characters, not digits alone. Nothing is read from the server's disk."
    )
    text: str | None = option("The document as text.")
    data: str | None = option("The document's bytes in base64, in place of text.")
    kind: Kind | None = option(
        "text, markdown, html, pdf or squad: how it is read. By default what the end of its name says; a text whose "
        "name says nothing is read as it is."
    )
    metadata: PlainFields | None = option("Strings, numbers and booleans, by which searches can filter.")


class DocumentsRequest(Body):
    documents: Annotated[list[DocumentUpload], Field(fail_fast=True, min_length=1, max_length=MAX_DOCUMENTS)] = Field(
        description=f"1 to {MAX_DOCUMENTS:,} documents, each with a name of its own."
    )


class DocumentOutcome(Reply):
    name: str
    added: int = Field(description="Documents: a SQuAD file holds many, every other one.")
    changed: int
    unchanged: int
    removed: int
    error: ErrorDetail | None = Field(default=None, description="Why it was not taken; what was there before stays.")

    @classmethod
    def of(cls, outcome: UploadOutcome) -> Self:
        counts: dict[str, Any] = {what: outcome.counts[what] for what in ("added", "changed", "unchanged", "removed")}
        if outcome.error is None:
            return cls(name=outcome.name, **counts)
        code = "quota_exceeded" if outcome.is_quota else "invalid_document"
        error = ErrorDetail(message=outcome.error, type="invalid_request_error", param="documents", code=code)
        return cls(name=outcome.name, **counts, error=error)


class DocumentsReply(Reply):
    """What became of the documents of a request."""

    object: Literal["collection.changes"]
    added: int
    changed: int
    unchanged: int
    removed: int
    failed: int = Field(description="Uploads that were not taken; each says why.")
    documents: list[DocumentOutcome] = Field(description="By upload.")


class DocumentCard(Reply):
    id: int
    object: Literal["document"]
    name: str
    metadata: PlainFields
    num_chars: int
    num_chunks: int
    added: int = Field(description="Seconds since 1970: when it was added, or last changed.")
    text: str | None = Field(default=None, description="Shown where one document is asked for.")

    @classmethod
    def of(cls, info: DocumentInfo, **text: str) -> Self:
        return cls(
            id=info.id,
            object="document",
            name=info.name,
            metadata=info.metadata,
            num_chars=info.num_chars,
            num_chunks=info.num_chunks,
            added=int(info.added),
            **text,
        )


class DocumentList(Reply):
    object: Literal["list"]
    data: list[DocumentCard]
    has_more: bool = Field(description="There are more after the last one here; ask again with after=its id.")


# -- search --------------------------------------------------------------------------------------------------------


class SearchRequest(Body):
    query: Annotated[str, Field(min_length=1)] = Field(description="What to look for; at least one character.")
    top_k: int | None = option(f"Passages that are wanted, 1 to {MAX_TOP_K}; 5 by default.", ge=1, le=MAX_TOP_K)
    filter: FilterFields | None = option(
        "Only of documents with these metadata: by field the value, or a list of values that will do. All fields must "
        "fit."
    )


class EmbeddingUsage(Reply):
    prompt_tokens: int
    total_tokens: int


class SearchReply(Reply):
    object: Literal["list"]
    collection: str
    data: list[PassageCard] = Field(description="The nearest first.")
    usage: EmbeddingUsage


# -- embeddings ----------------------------------------------------------------------------------------------------


class EmbeddingRequest(ModelBody):
    model: str | None = option("The embedder's name; may be left out, since a server has one.")
    input: Annotated[str, Field(min_length=1)] | Items[Annotated[str, Field(min_length=1)]] = Field(
        description=f"A text, or a list of 1 to {MAX_INPUTS:,} texts, none of them empty. Token ids are not taken, "
        "since they would be of another tokenizer; in LangChain, set check_embedding_ctx_length=False."
    )
    encoding_format: Literal["float", "base64"] | None = option(
        "float by default; base64 is of little-endian float32 values."
    )
    dimensions: int | None = option("Only as many as the embedder has.", ge=1, lt=2**31)
    truncate_prompt_tokens: Annotated[int, Field(ge=-1, le=-1)] | None = option(
        "-1: of a text that is longer than the embedder's limit, the beginning counts. Without it, it is refused."
    )
    user: Hint = option("OpenAI's hint; nothing depends on it.")


class EmbeddingCard(Reply):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str = Field(description="Of length 1; as base64 where that was asked for.")


class EmbeddingReply(Reply):
    object: Literal["list"]
    data: list[EmbeddingCard] = Field(description="In the order of the texts.")
    model: str
    usage: EmbeddingUsage
