"""Model architectures: shapes from a Hugging Face config, and the forward pass over a flattened batch.

`registry.py` lists the architectures, each a file of its own. Attention is a function that the caller passes in.
"""
