"""Quire on Ray: a deployment of Ray Serve a model, and the HTTP application before them. Importing it brings no Ray."""

from quire.cluster.application import build_app

__all__ = ["build_app"]
