"""Healing: train the adapter of a stage (`heal.py`)."""
