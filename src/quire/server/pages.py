"""Pages for browsers, GET / and /docs, without scripts or foreign content."""

from __future__ import annotations

import json
import re
import shlex
from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from quire.server.http.middleware import is_known
from quire.server.http.routes import Routes
from quire.server.openai.openapi import ApiDescription
from quire.server.registry import ModelRegistry, ServedModel
from quire.server.settings import ServerSettings

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }
pre { background: #f4f4f4; padding: .7rem; overflow-x: auto; } code, pre { font-size: .9rem; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; vertical-align: top;
padding: .2rem .6rem .2rem 0; border-bottom: 1px solid #ddd; overflow-wrap: break-word; }
@media (max-width: 45rem) { th { display: none; } td { display: block; padding: .1rem 0; overflow-wrap: anywhere; }
td:first-child { border: 0; font-weight: 600; } }
@media (prefers-color-scheme: dark) { body { background: #161616; color: #ddd; } pre { background: #262626; }
a { color: #8bf; } td, th { border-color: #444; } }
"""
_HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'", "Cache-Control": "no-store"}


def page_routes(registry: ModelRegistry, settings: ServerSettings, description: ApiDescription) -> Routes:
    """The routes of both pages, and of the document that one of them shows."""
    routes = Routes()

    @routes.get("/")
    async def front(request: Request) -> HTMLResponse:
        models = list(registry) if is_known(request.scope, settings) else None
        host = request.headers.get("host", "")
        host = host if re.fullmatch(r"[\w.:\[\]-]{1,255}", host) else "localhost"
        return _page("Quire", _front(f"{request.url.scheme}://{host}{settings.root_path}", models, settings))

    @routes.get("/docs")
    async def docs() -> HTMLResponse:
        rows = [(f"{each.method} {each.path_format}", each.summary) for each in description.routes]
        schema = f'<a href="{escape(settings.root_path)}/openapi.json">/openapi.json</a>'
        note = f"<p>{schema} describes every field; docs/reference/api.md explains them.</p>"
        return _page("Quire's API", note + _table("endpoint", "", rows))

    @routes.get("/openapi.json")
    async def document() -> Response:
        return Response(await description.json(), media_type="application/json")

    return routes


def _page(title: str, body: str) -> HTMLResponse:
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    viewport = '<meta name="viewport" content="width=device-width">'
    text = f"<head>{head}{viewport}</head><body><h1>{escape(title)}</h1>{body}</body>"
    return HTMLResponse(f'<!DOCTYPE html><html lang="en">{text}</html>', headers=_HEADERS)


def _table(first: str, second: str, rows: list[tuple[str, str]]) -> str:
    body = "".join(f"<tr><td>{escape(name)}</td><td>{escape(text)}</td></tr>" for name, text in rows)
    return f"<table><tr><th>{first}</th><th>{second}</th></tr>{body}</table>"


def _front(address: str, models: list[ServedModel] | None, settings: ServerSettings) -> str:
    """Return the front page's body; `models` is None for readers without a key."""
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
    needs_key = "<p>Every path but this page and the health checks needs an API key.</p>" if settings.api_keys else ""
    rows = []
    for model in models or ():
        error = model.async_engine.error
        rows.append((", ".join(model.names), f"{model.async_engine.state}" + ("" if error is None else f": {error}")))
    table = _table("model", "state", rows) if models is not None else ""
    paths = ("/docs", "/v1/models", "/metrics", "/health", "/openapi.json")
    links = " · ".join(f'<a href="{escape(settings.root_path + path)}">{path}</a>' for path in paths)
    return (
        f"<p>This server speaks the OpenAI API.</p>{needs_key}{table}"
        f"<h2>Ask it</h2><pre>{escape(curl)}</pre><p>or in Python:</p><pre>{escape(python)}</pre><p>{links}</p>"
    )
