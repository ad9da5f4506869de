"""Build the Ray Serve application from settings: one deployment per model, and the HTTP application."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quire import __version__
from quire.cluster.settings import AppSpec, ClusterSettings
from quire.cluster.share import share_of
from quire.config import EngineConfig

if TYPE_CHECKING:
    from ray.serve import Application

    from quire.server.settings import ServerSettings

APPLICATION = "quire"  #: default name in Ray Serve
_ROUTER = "quire.cluster.request_router.PlacementRouter"
_POLICY = "quire.cluster.scaling.FollowLoad"
_NO_LIMIT = 1_000_000  # concurrent requests; engines and the application have their own limits
_NEWS_S = 0.5  # period of replicas' reports, and the delay until requests reach a new replica
_LOOK_BACK_S = 2.0  # window of request counts; `Autoscaler` has a longer one
_COUNT_S = 1.0  # period of request counts
_HEALTH = {"health_check_period_s": 2.0, "health_check_timeout_s": 5.0}  # three failures in a row replace a replica
_HEAD = "node:__internal_head__"  # Ray's resource of the head's machine
_DRAIN_POLL_S = 0.5


def build_app(config: Mapping[str, Any] | str | Path) -> Application:
    """Build the application for `serve run` and KubeRay (`import_path: quire.cluster:build_app`) from options by name,
    a YAML file's path, or {"config": one of these}. Raises ValueError without Ray Serve, or for an invalid option."""
    from quire.config_file import read_config
    from quire.server.settings import DEFAULT_MODELS, ServerSettings

    if isinstance(config, Mapping) and set(config) == {"config"}:
        config = config["config"]
    file = read_config(config, (ServerSettings, ClusterSettings))
    engines = file.make_engines(default_models=DEFAULT_MODELS)
    return deploy(describe(engines, file.make(ServerSettings), file.make(ClusterSettings)))


def describe(engines: dict[str, EngineConfig], settings: ServerSettings, cluster: ClusterSettings) -> AppSpec:
    """Collect everything that the application needs, including files of this machine. ValueError for bad options."""
    from quire.server.app import with_keys
    from quire.text.chat_template import read_chat_template

    _check(settings)
    for config in engines.values():
        share_of(config, cluster)
        if config.lora:
            raise ValueError("lora does not work with ray; serve the model without it, or merge the adapter")
    engines, aliases = settings.named(engines)
    template = read_chat_template(settings.chat_template) if settings.chat_template is not None else None
    return AppSpec(engines, with_keys(settings), cluster, template, aliases)


def _check(settings: ServerSettings) -> None:
    if settings.uds is not None:
        raise ValueError("uds is a socket of one process, but Ray's proxy listens on a port; leave uds or ray out")
    if settings.idle_unload_s is not None:
        raise ValueError("idle_unload works in one process only; with ray, use min_replicas=0 and scale_down_after")
    if settings.memory_limit is not None:
        raise ValueError("memory_limit works in one process only; with ray, leave it out")
    if not settings.engine_process:
        raise ValueError("with ray, engines always have processes of their own; leave no_engine_process out")
    if settings.ssl_ca_certs is not None:
        raise ValueError("ssl_ca_certs is not supported with ray: its proxy requests no certificates; leave it out")


def deploy(spec: AppSpec) -> Application:
    """Make the application for `serve.run`. Raises ValueError without Ray Serve."""
    need_ray()
    from ray import serve

    from quire.cluster.ingress import start_app
    from quire.cluster.replica import ModelReplica

    names = spec.deployments
    settings, cluster = spec.settings, spec.cluster
    models = [
        serve.deployment(
            ModelReplica,
            name=names[name],
            max_ongoing_requests=_NO_LIMIT,
            graceful_shutdown_timeout_s=settings.shutdown_timeout_s,
            graceful_shutdown_wait_loop_s=_DRAIN_POLL_S,
            request_router_config={
                "request_router_class": _ROUTER,
                "request_routing_stats_period_s": _NEWS_S,
                "max_backoff_s": _NEWS_S / 5,
            },
            **share_of(config, cluster).placement(),
            **_HEALTH,
            **_scaling(cluster),
        ).bind(
            name,
            config,
            share=share_of(config, cluster),
            hang_timeout_s=settings.hang_timeout_s,
            load_wait_s=settings.load_wait_s,
            version=__version__,
        )
        for name, config in spec.engines.items()
    ]

    def make_asgi_app() -> Any:  # called in the ingress' replica
        return start_app(spec)

    ingress = serve.deployment(
        serve.ingress(make_asgi_app)(),
        name="ingress",
        # Ray's cluster depends on its head anyway; elsewhere, streams would depend on a second machine.
        ray_actor_options={"num_cpus": 0, "resources": {_HEAD: 0.001}},
        max_ongoing_requests=_NO_LIMIT,
        graceful_shutdown_timeout_s=settings.shutdown_timeout_s,
        graceful_shutdown_wait_loop_s=_DRAIN_POLL_S,
        **_HEALTH,
    )
    return ingress.bind(*models)


def need_ray() -> None:
    try:
        import ray.serve  # noqa: F401
    except ImportError as error:
        raise ValueError(f"serving on Ray needs Ray Serve ({error}); pip install 'quire-llm[ray]'") from None


def _scaling(cluster: ClusterSettings) -> dict[str, Any]:
    """Return autoscaling options that replace Serve's own rules by `Autoscaler`."""
    if cluster.min_replicas == cluster.max_replicas:
        return {"num_replicas": cluster.max_replicas}
    from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about an interval that moves to the environment
        config = AutoscalingConfig(
            min_replicas=cluster.min_replicas,
            max_replicas=cluster.max_replicas,
            target_ongoing_requests=cluster.target_requests,
            metrics_interval_s=_COUNT_S,
            look_back_period_s=_LOOK_BACK_S,
            upscale_delay_s=0,
            downscale_delay_s=0,
            policy=AutoscalingPolicy(policy_function=_POLICY, policy_kwargs=asdict(cluster.autoscaling)),
        )
    return {"autoscaling_config": config}
