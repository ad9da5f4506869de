"""Packs: write and verify a checkpoint in stages."""
