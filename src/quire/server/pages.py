"""Pages for browsers: the live page at /, whose files are in `page/`, and the list of endpoints at /docs."""

from __future__ import annotations

import hashlib
from html import escape
from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from quire.server.errors import ApiError
from quire.server.http.middleware import PAGE_PATH
from quire.server.http.routes import Routes
from quire.server.openai.openapi import ApiDescription
from quire.server.settings import ServerSettings

_FOLDER = Path(__file__).with_name("page")
_INDEX = "index.html"
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".html": "text/html"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def page_routes(settings: ServerSettings, description: ApiDescription) -> Routes:
    """The routes of the pages, of their files and of the API's description."""
    routes = Routes()
    files = {path.name: path.read_bytes() for path in sorted(_FOLDER.iterdir()) if path.suffix in _TYPES}
    version = _digest(b"".join(b"%b %d %b" % (name.encode(), len(data), data) for name, data in files.items()))
    base = settings.root_path + "/"
    place = f"{base}{PAGE_PATH.strip('/')}/{version}"  # a file never changes under its path
    values = {"base": base, "files": place, "collections": "yes" if settings.rag_dir is not None else "no"}
    index = files.pop(_INDEX).decode()
    for name, value in values.items():
        index = index.replace(f"{{{name}}}", escape(value))
    etag = f'"{_digest(index.encode())}"'

    @routes.get("/")
    async def front(request: Request) -> Response:
        headers = {**_HEADERS, "Cache-Control": "no-cache", "ETag": etag}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return HTMLResponse(index, headers=headers)

    @routes.get(PAGE_PATH + "{digest}/{name}")
    async def file(digest: str, name: str) -> Response:
        if name not in files or digest != version:
            raise ApiError(404, f"the page has no file {name!r:.100}; load / again")
        headers = {**_HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}
        return Response(files[name], media_type=_TYPES[Path(name).suffix], headers=headers)

    @routes.get("/docs")
    async def docs() -> HTMLResponse:
        rows = "".join(
            f"<tr><td>{each.method} {escape(each.path_format)}</td><td>{escape(each.summary)}</td></tr>"
            for each in description.routes
        )
        head = (
            '<meta charset="utf-8"><title>Quire\'s API</title><meta name="viewport" content="width=device-width">'
            f'<link rel="stylesheet" href="{escape(place)}/style.css">'
        )
        note = (
            f'<p><a href="{escape(base)}">The page</a> has examples. '
            f'<a href="{escape(base)}openapi.json">/openapi.json</a> describes every field; '
            "docs/reference/api.md explains them.</p>"
        )
        table = f"<table><tr><th>endpoint</th><th></th></tr>{rows}</table>"
        body = f'<body class="document"><h1>Quire\'s API</h1>{note}{table}</body>'
        text = f'<!DOCTYPE html><html lang="en"><head>{head}</head>{body}</html>'
        return HTMLResponse(text, headers={**_HEADERS, "Cache-Control": "no-store"})

    @routes.get("/openapi.json")
    async def document() -> Response:
        return Response(await description.json(), media_type="application/json")

    return routes


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]
