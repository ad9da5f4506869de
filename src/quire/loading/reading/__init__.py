"""Read checkpoints in the order of use, several large reads at once. Knows no models, and imports no torch."""
