"""Draft tokens: where they come from, and how many a step verifies."""
