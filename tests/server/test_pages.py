"""Pages for people: self-contained files with a strict policy, the same for strangers and key holders."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import escape
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

import quire.server
from quire.server.app import make_app
from quire.server.registry import ModelRegistry
from quire.server.settings import ServerSettings
from server.asgi import ask
from serving import RunningServer, make_model

FOLDER = Path(quire.server.__file__).parent / "page"
NAMES = sorted(path.name for path in FOLDER.iterdir() if path.name != "index.html")


def app_of(name: str = "mine", **settings: object) -> Starlette:
    model = replace(make_model(name=name), aliases=("second",))
    return make_app(ModelRegistry([model]), ServerSettings(tenant_secret=b"s", **settings))  # type: ignore[arg-type]


def policy(answer: httpx.Response) -> dict[str, str]:
    parts = (part.split(maxsplit=1) for part in answer.headers["content-security-policy"].split(";"))
    return dict(parts)


def test_the_page_comes_with_all_of_its_files(server: RunningServer) -> None:
    answer = server.get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    paths = re.findall(r'(?:href|src)="([^"]+\.\w+)"', answer.text)
    assert {path.rpartition("/")[2] for path in paths} == {"icon.svg", "style.css", "main.js"}
    place = paths[0].rpartition("/")[0]
    kinds = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
    for name in NAMES:
        file = server.get(f"{place}/{name}")
        assert file.content == (FOLDER / name).read_bytes()
        assert file.headers["content-type"].startswith(kinds[name.rpartition(".")[2]])
        assert "immutable" in file.headers["cache-control"]
    for other in (f"{place}/nothing.js", f"{place}/index.html", "/page/0123/main.js", f"{place}/..%2fpages.py"):
        assert server.get(other).status_code == 404, other


def test_every_module_that_a_module_imports_is_there() -> None:
    modules = [path for path in FOLDER.iterdir() if path.suffix == ".js"]
    imported = {name for path in modules for name in re.findall(r'from "\./([\w.]+)"', path.read_text())}
    assert {"main.js", *imported} == {path.name for path in modules}


def test_a_browser_that_has_the_page_is_told_so() -> None:
    app = app_of()
    etag = ask(app, path="/").headers["etag"]
    again = ask(app, path="/", headers={"If-None-Match": etag})
    assert (again.status_code, again.content) == (304, b"")
    assert ask(app_of(root_path="/llm"), path="/").headers["etag"] != etag


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_page_runs_and_loads_only_what_the_server_sends(path: str) -> None:
    allowed = policy(ask(app_of(), path=path))
    assert allowed["default-src"] == "'none'"
    assert set(allowed.values()) == {"'none'", "'self'"}


@pytest.mark.parametrize("name", ["index.html", *NAMES])
def test_a_file_takes_nothing_from_elsewhere_and_parses_no_html(name: str) -> None:
    text = (FOLDER / name).read_text()
    addresses = set(re.findall(r"https?://[\w.]+", text)) - {"http://www.w3.org"}
    assert not addresses
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|<style|style=\""
    )
    assert not re.search(forbidden, text)
    assert text.count("\n") < 300


def test_behind_a_prefix_all_addresses_have_it() -> None:
    text = ask(app_of(root_path='/a"b'), path="/").text
    assert '<base href="/a&quot;b/">' in text
    assert 'src="/a&quot;b/page/' in text


def test_strangers_get_the_page_and_learn_nothing_from_it() -> None:
    app = app_of("secret-model", api_keys=("sk-mine",))
    strangers, known = ask(app, path="/"), ask(app, path="/", headers={"x-api-key": "sk-mine"})
    assert strangers.status_code == 200
    assert strangers.text == known.text
    assert "secret-model" not in strangers.text
    place = re.search(r'src="([^"]+)"', strangers.text)
    assert place is not None
    assert ask(app, path=place[1]).status_code == 200
    for path in ("/docs", "/v1/live", "/page", "/pages/x"):
        assert ask(app, path=path).status_code == 401, path


def test_the_documentation_lists_every_path_with_its_summary() -> None:
    app = app_of()
    text, document = ask(app, path="/docs").text, ask(app, path="/openapi.json").json()
    assert json.dumps(document).count("/v1/live") == 1
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert f"<td>{method.upper()} {path}</td><td>{escape(operation['summary'])}</td>" in text
