"""`quire rag`: collections of documents."""
