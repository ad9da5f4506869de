"""Retrieval, routing and document KV together: the experiment of Multi-Model RAG-DCache."""
