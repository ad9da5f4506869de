"""POST /v1/completions in the simplest honest way: one model, whole answers, one request at a time.

The full server takes its place. What a client asks for and this one does not do is refused by name, never ignored.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Any, Protocol, TypeVar

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from quire.outputs import RequestOutput
from quire.sampling_params import SamplingParams

T = TypeVar("T")
NonEmpty = Annotated[list[T], Field(min_length=1)]
SAMPLING_FIELDS = ("n", "max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "ignore_eos")


class Generates(Protocol):
    """What is served: an `LLM`."""

    @property
    def engine(self) -> Any: ...

    def generate(self, prompts: Any, sampling_params: Any, use_tqdm: bool = ...) -> list[RequestOutput]: ...


class CompletionRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    model: str
    prompt: str | NonEmpty[str] | NonEmpty[int] | NonEmpty[list[int]]
    n: int | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    user: str | None = None  # who asks: nothing depends on it

    def prompts(self) -> list[str | dict[str, list[int]]]:
        if isinstance(self.prompt, str):
            return [self.prompt]
        several: Sequence[Any] = [self.prompt] if isinstance(self.prompt[0], int) else self.prompt
        return [prompt if isinstance(prompt, str) else {"prompt_token_ids": prompt} for prompt in several]


def make_app(llm: Generates, model: str) -> FastAPI:
    """The HTTP interface of one model under one name."""
    app = FastAPI(title="Quire", docs_url=None, redoc_url=None)
    engine_thread = ThreadPoolExecutor(1, "engine")  # requests take turns, and /health answers meanwhile
    created = int(time.time())

    @app.exception_handler(RequestValidationError)
    async def refuse_malformed(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        field = str(next((part for part in first["loc"][1:]), "")) or None
        if first["type"] == "extra_forbidden":
            return _error(400, f"{field!r} is not supported by this server", field)
        return _error(400, f"{field or 'the body'}: {first['msg']}", field)

    @app.exception_handler(HTTPException)
    async def refuse_route(request: Request, error: HTTPException) -> JSONResponse:
        return _error(error.status_code, f"{request.method} {request.url.path}: {error.detail}")

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        entry = {"id": model, "object": "model", "created": created, "owned_by": "quire"}
        return {"object": "list", "data": [entry]}

    @app.post("/v1/completions", response_model=None)
    async def completions(body: CompletionRequest) -> dict[str, Any] | JSONResponse:
        if body.model != model:
            return _error(404, f"the model {body.model!r} does not exist; this server has {model!r}", "model")
        if body.stream:
            return _error(400, "stream=true is not supported by this server; leave it out", "stream")
        given = {name: getattr(body, name) for name in SAMPLING_FIELDS if getattr(body, name) is not None}
        try:
            params = llm.engine.default_sampling_params(**given)
            generate = partial(llm.generate, body.prompts(), params, use_tqdm=False)
            outputs = await asyncio.get_running_loop().run_in_executor(engine_thread, generate)
        except ValueError as error:
            return _error(400, str(error))
        except RuntimeError as error:
            return _error(500, str(error))
        return _completion(model, outputs, params)

    return app


def serve_completions(llm: Generates, model: str, host: str, port: int) -> None:
    """Serve until interrupted, having said where and how to ask.

    Raises:
        ValueError: the address cannot be listened on.
    """
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise ValueError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --host or --port") from None
    reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    url = f"http://{reachable}:{listener.getsockname()[1]}"
    print(f"Quire serves {model} at {url}\nAsk it something:")
    print(f"  curl -s {url}/v1/completions -H 'Content-Type: application/json' \\")
    print(f"""    -d '{{"model": "{model}", "prompt": "Hello", "max_tokens": 16}}'""", flush=True)
    config = uvicorn.Config(make_app(llm, model), log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


def _completion(model: str, outputs: Sequence[RequestOutput], params: SamplingParams) -> dict[str, Any]:
    choices = [
        {"index": i * params.n + c.index, "text": c.text, "logprobs": None, "finish_reason": c.finish_reason}
        for i, output in enumerate(outputs)
        for c in output.outputs
    ]
    num_in = sum(len(output.prompt_token_ids) for output in outputs)
    num_out = sum(len(c.token_ids) for output in outputs for c in output.outputs)
    return {
        "id": f"cmpl-{secrets.token_hex(12)}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": model,
        "choices": choices,
        "usage": {"prompt_tokens": num_in, "completion_tokens": num_out, "total_tokens": num_in + num_out},
    }


def _error(status: int, message: str, param: str | None = None) -> JSONResponse:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return JSONResponse({"error": {"message": message, "type": kind, "param": param, "code": None}}, status)
