"""`quire bench coldstart`: time from process start to the first token and to the full model."""
