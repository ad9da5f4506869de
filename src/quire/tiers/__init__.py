"""Places for KV blocks beside the device, and the link to them: bytes of blocks, nothing about requests."""
