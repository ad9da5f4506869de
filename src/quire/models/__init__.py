"""Model architectures, one file each: the shape from a Hugging Face config, and the forward pass."""
