"""KV blocks on disk, found by key, shared by processes and kept over restarts. Knows nothing about requests.

    DIR/lock                        held while making room or a namespace
    DIR/<model>-<12 hex of root>/   one namespace
        namespace.json              its model and facts
        <writer>-<number>.seg       segment: blocks, appended by one writer
        <writer>-<number>.idx       index of a sealed segment; may be deleted at any time
        deletions                   tombstones, appended by any process
        claims                      empty; the holder of a byte's lock computes the key
        generation                  two numbers that change with every write and deletion
        labels                      names of documents

`layout/` has one module per kind of file. Start with `block_store.py`. `catalog.py` knows the stored blocks,
`reader.py` and `writer.py` move them, `eviction.py` and `compaction.py` remove them, `claims.py` grants claims.
`offline.py` is maintenance.
"""
