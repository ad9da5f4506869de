"""The OpenAPI document matches the server: a fuzzer finds no 500 and no broken schema."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from quire.rag.embedder import find_embedder
from quire.server.collections.service import CollectionService
from quire.server.openai.schema import ChatCompletionRequest, CompletionRequest
from quire.server.settings import ServerSettings
from serving import PATIENCE_S, SMALL, RunningServer, make_model, running

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
)
COLLECTION = "papers"
DOCUMENT = {"name": "a folder/of words.txt", "text": "Some words, and others.", "metadata": {"year": 2026}}


@pytest.fixture(scope="module")
def small_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    kv_dir = str(tmp_path_factory.mktemp("kv") / "kv")  # needed by /warm
    config = replace(SMALL, max_model_len=48, max_num_seqs=4, kv_dir=kv_dir)  # answers are short for any request
    service = CollectionService(tmp_path_factory.mktemp("rag"), find_embedder("hashing"))
    batch_dir = tmp_path_factory.mktemp("batches")
    with running(make_model(config), service=service, settings=ServerSettings(batch_dir=batch_dir)) as server:
        yield server
        server.wait_until_idle()


@pytest.fixture(scope="module")
def document(small_server: RunningServer) -> Any:
    return schemathesis.openapi.from_url(f"{small_server.url}/openapi.json", timeout=PATIENCE_S)


def upload(server: RunningServer) -> str:
    line = b'{"custom_id": "a", "url": "/v1/completions", "body": {"prompt": "Hello", "max_tokens": 1}}'
    form: Any = {"data": {"purpose": "batch"}, "files": {"file": line}}
    return str(server.send("POST", "/v1/files", **form).json()["id"])


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/responses/{response_id}",
        "/v1/messages",
        # generating fields of /v1/messages takes seconds
        pytest.param("/v1/messages/count_tokens", marks=pytest.mark.slow),
        "/tokenize",
        "/detokenize",
        "/v1/models",
        "/v1/models/{model}",
        "/health",
        "/version",
        "/load",
        "/props",
        "/apply-template",
        "/v1/embeddings",
        "/v1/rerank",
        "/v1/score",
        "/v1/collections",
        "/v1/collections/{name}",
        "/v1/collections/{name}/documents",
        "/v1/collections/{name}/documents/{document}",
        "/v1/collections/{name}/search",
        "/v1/collections/{name}/warm",
        "/v1/files",
        "/v1/files/{file_id}",
        "/v1/files/{file_id}/content",
        "/v1/batches",
        "/v1/batches/{batch_id}",
        "/v1/batches/{batch_id}/cancel",
    ],
)
def test_what_the_document_allows_is_answered_as_it_says(small_server: RunningServer, document: Any, path: str) -> None:
    operations = list(document[path].values())
    num_found = 0

    @given(case=st.one_of(*(operation.as_strategy() for operation in operations)), is_there=st.integers(0, 3))
    @settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def fuzz(case: Any, is_there: int) -> None:
        nonlocal num_found
        if "{name}" in path and is_there:  # otherwise most requests would get 404
            small_server.post("/v1/collections", name=COLLECTION)
            small_server.post(f"/v1/collections/{COLLECTION}/documents", documents=[DOCUMENT])
            case.path_parameters |= {"name": COLLECTION} | ({"document": DOCUMENT["name"]} if is_there > 1 else {})
        if "{file_id}" in path and is_there:
            case.path_parameters |= {"file_id": upload(small_server)}
        if "{batch_id}" in path and is_there:
            body = {"input_file_id": upload(small_server), "endpoint": "/v1/completions"}
            case.path_parameters |= {"batch_id": small_server.post("/v1/batches", **body).json()["id"]}
        num_found += case.call_and_validate(checks=CHECKS, timeout=PATIENCE_S).status_code < 300

    fuzz()
    assert num_found or "{name}" not in path, "nothing was tried in earnest"


def test_every_endpoint_is_in_the_document(server: RunningServer) -> None:
    document = server.get("/openapi.json").json()
    assert {
        "/v1/chat/completions", "/v1/completions", "/v1/models", "/v1/models/{model}", "/tokenize", "/detokenize",
        "/health", "/version", "/load", "/props", "/apply-template", "/v1/embeddings", "/v1/collections",
        "/v1/collections/{name}", "/v1/collections/{name}/documents", "/v1/collections/{name}/documents/{document}",
        "/v1/collections/{name}/search", "/v1/collections/{name}/warm", "/v1/responses",
        "/v1/responses/{response_id}", "/v1/messages", "/v1/messages/count_tokens", "/v1/files", "/v1/files/{file_id}",
        "/v1/files/{file_id}/content", "/v1/batches", "/v1/batches/{batch_id}", "/v1/batches/{batch_id}/cancel",
    } <= set(document["paths"])  # fmt: skip


def test_streams_are_in_the_document(server: RunningServer) -> None:
    document = server.get("/openapi.json").json()
    for path, chunk in (("/v1/chat/completions", "ChatCompletionChunk"), ("/v1/completions", "Completion")):
        content = document["paths"][path]["post"]["responses"]["200"]["content"]
        assert set(content) == {"application/json", "text/event-stream"}
        assert content["text/event-stream"]["x-event-data"]["$ref"] == f"#/components/schemas/{chunk}"
        assert chunk in document["components"]["schemas"]


def test_every_field_is_explained(server: RunningServer) -> None:
    schemas = server.get("/openapi.json").json()["components"]["schemas"]
    for name in (
        "ChatCompletionRequest",
        "CompletionRequest",
        "TokenizeRequest",
        "DetokenizeRequest",
        "TemplateRequest",
        "CollectionRequest",
        "DocumentUpload",
        "SearchRequest",
        "EmbeddingRequest",
        "Message",
        "Tool",
        "ResponsesRequest",
        "InputItem",
        "MessagesRequest",
        "InputBlock",
    ):
        for field, about in schemas[name]["properties"].items():
            assert about.get("description"), f"{name}.{field}"


def test_the_page_about_the_api_lists_every_endpoint_and_no_other(small_server: RunningServer) -> None:
    page = Path("docs/reference/api.md").read_text()
    listed = {
        re.sub(r"\b[A-Z]{2,}\b", "{}", path).rstrip("/")
        for row in re.findall(r"^\| (`[^|]*) \|", page, re.M)
        for path in re.findall(r"`(?:GET |POST |DELETE )?(/[^` ]*)`", row)
    }
    paths = small_server.get("/openapi.json").json()["paths"]
    known = {re.sub(r"\{[^}]*\}", "{}", path).rstrip("/") for path in paths}
    assert listed == known | {"", "/docs", "/metrics"}  # pages and metrics are not in the document


def test_the_page_about_the_api_names_every_field_of_chat_and_completions() -> None:
    section = Path("docs/reference/api.md").read_text().partition("## Fields")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)[`:]", section))
    fields = {*ChatCompletionRequest.model_fields, *CompletionRequest.model_fields}
    assert fields - named == {"model", "messages", "prompt"}
