"""Offline work on stages: choose layers to leave out, heal their absence, evaluate and pack stages."""
