"""Request and response bodies of collections and embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field

from quire.server.bodies.fields import (
    Body,
    FilterFields,
    Hint,
    Items,
    ModelBody,
    NonEmpty,
    PlainFields,
    Reply,
    TokenId,
    option,
)
from quire.server.bodies.replies import ERROR_RESPONSES, ErrorBody, ErrorDetail, PromptUsage
from quire.server.bodies.retrieval import RANK_BY, PassageCard
from quire.settings import RankBy

if TYPE_CHECKING:
    from quire.rag.records import CollectionInfo, DocumentInfo

MAX_TOP_K = 100
MAX_DOCUMENTS = 10_000  #: per request
MAX_INPUTS = 2048  #: per request for embeddings

Kind = Literal["text", "markdown", "html", "pdf", "docx", "pptx", "xlsx", "epub", "csv", "squad"]

RESPONSES: dict[int | str, dict[str, Any]] = {
    **ERROR_RESPONSES,
    404: {"model": ErrorBody, "description": "Unknown collection or document, or collections are disabled."},
    409: {"model": ErrorBody, "description": "The name exists already, or another request is changing the collection."},
    413: {"model": ErrorBody, "description": "The body is too large, or the key's quota is exhausted."},
    501: {"model": ErrorBody, "description": "The server lacks the packages for collections."},
    503: {"model": ErrorBody, "description": "The disk or the embedder fails at the moment."},
}


# -- collections ---------------------------------------------------------------------------------------------------


class CollectionRequest(Body):
    name: str = Field(description="Name of the collection: 1 to 200 printable characters, no slash.")
    public: bool | None = option("Let all keys read it; requires an admin key. Default: false.")
    chunk_tokens: int | None = option(
        "Maximum chunk length in tokens. Default: 256, or less for a small embedder or model context.", ge=8, lt=2**31
    )
    overlap_tokens: int | None = option(
        "Maximum number of tokens that a chunk repeats from the previous one. Default: 32.", ge=0, lt=2**31
    )


class CollectionCard(Reply):
    id: str = Field(description="Random id; a recreated collection gets a new one.")
    object: Literal["collection"]
    name: str
    public: bool = Field(description="All keys may read it.")
    created: int = Field(description="Creation time in seconds since 1970.")
    chunk_tokens: int
    overlap_tokens: int
    num_documents: int
    num_chunks: int

    @classmethod
    def of(cls, info: CollectionInfo) -> Self:
        names = ("id", "name", "chunk_tokens", "overlap_tokens", "num_documents", "num_chunks")
        same: dict[str, Any] = {name: getattr(info, name) for name in names}
        return cls(object="collection", public=info.is_public, created=int(info.created), **same)


class CollectionList(Reply):
    object: Literal["list"]
    data: list[CollectionCard]


# -- documents -----------------------------------------------------------------------------------------------------


class DocumentUpload(Body):
    name: str = Field(
        description="Name of the document; a document of the same name is replaced. 1 to 1024 printable characters, "
        "not only digits. It never refers to the server's disk."
    )
    text: str | None = option("The document as text.")
    data: str | None = option("The document's bytes in base64, instead of text.")
    kind: Kind | None = option(
        "Format: text, markdown, html, pdf, docx, pptx, xlsx, epub, csv or squad. By default of the name's suffix."
    )
    metadata: PlainFields | None = option("Strings, numbers and booleans for filters of searches.")


class DocumentsRequest(Body):
    documents: Annotated[list[DocumentUpload], Field(fail_fast=True, min_length=1, max_length=MAX_DOCUMENTS)] = Field(
        description=f"1 to {MAX_DOCUMENTS:,} documents with distinct names."
    )


class DocumentOutcome(Reply):
    name: str
    added: int = Field(description="Number of documents; only a SQuAD file holds several.")
    changed: int
    unchanged: int
    removed: int
    error: ErrorDetail | None = option("Reason for rejecting it; a stored document of the name stays.")


class DocumentsReply(Reply):
    """Results of a request's documents."""

    object: Literal["collection.changes"]
    added: int
    changed: int
    unchanged: int
    removed: int
    failed: int = Field(description="Number of rejected uploads.")
    documents: list[DocumentOutcome] = Field(description="One result per upload.")


