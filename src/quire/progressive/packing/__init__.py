"""Packs: a checkpoint in one file a layer group, written, verified and unpacked."""
