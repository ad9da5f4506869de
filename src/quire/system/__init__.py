"""The operating system: freed memory, cores, the user's cache, child processes."""
