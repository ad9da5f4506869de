"""A model on a server: OpenAI's protocol over httpx, one request at a time, in the caller's thread."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from quire.client.chunk import AnswerChunk, AnswerStream, read_chunk
from quire.client.errors import RemoteError, error_from_exception, error_from_response
from quire.client.server_address import ServerAddress
from quire.client.sse import DONE, EventReader

# Long prompts delay the first token, so only connecting has a timeout.
_TIMEOUT = httpx.Timeout(None, connect=10.0)


@dataclass(frozen=True)
class ListedModel:
    """An entry of /v1/models, with optional fields of some servers."""

    name: str
    max_model_len: int | None = None
    vocab_size: int | None = None


class RemoteModel:
    """A client for one model, by default the server's first. Close it. Raises RemoteError."""

    def __init__(
        self, endpoint: ServerAddress, name: str | None = None, *, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._endpoint = endpoint
        self._http = httpx.Client(timeout=_TIMEOUT, transport=transport, **endpoint.client_options)
        try:
            self.name = name if name is not None else self.models()[0].name
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> RemoteModel:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def models(self) -> list[ListedModel]:
        """List the server's models, at least one."""
        url = f"{self._endpoint.base_url}/models"
        try:
            response = self._http.get(url, timeout=10.0)
        except httpx.HTTPError as error:
            raise error_from_exception(error, url) from None
        if response.status_code != 200:
            raise error_from_response(response.status_code, response.content, url)
        return read_models(response.content, url)

    def chat(self, messages: Sequence[Mapping[str, Any]], *, stream: bool = True, **sampling: Any) -> AnswerStream:
        """Request the next message of a conversation. `sampling` are fields of the protocol."""
        return self._ask(self._endpoint.chat_url, {"messages": list(messages), **sampling}, stream)

    def complete(self, prompt: str, *, stream: bool = True, **sampling: Any) -> AnswerStream:
        return self._ask(self._endpoint.completions_url, {"prompt": prompt, **sampling}, stream)

    def _ask(self, url: str, fields: dict[str, Any], is_streamed: bool) -> AnswerStream:
        """Send a request; closing the iterator disconnects, which aborts it."""
        body: dict[str, Any] = {"model": self.name, **fields, "stream": is_streamed}
        if is_streamed:
            body["stream_options"] = {"include_usage": True}
        try:
            with self._http.stream("POST", url, json=body) as response:
                if response.status_code != 200:
                    raise error_from_response(response.status_code, response.read(), url)
                if is_streamed:
                    yield from _chunks(response.iter_bytes(), url)
                else:
                    yield read_chunk(response.read().decode(errors="replace"))
        except httpx.HTTPError as error:
            raise error_from_exception(error, url) from None


def read_models(body: bytes, url: str) -> list[ListedModel]:
    try:
        entries = [entry for entry in json.loads(body)["data"] if isinstance(entry.get("id"), str)]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RemoteError("not_openai", f"{url} does not list models as OpenAI's API does; is the URL right?") from None
    if not entries:
        raise RemoteError("no_models", f"{url} lists no model")
    return [
        ListedModel(
            name=entry["id"],
            max_model_len=_positive(entry.get("max_model_len")),
            # llama.cpp's server reports it in `meta`.
            vocab_size=_positive(entry.get("vocab_size") or (entry.get("meta") or {}).get("n_vocab")),
        )
        for entry in entries
    ]


def _positive(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _chunks(received: Iterator[bytes], url: str) -> Iterator[AnswerChunk]:
    is_whole = False
    for data in _events(received):
        if data == DONE:
            return
        chunk = read_chunk(data)
        is_whole = is_whole or chunk.finish_reason is not None
        yield chunk
    if not is_whole:
        raise RemoteError("truncated", f"{url}: the stream ended before the answer did")


def _events(received: Iterator[bytes]) -> Iterator[str]:
    reader = EventReader()
    for piece in received:
        yield from reader.feed(piece)
    yield from reader.close()
