"""Causal language models: the shape from a Hugging Face config, shared layers, and the forward pass."""
