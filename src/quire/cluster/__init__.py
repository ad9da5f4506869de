"""Quire on Ray: one Ray Serve deployment per model, behind the HTTP application. Importing this imports no Ray."""

from quire.cluster.application import build_app

__all__ = ["build_app"]
