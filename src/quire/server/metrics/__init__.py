"""Prometheus metrics. Names and meanings are those of other engines' dashboards, behind our prefix."""
