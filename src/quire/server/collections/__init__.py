"""Collections of documents and embeddings over HTTP."""
