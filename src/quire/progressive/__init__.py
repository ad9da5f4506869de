"""Offline: which layers a model can do without at first, what heals their absence, and how it is packed in stages."""
