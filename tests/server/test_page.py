"""The page at / in a real browser. Needs `pip install -e '.[browser]'` and a Chromium."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quire.assembly import start_engine
from quire.config import EngineConfig
from quire.engine.engine import Engine
from quire.routing import Router, RoutingConfig
from quire.server.collections.service import make_service
from quire.server.metrics import Metrics
from quire.server.registry import ModelRegistry
from quire.server.settings import ServerSettings
from serving import MODEL, RunningServer, make_model, running, wait_until

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")

TEMPLATE = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}\n{% endfor %}a:"
Page = Any


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Page]:
    """A page of a new visitor, whose console stays empty; failed requests that a test expects are no errors."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(10_000)
    page, errors = context.new_page(), list[str]()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
    yield page
    context.close()
    assert not [error for error in errors if "Failed to load resource" not in error]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with serving() as server:
        yield server


def serving(start: Any = start_engine, settings: ServerSettings | None = None, **options: Any) -> Any:
    metrics = Metrics([MODEL])
    model = make_model(
        start=start,
        chat_template=TEMPLATE,
        on_stats=lambda stats: metrics.observe_stats(MODEL, stats),
        **metrics.callbacks(MODEL),
    )
    service = make_service(ModelRegistry([model]), settings, metrics) if settings and settings.rag_dir else None
    return running(model, metrics=metrics, settings=settings, service=service, **options)


def visit(page: Page, server: RunningServer) -> None:
    page.goto(server.url)
    page.wait_for_selector("#state.ready")
    page.wait_for_selector("#model option", state="attached")


def ask(page: Page, text: str) -> None:
    open_settings(page)
    page.fill("#max-tokens", "12")
    page.fill("#question", text)
    page.press("#question", "Enter")
    wait_for_answer(page)


def open_settings(page: Page) -> None:
    if not page.locator("#settings[open]").count():
        page.click("#settings summary")


def wait_for_answer(page: Page) -> None:
    """Wait for the last answer and for what the server says about its prompt."""
    page.wait_for_selector(".message.assistant:last-child .figure.tokens")
    page.wait_for_function(
        "Object.values(JSON.parse(localStorage['quire.conversations'])[0].nodes)"
        ".every((node) => node.role === 'user' || node.origin)"
    )


def conversations(page: Page) -> Any:
    return json.loads(page.evaluate("localStorage.getItem('quire.conversations')"))


def answers(page: Page) -> list[dict[str, Any]]:
    nodes = conversations(page)[0]["nodes"].values()
    return [node for node in nodes if node["role"] == "assistant"]


def test_an_answer_streams_and_can_be_stopped(page: Page) -> None:
    steps = threading.Semaphore(0)

    def start(config: EngineConfig) -> Engine:
        engine = start_engine(config)
        execute = engine.runner.execute
        engine.runner.execute = lambda *args: (steps.acquire(), execute(*args))[1]  # type: ignore[method-assign]
        return engine

    with serving(start) as server:
        visit(page, server)
        page.fill("#question", "Hello")
        page.press("#question", "Enter")
        text = page.locator(".message.assistant .text").last
        seen = ""
        for _ in range(3):  # each step of the engine makes the shown text longer
            while len(shown := text.inner_text()) <= len(seen):
                steps.release()
                page.wait_for_timeout(20)
            seen = shown
            assert page.is_visible("#stop")
        page.click("#stop")
        page.wait_for_selector(".figure.stopped")
        steps.release(10_000)
        server.wait_until_idle()


