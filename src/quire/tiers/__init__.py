"""KV blocks beyond the device: swap spaces, the links to them, and the block store. Knows nothing about requests."""
