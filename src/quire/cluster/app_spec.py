"""Everything needed to build the HTTP application on any machine of a cluster."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quire.cluster.settings import ClusterSettings
from quire.config import EngineConfig

if TYPE_CHECKING:
    from quire.server.settings import ServerSettings


@dataclass(frozen=True)
class AppSpec:
    """The models of a cluster and their settings."""

    engines: dict[str, EngineConfig]  #: by served name, in order
    settings: ServerSettings  #: API keys included
    cluster: ClusterSettings
    template: str | None = None  #: replaces the models' own chat templates
    aliases: tuple[str, ...] = ()  #: further names of the only model

    @property
    def deployments(self) -> dict[str, str]:
        """Deployment names by served name. Ray Serve allows fewer characters than model names have."""
        found: dict[str, str] = {}
        for number, name in enumerate(self.engines):
            plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", name)
            found[name] = plain if plain not in (*found.values(), "ingress") else f"{plain}-{number}"
        return found
