"""The command line. Imports the rest of the house inside functions only, so that `--help` answers at once."""
