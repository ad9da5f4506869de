"""Several models in one server: names, order, states."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from quire.assembly import start_engine
from quire.config import EngineConfig
from quire.engine.engine import Engine
from quire.server.registry import ModelRegistry
from serving import MODEL, SMALL, RunningServer, make_model, running


def test_the_list_has_every_model_in_order_with_its_state() -> None:
    gate = threading.Event()

    def start_late(config: EngineConfig) -> Engine:
        gate.wait()
        return start_engine(config)

    def fail(config: EngineConfig) -> Engine:
        raise ValueError("there is no such file")

    late_model = make_model(name="b/late", start=start_late, load_wait_s=0)
    models = late_model, make_model(name="a"), make_model(name="broken", start=fail)
    with running(*models, is_ready=False) as server:
        for model in models:
            model.async_engine.start()
        server.wait_for_state("a", "ready")
        server.wait_for_state("broken", "failed")
        listed = server.get("/v1/models").json()
        assert listed["object"] == "list"
        assert [(card["id"], card["state"]) for card in listed["data"]] == [
            ("b/late", "loading"), ("a", "ready"), ("broken", "failed"),
        ]  # fmt: skip
        late, ready, broken = listed["data"]
        assert ready["max_model_len"] == 256
        assert ready["root"] == MODEL
        assert "max_model_len" not in late
        assert (late["stage"], late["num_stages"]) == (0, 1)
        assert not ready.keys() & {"stage", "num_stages", "bytes_total", "seconds_left", "load_error"}
        assert "no such file" in broken["error"]

        for name, code in (("b/late", "model_loading"), ("broken", "model_failed"), (None, "model_loading")):
            for refused in (
                server.complete(model=name),
                server.chat(model=name),
                server.complete(model=name, stream=True),
            ):
                assert refused.status_code == 503
                assert refused.json()["error"]["code"] == code
                assert refused.headers["retry-after"]
        assert server.post("/tokenize", model="broken", prompt="a").status_code == 503
        assert server.complete(model="a").status_code == 200

        gate.set()
        server.wait_for_state("b/late", "ready")
        assert server.get("/v1/models/b/late").json()["state"] == "ready"
        assert server.complete(model="b/late").json()["model"] == "b/late"


def test_a_model_answers_to_all_its_names_and_shows_the_first() -> None:
    model = replace(make_model(name="Qwen/Qwen3-0.6B"), aliases=("qwen", "gpt-4"))
    with running(model) as server:
        assert [card["id"] for card in server.get("/v1/models").json()["data"]] == ["Qwen/Qwen3-0.6B", "qwen", "gpt-4"]
        assert {card["root"] for card in server.get("/v1/models").json()["data"]} == {MODEL}
        assert server.get("/v1/models/qwen").json()["id"] == "qwen"
        for name in ("Qwen/Qwen3-0.6B", "qwen", "gpt-4", None):
            assert server.complete(model=name).json()["model"] == "Qwen/Qwen3-0.6B"
        assert server.complete(model="other").status_code == 404


def test_any_name_asks_the_first_model_where_that_is_wanted() -> None:
    first, second = make_model(name="a"), make_model(name="b")
    registry = ModelRegistry([first, second], accepts_any_name=True)
    assert registry.get("gpt-4o") is first
    assert registry.get("b") is second


def test_properties_are_those_that_llama_cpp_shows(server: RunningServer) -> None:
    shown = server.get("/props").json()
    assert shown["default_generation_settings"]["n_ctx"] == 256
    assert shown["default_generation_settings"]["params"]["temperature"] == 1.0
    assert (shown["total_slots"], shown["model_path"]) == (64, MODEL)
    assert "<|im_start|>" in shown["chat_template"]
    assert server.get(f"/props?model={MODEL}").json() == shown
    assert server.get("/props?model=other").status_code == 404


@pytest.mark.parametrize("name", ["", " a", "a\nb", "a\r\nSet-Cookie: x", "a\u2028b", "a\x1b[31m", "a\tb"])
def test_a_name_that_could_split_a_line_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="could split a line"):
        ModelRegistry([make_model(SMALL, name=name)])
    with pytest.raises(ValueError, match="could split a line"):
        ModelRegistry([replace(make_model(SMALL, name="plain"), aliases=(name,))])


def test_two_models_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two models are named 'a'"):
        ModelRegistry([make_model(SMALL, name="a"), make_model(SMALL, name="a")])
    with pytest.raises(ValueError, match="no model"):
        ModelRegistry([])
