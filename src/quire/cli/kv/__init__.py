"""`quire kv`: maintenance of the KV directory."""
