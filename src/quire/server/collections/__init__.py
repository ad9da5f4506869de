"""Collections of documents over HTTP: made, filled, searched, deleted; and texts to vectors."""
