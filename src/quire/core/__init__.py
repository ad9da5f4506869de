"""Scheduling, and the placement of KV blocks. Pure Python: imports no numpy."""
