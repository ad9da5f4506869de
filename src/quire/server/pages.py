"""Pages for people: GET / says what is served and how to ask, GET /docs shows the OpenAPI document.

They are whole in themselves: no scripts, and nothing from elsewhere.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from html import escape
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse

from quire.server.http.auth import is_known
from quire.server.registry import ModelRegistry, ServedModel
from quire.server.settings import ServerSettings

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem; }
pre { background: #f4f4f4; padding: .7rem; overflow-x: auto; } code, pre { font-size: .9rem; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; vertical-align: top;
padding: .2rem .6rem .2rem 0; border-bottom: 1px solid #ddd; overflow-wrap: anywhere; }
@media (prefers-color-scheme: dark) { body { background: #161616; color: #ddd; } pre { background: #262626; }
a { color: #8bf; } td, th { border-color: #444; } }
"""
_HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'", "Cache-Control": "no-store"}


def page_routes(registry: ModelRegistry, settings: ServerSettings) -> APIRouter:
    """The routes of the two pages."""
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def front(request: Request) -> HTMLResponse:
        models = list(registry) if is_known(request.scope, settings) else None
        return _page("Quire", _front(_address(request, settings), models, settings))

    @router.get("/docs")
    async def describe(request: Request) -> HTMLResponse:
        return _page("Quire's API", "".join(_describe(request.app.openapi(), settings.root_path)))

    return router


def _page(title: str, body: str) -> HTMLResponse:
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    viewport = '<meta name="viewport" content="width=device-width">'
    text = f"<head>{head}{viewport}</head><body><h1>{escape(title)}</h1>{body}</body>"
    return HTMLResponse(f'<!DOCTYPE html><html lang="en">{text}</html>', headers=_HEADERS)


def _address(request: Request, settings: ServerSettings) -> str:
    """Where the reader found this server, as far as the request says."""
    host = request.headers.get("host", "")
    plain = host if re.fullmatch(r"[\w.:\[\]-]{1,255}", host) else "localhost"
    return f"{request.url.scheme}://{plain}{settings.root_path}"


# -- GET / -------------------------------------------------------------------------------------------------------------


def _front(address: str, models: list[ServedModel] | None, settings: ServerSettings) -> str:
    """What the page says. `models` is None where the reader may not know them."""
    key = "KEY" if settings.api_keys else "none"
    name = models[0].name if models else "MODEL"
    chat = json.dumps({"model": name, "messages": [{"role": "user", "content": "Hello"}]}, ensure_ascii=False)
    authorization = " -H 'Authorization: Bearer KEY'" if settings.api_keys else ""
    curl = (
        f"curl -s {address}/v1/chat/completions{authorization} \\\n"
        f"  -H 'Content-Type: application/json' \\\n  -d {shlex.quote(chat)}"
    )
    python = (
        f'from openai import OpenAI\n\nclient = OpenAI(base_url="{address}/v1", api_key="{key}")\n'
        f'messages = [{{"role": "user", "content": "Hello"}}]\n'
        f"answer = client.chat.completions.create(model={json.dumps(name, ensure_ascii=False)}, messages=messages)\n"
        f"print(answer.choices[0].message.content)"
    )
    needs_key = "" if not settings.api_keys else "<p>Every answer but this page and /health needs an API key.</p>"
    paths = ("/docs", "/v1/models", "/metrics", "/health", "/openapi.json")
    links = " · ".join(f'<a href="{escape(settings.root_path + path)}">{path}</a>' for path in paths)
    return (
        f"<p>This server answers as OpenAI's API does.</p>{needs_key}{_models(models)}"
        f"<h2>Ask it</h2><pre>{escape(curl)}</pre><p>or in Python:</p><pre>{escape(python)}</pre><p>{links}</p>"
    )


def _models(models: list[ServedModel] | None) -> str:
    if models is None:
        return ""
    rows = (
        f"<tr><td>{escape(', '.join(model.names))}</td><td>{escape(model.async_engine.state)}"
        f"{escape(f': {error}') if (error := model.async_engine.error) is not None else ''}</td></tr>"
        for model in models
    )
    return f"<table><tr><th>model</th><th>state</th></tr>{''.join(rows)}</table>"


# -- GET /docs ---------------------------------------------------------------------------------------------------------


def _describe(document: dict[str, Any], root_path: str) -> Iterator[str]:
    """An OpenAPI document as HTML: its endpoints, then the schemas that they name."""
    yield f'<p>Made of <a href="{escape(root_path)}/openapi.json">/openapi.json</a>.</p>'
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{_text(operation)}</p>"
            yield from _table("parameter", _parameters(operation))
            for content in operation.get("requestBody", {}).get("content", {}).values():
                yield f"<p>Body: {_type(content['schema'])}</p>"
            yield from _table("status", _responses(operation))
    for name, schema in document.get("components", {}).get("schemas", {}).items():
        yield f'<h3 id="{escape(name)}">{escape(name)}</h3><p>{escape(schema.get("description", ""))}</p>'
        yield from _table("field", _fields(schema))


def _text(operation: dict[str, Any]) -> str:
    return escape(operation.get("description") or operation.get("summary", ""))


def _table(kind: str, rows: Iterator[tuple[str, str, str]]) -> Iterator[str]:
    """Of cells that are HTML: a name, a type, a meaning."""
    body = "".join(f"<tr><td>{name}</td><td>{of}</td><td>{about}</td></tr>" for name, of, about in rows)
    if body:
        yield f"<table><tr><th>{kind}</th><th>type</th><th></th></tr>{body}</table>"


def _parameters(operation: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for each in operation.get("parameters", []):
        yield escape(each["name"]), _type(each["schema"]), escape(each.get("description", f"in the {each['in']}"))


def _responses(operation: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for status, response in operation["responses"].items():
        kinds = (_type(content.get("schema", {})) for content in response.get("content", {}).values())
        yield escape(status), " or ".join(filter(None, kinds)), escape(response.get("description", ""))


def _fields(schema: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    required = schema.get("required", [])
    for name, each in schema.get("properties", {}).items():
        mark = " (required)" if name in required else ""
        yield f"<code>{escape(name)}</code>{mark}", _type(each), escape(each.get("description", ""))


def _type(schema: dict[str, Any]) -> str:
    """A schema in a few words; those with a name are links to it."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return " or ".join(_type(each) for each in schema[word] if each.get("type") != "null")
    if "const" in schema or "enum" in schema:
        return " or ".join(escape(json.dumps(value)) for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {})) or 'anything'}"
    return escape(str(schema.get("type", "")))
