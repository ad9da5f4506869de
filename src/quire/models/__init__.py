"""Model architectures: shapes from a Hugging Face config, and the forward pass over a flattened batch.

Knows nothing of files, the KV cache or scheduling: attention is a function that the caller passes in.
"""