def test_the_ribbon_equals_usage(page: Page, server: RunningServer) -> None:
    visit(page, server)
    for text in ("Tell me a long story, please. " * 2, "And then?"):
        ask(page, text)
    for node, ribbon in zip(answers(page), page.locator(".ribbon").all(), strict=True):
        tokens = {"device": 0, "computed": 0}
        for piece in ribbon.locator(".piece").all():
            tokens[piece.get_attribute("data-source")] += int(piece.get_attribute("data-tokens"))
        usage = node["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        assert tokens == {"device": cached, "computed": usage["prompt_tokens"] - cached}
    assert cached > 0, "the second question begins with the first"


def test_a_changed_system_prompt_is_shown_with_the_place_and_both_texts(page: Page, server: RunningServer) -> None:
    visit(page, server)
    open_settings(page)
    for day in ("Monday", "Friday"):
        page.fill("#system", f"You help people in a small library. Today is {day}.")
        ask(page, "Hello")
    page.locator(".origin summary").click()
    assert page.locator(".gone").inner_text().startswith("Monday.")
    assert page.locator(".come").inner_text().startswith("Friday.")
    node = answers(page)[-1]
    left = float(page.locator(".break").evaluate("each => parseFloat(each.style.left)"))
    assert left == pytest.approx(100 * node["origin"]["divergence"]["token"] / node["usage"]["prompt_tokens"], abs=0.01)


def test_attached_files_are_searched_and_deleted_with_the_conversation(page: Page, tmp_path: Path) -> None:
    settings = ServerSettings(rag_dir=tmp_path, embedder="hashing")
    with serving(settings=settings) as server:
        visit(page, server)
        files = [{"name": "bees.txt", "mimeType": "text/plain", "buffer": b"Bees make honey."}]
        page.set_input_files("#attach-files", files)
        ask(page, "What do bees make?")  # waits for the upload
        page.get_by_text("1 source", exact=True).click()
        assert "Bees make honey." in page.locator(".sources").inner_text()
        page.click("[aria-label^='Delete']")
        wait_until(lambda: not server.get("/v1/collections").json()["data"])


def test_the_grid_has_the_blocks_of_the_metrics(page: Page, server: RunningServer) -> None:
    visit(page, server)
    ask(page, "Hello")
    server.wait_until_idle()
    grid, pool = page.locator("canvas.grid"), server.engine.scheduler.kv.pool
    expected = f"0 blocks yours, {pool.num_cached} blocks cached, {pool.num_blocks - pool.num_cached} blocks free"
    sync_api.expect(grid).to_have_attribute("aria-label", expected)
    assert f'num_gpu_blocks="{grid.get_attribute("data-blocks")}"' in server.get("/metrics").text


def test_editing_and_asking_again_make_branches(page: Page, server: RunningServer) -> None:
    visit(page, server)
    ask(page, "One")
    page.get_by_role("button", name="Again", exact=True).click()
    page.wait_for_selector("text=2 of 2")
    wait_for_answer(page)
    page.locator(".message.user").hover()
    page.get_by_role("button", name="Edit", exact=True).click()
    page.fill(".message textarea", "Two")
    page.click(".message .primary")
    wait_for_answer(page)
    assert page.locator(".message.user .text").inner_text() == "Two"
    page.click(".message.user >> text=‹")
    assert page.locator(".message.user .text").inner_text() == "One"
    assert page.locator(".message.assistant .branches").inner_text().strip("‹›") == "2 of 2"
    page.reload()
    page.wait_for_selector(".message.user >> text=One")


def test_conversations_are_exported_and_imported(page: Page, server: RunningServer, tmp_path: Path) -> None:
    visit(page, server)
    ask(page, "Remember this")
    with page.expect_download() as download:
        page.click("#export")
    path = tmp_path / "conversations.json"
    download.value.save_as(path)
    before = conversations(page)
    page.click("[aria-label='Delete Remember this']")
    page.wait_for_selector(".welcome")
    page.set_input_files("#import-file", path)
    page.wait_for_selector(".message.user >> text=Remember this")
    assert conversations(page) == before


def test_an_import_with_odd_fields_shows_its_texts(page: Page, server: RunningServer, tmp_path: Path) -> None:
    nodes = [
        {"id": "a", "parent": None, "role": "user", "content": "Asked"},
        {"id": "b", "parent": "a", "role": "assistant", "content": "Told", "calls": 7, "sources": [{}], "usage": "x"},
    ]
    odd = {"id": "odd", "title": "Odd", "time": 1, "nodes": {each["id"]: each for each in nodes}}
    odd["chosen"] = {"": "a", "a": "b"}
    path = tmp_path / "odd.json"
    path.write_text(
        json.dumps({"conversations": [odd, {"id": "none", "title": "", "nodes": {"a": None}, "chosen": {}}]})
    )
    visit(page, server)
    page.set_input_files("#import-file", path)
    page.wait_for_selector(".message.assistant >> text=Told")
    page.reload()
    assert [each["title"] for each in conversations(page)] == ["Odd"]


def test_a_restart_of_the_server_is_survived(page: Page) -> None:
    with serving() as server:
        visit(page, server)
        ask(page, "Before")
        port = int(server.url.rpartition(":")[2])
    page.wait_for_selector("#state.failed")
    with serving(port=port):
        page.wait_for_selector("#state.ready")
        ask(page, "After")
        assert len(answers(page)) == 2


def test_the_key_is_asked_for_once_and_kept_in_the_tab(page: Page) -> None:
    with serving(settings=ServerSettings(api_keys=("sk-mine",), tenant_secret=b"s")) as server:
        page.goto(server.url)
        for key in ("wrong", "sk-mine"):
            page.fill("#key", key)
            page.press("#key", "Enter")
            if key == "wrong":
                page.wait_for_selector("text=does not know this key")
        page.wait_for_selector("#state.ready")
        ask(page, "Hello")
        page.reload()
        page.wait_for_selector("#state.ready")
        assert not page.is_visible("#key-dialog")
        assert "sk-mine" not in page.evaluate("JSON.stringify(localStorage)") + page.url


@pytest.mark.parametrize(("width", "height"), [(390, 844), (1440, 900)])
@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_every_size_and_scheme_is_accessible(
    page: Page, server: RunningServer, width: int, height: int, scheme: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed").Axe()
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": height})
    visit(page, server)
    ask(page, "Hello")
    for view in ("chat", "engine"):
        if width < 800:
            page.click(f"#show-{view}")
        found = axe.run(page).response["violations"]
        assert not [(each["id"], [node["html"] for node in each["nodes"]]) for each in found]
        assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<img src=x onerror=alert(1)>", "<p>&lt;img src=x onerror=alert(1)&gt;</p>"),
        ("[x](javascript:alert(1))", "<p>[x](javascript:alert(1))</p>"),
        ("[x](data:text/html,y)", "<p><span>x (data:text/html,y)</span></p>"),
        ("a **b** `c<d`", "<p>a <strong>b</strong> <code>c&lt;d</code></p>"),
        ("- a\n  - b\n- c", "<ul><li>a<ul><li>b</li></ul></li><li>c</li></ul>"),
        ("> " * 1000 + "x", None),
        ("# " + " " * 100_000 + "x", None),
        ("**a " * 20_000, None),
    ],
)
def test_text_of_a_model_never_becomes_markup(page: Page, server: RunningServer, text: str, shown: str | None) -> None:
    visit(page, server)
    html = page.evaluate(
        """async (text) => {
            const { renderMarkdown } = await import(document.querySelector("script").src.replace("main", "markdown"));
            const element = document.createElement("div");
            renderMarkdown(element, text);
            return element.innerHTML;
        }""",
        text,
    )
    assert html == shown or shown is None


