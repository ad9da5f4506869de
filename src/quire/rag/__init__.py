"""Documents: read, cut into chunks, embedded, kept, and found again."""
