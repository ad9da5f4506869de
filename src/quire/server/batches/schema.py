"""Bodies and answers of /v1/files and /v1/batches, in OpenAI's form."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from quire.server.bodies.fields import Body, Reply, ShortText, option
from quire.server.bodies.replies import ERROR_RESPONSES, ErrorBody

RESPONSES: dict[int | str, dict[str, Any]] = {
    **ERROR_RESPONSES,
    404: {"model": ErrorBody, "description": "No such file or batch of this key, or the server keeps none."},
}
BatchUrl = Literal["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"]
MetadataText = Annotated[str, Field(max_length=512)]
Metadata = Annotated[dict[Annotated[str, Field(max_length=64)], MetadataText], Field(max_length=16)]


class FileCard(Reply):
    id: str
    object: Literal["file"]
    bytes: int
    created_at: int = Field(description="Seconds since 1970.")
    filename: str
    purpose: str = Field(description="batch, or batch_output of a batch's answers and errors.")
    status: Literal["processed"]


class _List(Reply):
    object: Literal["list"]
    first_id: str | None = None
    last_id: str | None = None
    has_more: bool


class FileList(_List):
    data: list[FileCard]


class BatchRequest(Body):
    """A batch of requests in an uploaded file."""

    input_file_id: ShortText = Field(description="Id of a file with purpose batch, of at most 1 MiB a line.")
    endpoint: BatchUrl = Field(description="The `url` of all lines, such as /v1/chat/completions.")
    completion_window: ShortText = Field("24h", description="Accepted; a batch takes the time that it needs.")
    metadata: Metadata | None = option("Up to 16 texts, shown with the batch.")


class BatchCard(Reply):
    """Unset fields are left out."""

    id: str
    object: Literal["batch"]
    endpoint: str
    input_file_id: str
    completion_window: str
    status: Literal["validating", "failed", "in_progress", "completed", "cancelling", "cancelled"]
    created_at: int = Field(description="Seconds since 1970, as the other times.")
    in_progress_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    request_counts: dict[str, int] = Field(description="Lines: total, completed with status 200, failed.")
    errors: dict[str, Any] | None = option("Why the batch failed: a list of code, message, param and line.")
    output_file_id: str | None = option("Answers with status 200, once the batch has ended.")
    error_file_id: str | None = option("Other answers, once the batch has ended.")
    metadata: dict[str, str] | None = None


class BatchList(_List):
    data: list[BatchCard]
