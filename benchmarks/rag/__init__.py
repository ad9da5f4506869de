"""`quire bench rag`: retrieval, routing and documents' KV together, as Multi-Model RAG-DCache was measured."""
