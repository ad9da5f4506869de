"""POST /v1/embeddings with OpenAI's client, and its errors."""

from __future__ import annotations

import base64
from functools import partial
from pathlib import Path

import openai
import pytest
from starlette.testclient import TestClient

from quire.rag.embedder import HashingEmbedder
from quire.server.settings import ServerSettings
from server.collections.collections_app import served
from tiny_bert import write_tiny_bert

TEXTS = ["cats and dogs", "fish"]


@pytest.fixture
def official(client: TestClient) -> openai.OpenAI:
    return openai.OpenAI(base_url="http://testserver/v1", api_key="ann", max_retries=0, http_client=client)


def test_the_embedder_is_the_last_of_the_models(official: openai.OpenAI) -> None:
    names = [model.id for model in official.models.list()]
    assert names[-1] == "hashing"
    assert len(names) > 1
    assert official.models.retrieve("hashing").id == "hashing"


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
        ({"input": [1, 2]}, "input"),
        ({"input": []}, "input"),
        ({"input": ["x"] * 2049}, "input"),
        ({"input": ""}, "input"),
        ({"input": [[]]}, "input[0]"),
        ({"input": ["x", 1]}, "input[1]"),
        ({"input": "x", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"input": "x", "truncate_prompt_tokens": 8193}, "truncate_prompt_tokens"),
        ({"input": "x", "dimensions": 8}, "dimensions"),
        ({"input": "x", "encoding_format": "hex"}, "encoding_format"),
        ({"input": ["ok", "x " * 9000]}, "input[1]"),
    ):
        error = client.post("/embeddings", json=body).json()["error"]
        assert error["param"] == param, error
    cut = client.post("/v1/embeddings", json={"input": "x " * 9000, "truncate_prompt_tokens": -1})
    assert cut.json()["usage"]["prompt_tokens"] == 8192
    cut = client.post("/v1/embeddings", json={"input": ["x y z", "x"], "truncate_prompt_tokens": 2})
    assert cut.json()["usage"]["prompt_tokens"] == 3


def test_an_embedder_of_any_name_reads_token_ids_of_its_own_tokenizer(tmp_path: Path) -> None:
    write_tiny_bert(tmp_path)
    with served(ServerSettings(embedder=f"text-embedding-3-small={tmp_path}")) as client:
        official = openai.OpenAI(base_url="http://testserver/v1", api_key="x", max_retries=0, http_client=client)
        ask = partial(official.embeddings.create, model="text-embedding-3-small")
        text = ask(input="a cat")
        assert (text.model, text.usage.prompt_tokens) == ("text-embedding-3-small", 4)
        assert ask(input=[2, 4, 6, 3]).data == ask(input=[[2, 4, 6, 3]]).data == text.data
        with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length=False"):
            ask(input=[15339, 1917])
