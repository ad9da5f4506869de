"""Packs: a checkpoint in stages as files; made, verified and unpacked."""
