"""Measuring: workloads that any engine can read, and figures in one schema. Nothing here is on the serving path."""
