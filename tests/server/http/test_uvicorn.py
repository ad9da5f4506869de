"""What `http/protocol.py` and `lifecycle.py` take from inside uvicorn is there: an upgrade that moves it fails here."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import ServerState

MEND = (
    f"uvicorn {uvicorn.__version__} has moved what Quire stands on: adapt server/http/protocol.py and "
    "server/lifecycle.py, or lower the cap in pyproject.toml"
)
OF_CONNECTIONS = (
    "cycle", "flow", "headers", "loop", "parser", "pipeline", "scheme", "scope", "timeout_keep_alive",
    "timeout_keep_alive_task", "transport", "url",
)  # fmt: skip
OF_CYCLES = (
    "chunked_encoding", "disconnected", "flow", "keep_alive", "more_body", "response_complete", "response_started",
    "transport",
)  # fmt: skip
OVERRIDDEN_OR_CALLED = {
    "connection_made": ["self", "transport"],
    "data_received": ["self", "data"],
    "eof_received": ["self"],
    "on_headers_complete": ["self"],
    "on_body": ["self", "body"],
    "on_message_complete": ["self"],
    "timeout_keep_alive_handler": ["self"],
    "_unset_keepalive_if_required": ["self"],
}


class Transport(asyncio.Transport):
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


def names_set_by(source: type) -> set[str]:
    """Attributes that the methods of a class assign: some exist only once a request is under way."""
    return {word.split(".")[1] for word in inspect.getsource(source).split() if word.startswith("self.")}


async def connect() -> httptools_impl.HttpToolsProtocol:
    config = uvicorn.Config(lambda: None, log_config=None)
    config.load()
    protocol = httptools_impl.HttpToolsProtocol(config, ServerState(), {})
    protocol.connection_made(Transport())  # type: ignore[arg-type]
    return protocol


def test_a_connection_has_the_attributes_that_are_read_and_set() -> None:
    protocol = asyncio.run(connect())
    missing = [name for name in OF_CONNECTIONS if not hasattr(protocol, name)]
    assert not set(missing) - names_set_by(httptools_impl.HttpToolsProtocol), MEND


@pytest.mark.parametrize("name", OVERRIDDEN_OR_CALLED)
def test_a_method_of_connections_takes_what_it_took(name: str) -> None:
    method = getattr(httptools_impl.HttpToolsProtocol, name, None)
    assert method is not None, MEND
    assert list(inspect.signature(method).parameters) == OVERRIDDEN_OR_CALLED[name], MEND


def test_a_cycle_of_request_and_answer_has_the_attributes_that_are_read() -> None:
    assert set(OF_CYCLES) <= names_set_by(httptools_impl.RequestResponseCycle), MEND


def test_reading_is_paused_and_resumed_by_a_flow_control_that_can_be_replaced() -> None:
    flow = FlowControl(Transport())
    assert (flow.read_paused, flow.write_paused) == (False, False), MEND
    assert isinstance(flow._transport, Transport), MEND
    assert all(callable(getattr(flow, name, None)) for name in ("pause_reading", "resume_reading")), MEND


def test_a_status_line_is_there_for_every_refusal() -> None:
    assert all(httptools_impl.STATUS_LINE[status].startswith(b"HTTP/1.1 ") for status in (400, 431)), MEND


def test_a_server_leaves_signals_sockets_and_connections_to_us() -> None:
    server = uvicorn.Server(uvicorn.Config(lambda: None, log_config=None))
    assert callable(getattr(server, "capture_signals", None)), MEND
    assert "sockets" in inspect.signature(server.serve).parameters, MEND
    assert isinstance(server.server_state.connections, set), MEND
    assert server.should_exit is False, MEND
