"""What runs next, and where its KV lives. Pure Python: never imports torch."""
