"""Read checkpoints in the order of use, several large reads at once. Imports no models."""
