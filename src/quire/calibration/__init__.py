"""The costs of loading and computing on this machine: measured on an idle engine, kept on disk."""
