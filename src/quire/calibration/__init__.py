"""What loading and computing cost on this machine: measured on an idle engine, kept on disk."""
