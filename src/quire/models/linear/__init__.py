"""Linear layers, and their weights in the layouts of the kernels that multiply by them."""
