"""One interface to paged attention, and what stands behind it. `torch_attention` is the reference."""
