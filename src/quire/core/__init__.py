"""Scheduling, and the placement of KV blocks. Pure Python: never imports torch."""
