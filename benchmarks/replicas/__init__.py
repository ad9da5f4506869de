"""Fleets of replicas behind the production router, simulated."""
