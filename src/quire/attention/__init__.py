"""Paged attention: one interface, our CPU kernel, and torch as the reference."""
