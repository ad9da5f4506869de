"""What a KV cache wastes, and what sharing saves."""
