"""Files of a store's directory, one module per kind."""
