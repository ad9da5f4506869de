"""POST /v1/embeddings with OpenAI's client, and its errors."""

from __future__ import annotations

import base64

import openai
import pytest
from starlette.testclient import TestClient

from quire.rag.embedder import HashingEmbedder

TEXTS = ["cats and dogs", "fish"]


@pytest.fixture
def official(client: TestClient) -> openai.OpenAI:
    return openai.OpenAI(base_url="http://testserver/v1", api_key="ann", max_retries=0, http_client=client)


@pytest.mark.parametrize(
    "options", [{}, {"encoding_format": "float"}, {"encoding_format": "base64"}, {"dimensions": 384}]
)
def test_the_client_gets_the_embedder_s_vectors(official: openai.OpenAI, options: dict[str, object]) -> None:
    answer = official.embeddings.create(model="hashing", input=TEXTS, user="u", **options)  # type: ignore[call-overload]
    expected = HashingEmbedder().embed(TEXTS)
    assert [each.index for each in answer.data] == [0, 1]
    for each, vector in zip(answer.data, expected.vectors, strict=True):
        if options.get("encoding_format") == "base64":  # so the client leaves it unchanged
            assert base64.b64decode(each.embedding) == vector.tobytes()
        else:
            assert each.embedding == pytest.approx(vector.tolist())
    assert (answer.model, answer.usage.prompt_tokens, answer.usage.total_tokens) == ("hashing", 4, 4)


def test_what_cannot_be_had_is_refused_by_its_field(official: openai.OpenAI, client: TestClient) -> None:
    with pytest.raises(openai.NotFoundError, match="this server has 'hashing'"):
        official.embeddings.create(model="text-embedding-3-small", input="x")
    for body, param in (
        ({"input": [1, 2]}, "input[0]"),
        ({"input": []}, "input"),
        ({"input": ["x"] * 2049}, "input"),
        ({"input": ""}, "input"),
        ({"input": "x", "dimensions": 8}, "dimensions"),
        ({"input": "x", "encoding_format": "hex"}, "encoding_format"),
        ({"input": ["ok", "x " * 9000]}, "input[1]"),
    ):
        error = client.post("/embeddings", json=body).json()["error"]
        assert error["param"] == param, error
    cut = client.post("/v1/embeddings", json={"input": "x " * 9000, "truncate_prompt_tokens": -1})
    assert cut.status_code == 200
