"""Quality of the answers of each stage (ProgressiveServe, table 1)."""
