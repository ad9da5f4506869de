"""Operations beside the load: adapters, a model that is unloaded and loaded, reranking, embeddings, and a batch.

The same request gets the same answer. Each line of the batch, which runs when nothing else does, is answered once, as a
direct request is.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from benchmarks.adapters import write_adapter
from benchmarks.soak.requests import MODEL, PASSAGES
from quire.assembly import load
from quire.config import EngineConfig

OTHER_MODEL = "quire-chat"
NUM_LINES = 200
_PATIENCE_S = 300
_PAUSE_S = 0.3
_SCORED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/rerank", {"query": PASSAGES[0], "documents": PASSAGES[:4]}),
    ("/v1/score", {"text_1": PASSAGES[1], "text_2": PASSAGES[2]}),
    ("/v1/embeddings", {"input": PASSAGES[:2]}),
)


def operator_options(directory: Path) -> list[str]:
    """Write two adapters. Returns options of a server for one of them, the model, another one and batches."""
    config = EngineConfig(MODEL, dtype="float32", skip_tokenizer_init=True, use_tqdm=False)
    model = load(config).model
    for seed, name in enumerate(("first", "second")):
        write_adapter(directory / name, model, rank=8, seed=seed)
    models = [{"model": MODEL, "lora": [f"first={directory / 'first'}"]}, {"model": OTHER_MODEL}]
    (directory / "serve.yaml").write_text(json.dumps({"models": models}))  # YAML contains JSON
    return ["--config", str(directory / "serve.yaml"), "--batch-dir", str(directory / "batches")]


class Operations:
    """A thread that operates the server in a context; the batch ends with it.

    Attributes:
        counts: numbers of operations by name.
        problems: failures, and answers that changed.
    """

    def __init__(self, url: str, seed: int, directory: Path) -> None:
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self._directory = directory
        self._rng = random.Random(seed)
        self._answers: dict[str, str] = {}
        self._client = httpx.Client(base_url=url, timeout=_PATIENCE_S)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._operate, daemon=True)
        self._batch = ""

    def __enter__(self) -> Operations:
        lines = [
            {"custom_id": str(at), "url": "/v1/completions", "body": _question(MODEL, at)} for at in range(NUM_LINES)
        ]
        content = "".join(json.dumps(line) + "\n" for line in lines).encode()
        file = self._client.post("/v1/files", data={"purpose": "batch"}, files={"file": content}).json()
        given = {"input_file_id": file["id"], "endpoint": "/v1/completions"}
        self._batch = self._client.post("/v1/batches", json=given).json()["id"]
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._is_over.set()
        self._thread.join(_PATIENCE_S)
        self._check_batch()
        self._client.close()

    def _operate(self) -> None:
        operations = (self._ask, self._score, self._change_adapters, self._change_models)
        while not self._is_over.wait(_PAUSE_S):
            operation = self._rng.choice(operations)
            self.counts[operation.__name__.strip("_")] += 1
            try:
                operation()
            except httpx.HTTPError as error:
                self.problems.append(f"{operation.__name__}: {error!r}")

    def _ask(self) -> None:
        self._post("/v1/completions", _question(self._rng.choice(("first", MODEL)), self._rng.randrange(NUM_LINES)))

    def _score(self) -> None:
        path, body = self._rng.choice(_SCORED)
        self._post(path, {"model": MODEL, **body})

    def _change_adapters(self) -> None:
        given = {"lora_name": "second", "lora_path": str(self._directory / "second"), "model": MODEL}
        self._post("/v1/load_lora_adapter", given)
        self._post("/v1/completions", _question("second", self._rng.randrange(10)))
        self._post("/v1/unload_lora_adapter", {"lora_name": "second"})

    def _change_models(self) -> None:
        self._post("/v1/models/unload", {"model": OTHER_MODEL})
        self._post("/v1/completions", _question(OTHER_MODEL, self._rng.randrange(10)))

    def _post(self, path: str, body: dict[str, Any]) -> None:
        answer = self._client.post(path, json=body)
        if not answer.is_success:
            self.problems.append(f"{path} got {answer.status_code}: {answer.text:.300} <- {body!s:.200}")
            return
        shown = answer.text
        if "json" in answer.headers["content-type"]:
            shown = json.dumps([answer.json().get(part) for part in ("choices", "results", "data")])
        if self._answers.setdefault(f"{path} {body}", shown) != shown:
            self.problems.append(f"{path} {body!s:.200} has several answers")

    def _check_batch(self) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while (batch := self._client.get(f"/v1/batches/{self._batch}").json())["status"] != "completed":
            if time.monotonic() > deadline:
                self.problems.append(f"the batch does not end: {batch}")
                return
            time.sleep(0.2)
        lines = self._client.get(f"/v1/files/{batch['output_file_id']}/content").text.splitlines()
        found = {each["custom_id"]: each["response"]["body"]["choices"][0]["text"] for each in map(json.loads, lines)}
        self.counts["lines of the batch"] = len(lines)
        if len(lines) != NUM_LINES or len(found) != NUM_LINES:
            self.problems.append(f"{len(lines)} answers to {len(found)} of {NUM_LINES} lines")
        for at in range(0, NUM_LINES, 20):
            direct = self._client.post("/v1/completions", json=_question(MODEL, at)).json()["choices"][0]["text"]
            if found.get(str(at)) != direct:
                self.problems.append(f"line {at} of the batch has another answer than a request")


def _question(model: str, number: int) -> dict[str, Any]:
    prompt = f"{number}: {PASSAGES[number % len(PASSAGES)][:120]}"
    return {"model": model, "prompt": prompt, "max_tokens": 12, "temperature": 0}
