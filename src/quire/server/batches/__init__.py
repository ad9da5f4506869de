"""Batches: files of requests, answered in the background, each line once."""
