"""Change the models of a running server: load, unload, reload, add and remove them."""
