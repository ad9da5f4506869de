"""Where swapped KV blocks lie, and the link to them: bytes of blocks, nothing about requests."""
