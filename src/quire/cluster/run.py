"""`quire serve --ray`, from joining or starting a cluster to its exit status.

The first SIGTERM or Ctrl-C drains, as it does for one process: the application takes no further requests and ends when
the running ones have. A second one ends this process at once, and a cluster that it has started with it.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from quire.cluster.app_spec import AppSpec
from quire.cluster.application import APPLICATION, deploy, need_ray
from quire.cluster.share import share_of

logger = logging.getLogger("quire")

_EXIT_NOT_LOADED = 2
_OBJECT_STORE = 256 * 2**20  # bytes; all that passes is small, and Ray would take a third of the memory
_LOOK_S = 0.5
_LOOK_TIMEOUT_S = 10.0


def run(spec: AppSpec, address: str | None, banner: Callable[[str], str]) -> int:
    """Serve until told to stop. Call it in the main thread.

    Args:
        address: of a Ray cluster; None starts one of this machine alone, which ends with this process.
        banner: makes the text that is printed once a model is ready, from the URL.

    Returns:
        The exit status: 0 after SIGTERM, 130 after Ctrl-C, 2 where no model could be loaded.

    Raises:
        ValueError: Ray is not installed, there is no such cluster, a replica has no room in it, or something
            else listens on the port.
    """
    need_ray()
    settings = spec.settings
    if address is None:
        _check_port(settings.host, settings.port)
    with (
        _cluster(address, settings.max_body_bytes),
        _heard() as heard,
    ):  # in this order: Ray takes signals for itself as it starts
        from ray import serve

        for name, config in spec.engines.items():
            share_of(config, spec.cluster).check_room(name, is_all=address is None)
        scheme = "https" if settings.ssl_certfile is not None else "http"
        serve.start(
            proxy_location="HeadOnly" if address is None else "EveryNode",
            http_options={
                "host": settings.host,
                "port": settings.port,
                "ssl_certfile": settings.ssl_certfile,
                "ssl_keyfile": settings.ssl_keyfile,
                "ssl_keyfile_password": settings.ssl_keyfile_password,
            },
            logging_config={"enable_access_log": False, "log_level": "WARNING"},
        )
        try:
            serve.run(deploy(spec), name=APPLICATION, route_prefix="/", logging_config={"enable_access_log": False})
            host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(settings.host, settings.host)
            url = f"{scheme}://{host}:{settings.port}"
            if not _wait_until_loaded(url, spec, heard):
                return _EXIT_NOT_LOADED
            if not heard:
                print(banner(url), flush=True)
            while not heard:
                time.sleep(_LOOK_S)
            logger.info("stopping: running requests have %g s to finish", settings.shutdown_timeout_s)
        finally:
            serve.delete(APPLICATION)
            if address is None:
                serve.shutdown()
    return 128 + signal.SIGINT if heard and heard[0] == signal.SIGINT else 0


def node_environment(max_body_bytes: int) -> dict[str, str]:
    """What each machine of a cluster is to find in its environment as Ray starts there; the files in deploy/ have the
    same."""
    return {
        "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "quire.cluster.proxy.limits",
        "QUIRE_MAX_BODY_BYTES": str(max_body_bytes),
        "RAY_worker_niceness": "0",  # or engines would give way to whatever else runs there
        "RAY_USAGE_STATS_ENABLED": "0",
    }


@contextmanager
def _cluster(address: str | None, max_body_bytes: int) -> Iterator[None]:
    """Ray, joined or started. What somebody has said to Ray himself stands."""
    said = {name: value for name, value in os.environ.items() if name.startswith("RAY_")}
    os.environ.update(node_environment(max_body_bytes) | said)
    import ray

    options: dict[str, Any] = {"address": address or "local", "logging_level": logging.WARNING}
    if address is None:
        options |= {"include_dashboard": False, "object_store_memory": _OBJECT_STORE}
    try:
        ray.init(**options)
    except ConnectionError as error:
        raise ValueError(
            f"no Ray cluster can be joined at {address}: {error}; start one with: ray start --head"
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _heard() -> Iterator[list[int]]:
    """The signals to stop that have come; the second one ends the process."""
    heard: list[int] = []

    def hear(signum: int, frame: FrameType | None) -> None:
        heard.append(signum)
        if len(heard) > 1:
            os._exit(128 + signum)

    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, hear) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _check_port(host: str, port: int) -> None:
    """Ray would say in a log of its own that the port is taken, and go on."""
    import socket

    if port == 0:
        raise ValueError("port=0 takes a free port, and with ray every machine listens on the same; name one")
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        raise ValueError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --host or --port") from None


def _wait_until_loaded(url: str, spec: AppSpec, heard: list[int]) -> bool:
    """Wait until every model answers, or could be asked to. False where the only one cannot be loaded."""
    import httpx

    while not heard:
        try:
            status = httpx.get(f"{url}/health", timeout=_LOOK_TIMEOUT_S, verify=False).json().get("status")
        except (httpx.HTTPError, ValueError, AttributeError):
            status = None
        if status in ("ok", "failed"):
            return bool(status == "ok") or len(spec.engines) > 1
        time.sleep(_LOOK_S)
    return True
