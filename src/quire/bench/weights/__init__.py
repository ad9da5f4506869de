"""Weights in other layouts and of fewer bits: how fast, and how good."""
