"""Healing: the training of a stage's adapter. `heal.py` is its face."""
