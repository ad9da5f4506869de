"""KV blocks on disk, found by key, shared by processes and kept over restarts: bytes, nothing about requests.

    DIR/lock                        held by whoever makes room or a namespace
    DIR/<model>-<12 hex of root>/   one namespace
        namespace.json              what it is, for people and for programs
        <writer>-<number>.seg       segments: blocks, appended by one writer (`record.py`, `segment.py`)
        <writer>-<number>.idx       what a sealed segment holds; may be deleted at any time
        deletions                   tombstones, appended by whoever deletes (`deletions.py`)
        claims                      empty; who holds a lock of one of its bytes computes the key (`claims.py`)
        generation                  two numbers that move when something was written or deleted (`generation.py`)
        labels                      names of documents, for people (`labels.py`)

Begin with `block_store.py`; `offline.py` is for when no engine runs.
"""
