"""Reranking and scoring of texts over HTTP."""
