"""Packs: write, verify and unpack a checkpoint in stages."""
