"""Executes what the scheduler decided: batches, the model, the KV cache, sampling."""
