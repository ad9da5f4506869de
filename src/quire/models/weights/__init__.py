"""Weights of linear layers in the layouts of the kernels that multiply by them."""
