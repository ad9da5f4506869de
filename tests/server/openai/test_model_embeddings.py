"""POST /v1/embeddings of a served model, in a process of its own, with OpenAI's client."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from engines import process_engine
from quire.assembly import start_engine
from quire.config import EngineConfig
from quire.kernels.loaded import has_exact_kernels
from quire.loading.source import resolve_model
from quire.server.registry import ServedModel
from quire.server.settings import ServerSettings
from serving import RunningServer, running

TEXTS = ["The key to the barn", "hangs behind the kitchen door. " * 40, "Cats"]


def served(folder: Path, settings: ServerSettings | None = None) -> RunningServer:
    config = EngineConfig(
        str(folder), dtype="float32", kv_cache_memory="32MiB", max_num_batched_tokens=64, use_tqdm=False
    )
    model = ServedModel("chat", process_engine("chat", partial(start_engine, config)), 1, source=str(folder))
    return running(model, settings=settings)  # type: ignore[return-value]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with the files of sentence-transformers."""
    folder = tmp_path_factory.mktemp("models") / "mean"
    shutil.copytree(resolve_model("quire-chat").path or "", folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunningServer]:
    with served(folder) as server:  # type: ignore[attr-defined]
        yield server


def reference(folder: Path, text: str, *, takes_mean: bool = True) -> tuple[np.ndarray, list[int]]:
    """The unit vector of a text, and its tokens."""
    ids = AutoTokenizer.from_pretrained(folder).encode(text)
    with torch.no_grad():
        model = AutoModel.from_pretrained(folder, dtype=torch.float32)
        states = model(torch.tensor([ids])).last_hidden_state[0].double().numpy()
    vector = states.mean(0) if takes_mean else states[-1]
    return vector / np.linalg.norm(vector), ids


def test_vectors_are_those_of_transformers_beside_answers(server: RunningServer, folder: Path) -> None:
    client = server.client()
    expected, ids = zip(*(reference(folder, text) for text in TEXTS), strict=True)
    with ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(server.post, "/v1/completions", model="chat", prompt=text) for text in TEXTS]
        found = client.embeddings.create(model="chat", input=TEXTS, encoding_format="float")
        assert [answer.result().status_code for answer in answers] == [200] * 3
    assert found.usage.prompt_tokens == found.usage.total_tokens == sum(map(len, ids))
    assert (found.model, [each.index for each in found.data]) == ("chat", [0, 1, 2])
    for each, right in zip(found.data, expected, strict=True):
        assert np.dot(each.embedding, right) > 1 - 1e-6
        assert np.linalg.norm(each.embedding) == pytest.approx(1)
    of_ids = client.embeddings.create(model="chat", input=list(ids))  # base64, which the client decodes
    tolerance = 1e-7 if has_exact_kernels("cpu", "float32") else 1e-4  # torch's sums depend on what runs beside
    vectors, of_texts = ([each.embedding for each in given.data] for given in (of_ids, found))
    np.testing.assert_allclose(vectors, of_texts, rtol=tolerance, atol=tolerance - 1e-7)
    (short,) = client.embeddings.create(model="chat", input=ids[0], dimensions=8).data
    np.testing.assert_allclose(short.embedding, expected[0][:8] / np.linalg.norm(expected[0][:8]), rtol=1e-3)


def test_the_option_goes_before_the_checkpoint(folder: Path) -> None:
    with served(folder, ServerSettings(pooling="last")) as server:  # type: ignore[attr-defined]
        (found,) = server.client().embeddings.create(model="chat", input=TEXTS[0]).data
        assert np.dot(found.embedding, reference(folder, TEXTS[0], takes_mean=False)[0]) > 1 - 1e-6


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"input": ["a", "word " * 9000]}, "input", "context_length_exceeded"),
        ({"input": [70_000]}, "input", "invalid_value"),
        ({"input": "a", "dimensions": 10_000}, "dimensions", "invalid_value"),
        ({"input": "a", "truncate_prompt_tokens": 2}, "truncate_prompt_tokens", "invalid_value"),
        ({"input": [[]]}, "input[0]", None),
    ],
    ids=str,
)
def test_bad_input_is_refused_by_its_field(
    server: RunningServer, body: dict[str, object], param: str, code: str | None
) -> None:
    answer: httpx.Response = server.post("/v1/embeddings", model="chat", **body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param), error
    assert code in (None, error["code"])


def test_a_server_without_an_embedder_asks_for_a_name(server: RunningServer) -> None:
    with pytest.raises(openai.NotFoundError, match="name a model"):
        server.client().embeddings.create(model="text-embedding-3-small", input="x")
