"""`quire bench coldstart`: from the start of a process to its first token, and to the whole model."""