class DocumentCard(Reply):
    id: int
    object: Literal["document"]
    name: str
    metadata: PlainFields
    num_chars: int
    num_chunks: int
    added: int = Field(description="Time of the last change in seconds since 1970.")
    text: str | None = option("Only present for a single document.")

    @classmethod
    def of(cls, info: DocumentInfo, **text: Any) -> Self:
        names = ("id", "name", "metadata", "num_chars", "num_chunks")
        same: dict[str, Any] = {name: getattr(info, name) for name in names}
        return cls(object="document", added=int(info.added), **text, **same)


class DocumentList(Reply):
    object: Literal["list"]
    data: list[DocumentCard]
    has_more: bool = Field(description="More documents follow; repeat the request with after=the last id.")


# -- search --------------------------------------------------------------------------------------------------------


class SearchRequest(Body):
    query: Annotated[str, Field(min_length=1)] = Field(description="Search text; at least one character.")
    top_k: int | None = option(f"Number of passages, 1 to {MAX_TOP_K}. Default: 5.", ge=1, le=MAX_TOP_K)
    filter: FilterFields | None = option("Metadata that documents must have; a list means any of its values.")
    search: RankBy | None = option(RANK_BY)


class SearchReply(Reply):
    object: Literal["list"]
    collection: str
    data: list[PassageCard] = Field(description="Passages, best first.")
    usage: PromptUsage


# -- warming -------------------------------------------------------------------------------------------------------


class WarmRequest(ModelBody):
    endpoint: Literal["chat/completions", "completions"] | None = option(
        "Endpoint of the prompts. Default: chat/completions for models with a chat template, else completions."
    )
    template: Annotated[str, Field(max_length=8192)] | None = option(
        "Template that requests will use, with {documents} followed by {question}."
    )


class WarmReply(Reply):
    """Progress of computing a collection's KV for a model."""

    collection: str
    model: str
    endpoint: str
    status: str = Field(default="running", description="One of running, done and failed.")
    num_passages: int = 0
    num_done: int = 0
    num_computed_tokens: int = 0
    num_cached_tokens: int = Field(default=0, description="Tokens whose KV existed.")
    errors: list[str] = Field(default_factory=list, description="First ten errors.")


class WarmList(Reply):
    object: Literal["list"]
    data: list[WarmReply]


# -- embeddings ----------------------------------------------------------------------------------------------------


class EmbeddingRequest(ModelBody):
    model: str | None = option("Name of the embedder (default), or of a model, whose hidden states are pooled.")
    input: (
        Annotated[str, Field(min_length=1)]
        | Items[Annotated[str, Field(min_length=1)]]
        | NonEmpty[TokenId]
        | Items[NonEmpty[TokenId]]
    ) = Field(
        description=f"A non-empty text, or a list of 1 to {MAX_INPUTS:,}; or token ids of the model's tokenizer. The "
        "embedder rejects those of other tokenizers, which lack its special tokens; in LangChain, set "
        "check_embedding_ctx_length=False.",
        union_mode="left_to_right",
    )
    encoding_format: Literal["float", "base64"] | None = option("base64 encodes little-endian float32. Default: float.")
    dimensions: int | None = option("Of a model: leading values to keep. Else the embedder's own.", ge=1, lt=2**31)
    truncate_prompt_tokens: int | None = option(
        "Number of tokens that the embedder keeps of each text; -1: as many as it takes. Default: longer texts are "
        "rejected.",
        ge=-1,
        lt=2**31,
    )
    user: Hint = option("Accepted for compatibility; has no effect.")


class EmbeddingCard(Reply):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str = Field(description="Vector of length 1, or its base64 encoding.")


class EmbeddingReply(Reply):
    id: str
    object: Literal["list"]
    created: int = Field(description="Seconds since 1970.")
    data: list[EmbeddingCard] = Field(description="Embeddings in the order of the texts.")
    model: str
    usage: PromptUsage
