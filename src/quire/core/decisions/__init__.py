"""Decide whether to load blocks or compute without them, by measured costs."""
