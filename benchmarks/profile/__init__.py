"""Time of a step by part."""
