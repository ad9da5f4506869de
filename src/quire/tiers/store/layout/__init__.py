"""What lies in a store's directory: one module for each kind of file."""
