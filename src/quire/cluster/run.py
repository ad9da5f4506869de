"""Run `quire serve --ray`: join or start a cluster, serve, and drain at the first SIGTERM or Ctrl-C; a second one ends
this process and a cluster that it started."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from quire.cluster.application import APPLICATION, deploy, need_ray
from quire.cluster.settings import AppSpec
from quire.cluster.share import share_of
from quire.server.listener import listen
from quire.server.settings import ServerSettings
from quire.system.interrupts import stop_signals

logger = logging.getLogger("quire")

_EXIT_NOT_LOADED = 2
_OBJECT_STORE = 256 * 2**20  # bytes; messages are small, and Ray's default is a third of the memory
_POLL_S = 0.5
_POLL_TIMEOUT_S = 10.0


def run(spec: AppSpec, address: str | None, banner: Callable[[str], str]) -> int:
    """Serve until a signal, in the main thread. Without `address` it starts a Ray cluster that ends with this process.
    Returns the exit status: 0 after SIGTERM, 130 after Ctrl-C, 2 if no model could be loaded. Raises ValueError if Ray
    is not installed, or the cluster does not exist or is too small."""
    need_ray()
    settings = spec.settings
    signals: list[int] = []
    # In this order: Ray replaces signal handlers when it starts.
    with _cluster(address, settings.max_body_bytes), stop_signals(signals.append, os._exit):
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
            if not _wait_until_loaded(url, spec, signals):
                return _EXIT_NOT_LOADED
            if not signals:
                print(banner(url), flush=True)
            while not signals:
                time.sleep(_POLL_S)
            logger.info("stopping: running requests have %g s to finish", settings.shutdown_timeout_s)
        finally:
            serve.delete(APPLICATION)
            if address is None:
                serve.shutdown()
    return 128 + signal.SIGINT if signals and signals[0] == signal.SIGINT else 0


def node_environment(max_body_bytes: int) -> dict[str, str]:
    """Return the environment that Ray needs on each machine. The files in deploy/ contain the same."""
    return {
        "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "quire.cluster.proxy.limits",
        "QUIRE_MAX_BODY_BYTES": str(max_body_bytes),
        "RAY_worker_niceness": "0",  # otherwise other programs slow engines down
        "RAY_USAGE_STATS_ENABLED": "0",
    }


@contextmanager
def _cluster(address: str | None, max_body_bytes: int) -> Iterator[None]:
    """Join or start Ray. RAY_* variables of the user take precedence."""
    given = {name: value for name, value in os.environ.items() if name.startswith("RAY_")}
    os.environ.update(node_environment(max_body_bytes) | given)
    import ray

    options: dict[str, Any] = {"address": address or "local", "logging_level": logging.WARNING}
    if address is None:
        options |= {"include_dashboard": False, "object_store_memory": _OBJECT_STORE}
    try:
        ray.init(**options)
    except ConnectionError as error:
        remedy = "start one with: ray start --head. A cluster with a token needs RAY_AUTH_MODE=token on every machine"
        raise ValueError(f"cannot join a Ray cluster at {address}: {error}; {remedy}") from None
    except Exception as error:  # of any class
        reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        logs = f"{os.environ.get('RAY_TMPDIR', '/tmp')}/ray/session_latest/logs"
        raise ValueError(f"Ray does not start ({reason}); its logs are in {logs}") from None
    try:
        yield
    finally:
        ray.shutdown()


def check_port(settings: ServerSettings) -> None:
    """Raise ValueError if Ray's proxy cannot listen here: Ray only logs that a port is in use."""
    if settings.port == 0:
        raise ValueError("port=0 takes any free port, but with ray all machines listen on the same one; name it")
    listen(replace(settings, uds=None)).close()


def _wait_until_loaded(url: str, spec: AppSpec, signals: list[int]) -> bool:
    """Wait until all models are ready or unloaded. Returns False if the only one cannot be loaded."""
    import httpx

    while not signals:
        try:
            status = httpx.get(f"{url}/health", timeout=_POLL_TIMEOUT_S, verify=False).json().get("status")
        except (httpx.HTTPError, ValueError, AttributeError):
            status = None
        if status in ("ok", "degraded", "failed"):
            return bool(status == "ok") or len(spec.engines) > 1
        time.sleep(_POLL_S)
    return True
