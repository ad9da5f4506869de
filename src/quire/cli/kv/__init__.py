"""`quire kv`: the KV of documents on disk. `commands.py` is the group; each larger command has a file."""