def test_reasoning_and_calls_are_folded(page: Page, server: RunningServer) -> None:
    arguments = '{"town": "Ashby"}'
    call = {"index": 0, "id": "call_1", "function": {"name": "weather", "arguments": arguments[:9]}}
    deltas = [
        {"reasoning_content": "I need the "},
        {"reasoning_content": "weather."},
        {"content": "One moment."},
        {"tool_calls": [call]},
        {"tool_calls": [{"index": 0, "function": {"arguments": arguments[9:]}}]},
    ]
    chunks = [{"choices": [{"delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 12}})
    body = "".join(f"data: {json.dumps({'model': MODEL, **chunk})}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    visit(page, server)
    page.route("**/v1/chat/completions", lambda route: route.fulfill(content_type="text/event-stream", body=body))
    page.fill("#question", "Weather in Ashby?")
    page.press("#question", "Enter")
    page.wait_for_selector(".message.assistant .figure.tokens")
    assert page.inner_text(".message.assistant > .text") == "One moment."
    folded = page.locator(".message.assistant details.fold")
    assert [each.get_attribute("open") for each in folded.all()] == [None, None]
    for fold, text in zip(folded.all(), ("I need the weather.", '"town": "Ashby"'), strict=True):
        assert not fold.get_by_text(text).is_visible()
        fold.locator("summary").press("Enter")
        assert fold.get_by_text(text).is_visible()
    assert folded.locator("summary").all_inner_texts() == ["Reasoning", "Calls weather"]


def test_auto_shows_which_model_answered_and_why(page: Page) -> None:
    names = ["one", "two"]
    router = Router(RoutingConfig("round-robin", {name: name for name in names}), names)
    with running(*(make_model(name=name, chat_template=TEMPLATE) for name in names), router=router) as server:
        visit(page, server)
        page.select_option("#model", "auto")
        ask(page, "Hello")
        answered = page.locator(".message.assistant .figure.by")
        assert answered.inner_text() == "one"
        assert "turn" in (answered.get_attribute("title") or "")
