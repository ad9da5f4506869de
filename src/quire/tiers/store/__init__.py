"""KV blocks on disk, found by key, shared by processes and kept over restarts: bytes, nothing about requests.

    DIR/lock                        held by whoever makes room or a namespace
    DIR/<model>-<12 hex of root>/   one namespace
        namespace.json              what it is, for people and for programs
        <writer>-<number>.seg       segments: blocks, appended by one writer
        <writer>-<number>.idx       what a sealed segment holds; may be deleted at any time
        deletions                   tombstones, appended by whoever deletes
        claims                      empty; who holds a lock of one of its bytes computes the key
        generation                  two numbers that move when something was written or deleted
        labels                      names of documents, for people

`layout/` has a module for each of these files. Begin with `block_store.py`: `catalog.py` knows what is there,
`reader.py` and `writer.py` move blocks, `eviction.py` and `compaction.py` take some away. `offline.py` is for people.
"""
