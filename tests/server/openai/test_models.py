"""Several models under one roof: names, order, states."""

from __future__ import annotations

import threading

import pytest

from quire.build import start_engine
from quire.config import EngineConfig
from quire.engine.engine import Engine
from quire.server.registry import ModelRegistry
from serving import MODEL, SMALL, make_model, running


def test_the_list_has_every_model_in_order_with_its_state() -> None:
    gate = threading.Event()

    def start_late(config: EngineConfig) -> Engine:
        gate.wait()
        return start_engine(config)

    def fail(config: EngineConfig) -> Engine:
        raise ValueError("there is no such file")

    models = make_model(name="b/late", start=start_late), make_model(name="a"), make_model(name="broken", start=fail)
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


def test_two_models_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two models are named 'a'"):
        ModelRegistry([make_model(SMALL, name="a"), make_model(SMALL, name="a")])
    with pytest.raises(ValueError, match="no model"):
        ModelRegistry([])
