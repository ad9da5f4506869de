"""Architectures of causal language models, one per file. `models/registry.py` lists them."""
